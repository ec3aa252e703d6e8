package system

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// TestNamespacesGoWhenTheyAreKnownToBeEmpty deletes a namespace in which a finalizer holds a custom object,
// while the discovery of an API group fails. The conditions of the namespace report both, and it is deleted
// when both are resolved; everything else in it is deleted at once.
func TestNamespacesGoWhenTheyAreKnownToBeEmpty(t *testing.T) {
	s := here(t)
	s.run(t)
	const name = "leaving"
	must(t, s.defineKind(t.Context(), "guest"))
	t.Cleanup(func() { must(t, s.removeKind(context.WithoutCancel(t.Context()), "guest")) })
	_, err := s.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	_, err = s.kube.CoreV1().ConfigMaps(name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	must(t, err)
	guests := s.dynamic.Resource(kindResource("guest")).Namespace(name)
	within(t, patience, "a custom object can be created", func() string {
		guest := customObject("guest", "guest", metav1.OwnerReference{})
		guest.SetOwnerReferences(nil)
		guest.SetFinalizers([]string{"example.com/hold"})
		_, err := guests.Create(t.Context(), guest, metav1.CreateOptions{})
		return made(err)
	})
	mend := s.silence(t, "silent.millrace.io")

	must(t, s.kube.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
	s.says(t, name, corev1.NamespaceDeletionDiscoveryFailure, "Discovery failed for some groups, 1 failing: ", "silent.millrace.io")
	s.says(t, name, corev1.NamespaceContentRemaining, "Some resources are remaining: guests."+churn+" has 1 resource instances")
	s.says(t, name, corev1.NamespaceFinalizersRemaining, "example.com/hold in 1 resource instances")

	_, err = guests.Patch(t.Context(), "guest", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(t, err)
	s.says(t, name, corev1.NamespaceContentRemaining, "All content successfully removed")
	ns, err := s.kube.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || len(ns.Spec.Finalizers) == 0 {
		t.Fatalf("the namespace lost its finalizers, want them kept while its contents cannot be listed: %v", err)
	}

	mend()
	within(t, patience, "the namespace goes", func() string {
		_, err := s.kube.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		return gone(err)
	})
}

// says waits until the message of a namespace's condition has all parts.
func (s *site) says(t *testing.T, namespace string, about corev1.NamespaceConditionType, parts ...string) {
	t.Helper()
	within(t, patience, string(about)+" is "+strings.Join(parts, " … "), func() string {
		ns, err := s.kube.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		said := "nothing is said"
		for _, c := range ns.Status.Conditions {
			if c.Type != about {
				continue
			}
			if said = c.Message; !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(said, part) }) {
				return ""
			}
		}
		return said
	})
}

// silence registers an API group that no server serves, until mend is called.
func (s *site) silence(t *testing.T, group string) (mend func()) {
	t.Helper()
	services := s.dynamic.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	name := "v1." + group
	_, err := services.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": group, "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "absent"},
		},
	}}, metav1.CreateOptions{})
	must(t, err)
	over := false
	mend = func() {
		if !over {
			over = true
			must(t, services.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
		}
	}
	t.Cleanup(mend)
	within(t, patience, "the API server knows that no server serves the group", func() string {
		if _, err := s.kube.Discovery().ServerPreferredNamespacedResources(); err == nil {
			return "it says that it knows all kinds"
		}
		return ""
	})
	return mend
}
