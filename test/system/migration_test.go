package system

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/millrace/millrace/cmd/clustertest"
)

// TestObjectsAreStoredInTheNewVersion: if the storage version of a custom resource changes, a migration
// rewrites all of its objects, and the definition loses the old version. Of two migrations the second waits,
// and one of an unknown resource fails.
func TestObjectsAreStoredInTheNewVersion(t *testing.T) {
	if !served(t) {
		return
	}
	t.Parallel()
	const gates, name = "--feature-gates=StorageVersionMigrator=true", "stored"
	s, err := begin(t.Context(), t.TempDir(), clustertest.Tracing{}, gates, "--runtime-config=storagemigration.k8s.io/v1beta1=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Stop()) })
	s.run(t, gates)
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	widgets := s.defineWidgets(t).Namespace(name)
	const many = 600 // more than a page
	for i := range many {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "system.millrace.io/v1", "kind": "Widget", "metadata": map[string]any{"name": fmt.Sprint("w-", i)}}}
		within(t, patience, "a widget can be created", func() string {
			_, err := widgets.Create(t.Context(), object, metav1.CreateOptions{})
			return made(err)
		})
	}
	versions := func() map[string]string {
		list, err := widgets.List(t.Context(), metav1.ListOptions{})
		must(t, err)
		at := map[string]string{}
		for i := range list.Items {
			at[list.Items[i].GetName()] = list.Items[i].GetResourceVersion()
		}
		return at
	}
	before := versions()
	definitions := s.dynamic.Resource(definitionsResource)
	within(t, patience, "widgets are stored as v2", func() string {
		d, err := definitions.Get(t.Context(), "widgets.system.millrace.io", metav1.GetOptions{})
		if err != nil {
			return ask(err)
		}
		all, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		old := all[0].(map[string]any)
		if len(all) == 1 {
			old["storage"] = false
			next := map[string]any{"name": "v2", "served": true, "storage": true, "schema": old["schema"]}
			must(t, unstructured.SetNestedSlice(d.Object, []any{old, next}, "spec", "versions"))
			_, err = definitions.Update(t.Context(), d, metav1.UpdateOptions{})
			return ask(err)
		}
		if stored, _, _ := unstructured.NestedStringSlice(d.Object, "status", "storedVersions"); len(stored) != 2 {
			return fmt.Sprint("they may be stored as ", stored)
		}
		return ""
	})
	migrations := s.kube.StoragemigrationV1beta1().StorageVersionMigrations()
	asks := func(of string, resource metav1.GroupResource) {
		_, err := migrations.Create(t.Context(), &storagemigrationv1beta1.StorageVersionMigration{
			ObjectMeta: metav1.ObjectMeta{Name: of}, Spec: storagemigrationv1beta1.StorageVersionMigrationSpec{Resource: resource},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	ends := func(of string, as storagemigrationv1beta1.MigrationConditionType) {
		within(t, patience, of+" ends: "+string(as), func() string {
			m, err := migrations.Get(t.Context(), of, metav1.GetOptions{})
			switch {
			case err != nil:
				return ask(err)
			case !apimeta.IsStatusConditionTrue(m.Status.Conditions, string(as)) || !apimeta.IsStatusConditionFalse(m.Status.Conditions, string(storagemigrationv1beta1.MigrationRunning)):
				return fmt.Sprintf("it says %+v", m.Status.Conditions)
			}
			return ""
		})
	}
	of := metav1.GroupResource{Group: "system.millrace.io", Resource: "widgets"}
	asks("first", of)
	asks("second", of)
	asks("cannot", metav1.GroupResource{Resource: "componentstatuses"})
	ends("first", storagemigrationv1beta1.MigrationSucceeded)
	for name, version := range versions() {
		if before[name] == version {
			t.Errorf("the widget %s has the resourceVersion of before the migration, want it written again", name)
		}
	}
	ends("second", storagemigrationv1beta1.MigrationSucceeded)
	ends("cannot", storagemigrationv1beta1.MigrationFailed)
	d, err := definitions.Get(t.Context(), "widgets.system.millrace.io", metav1.GetOptions{})
	must(t, err)
	if stored, _, _ := unstructured.NestedStringSlice(d.Object, "status", "storedVersions"); len(stored) != 1 || stored[0] != "v2" {
		t.Errorf("storedVersions of the definition is %v, want v2 alone", stored)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none/runs:it"}}}}
	within(t, patience, "the pod can be created", func() string {
		_, err := s.kube.CoreV1().Pods(name).Create(t.Context(), pod, metav1.CreateOptions{})
		return made(err)
	})
	asks("pods", metav1.GroupResource{Resource: "pods"})
	ends("pods", storagemigrationv1beta1.MigrationSucceeded)
}
