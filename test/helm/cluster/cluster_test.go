package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// shipped are the values in a file of the chart.
func (s *site) shipped(file string) map[string]any {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values", file+".yaml"))
	s.ok(err)
	return s.values(string(text))
}

// TestLife takes a cluster from a shadow to three writers and back. After each step the objects of the chart
// exist with the right fields, and objects of the step before that it no longer renders are deleted.
func TestLife(t *testing.T) {
	s := at(t, "millrace-system")
	s.apply("{apiVersion: v1, kind: Secret, metadata: {name: millrace-bus}, stringData: {passwords: a}}")
	looks := s.install(s.values())
	s.holds(looks, nil)
	if s.has(looks, "Deployment", "millrace-writer") {
		t.Error("a shadow has a writer")
	}
	acts := s.upgrade(s.shipped("kubernetes"))
	s.holds(acts, looks)
	if !s.has(acts, "Deployment", "millrace-writer") {
		t.Error("who acts has no writer")
	}
	split := s.upgrade(s.shipped("kubernetes-split"))
	s.holds(split, acts)
	if s.has(split, "Deployment", "millrace-writer") || !s.has(split, "Deployment", "millrace-writer-collectors") {
		t.Error("the writers are not three")
	}
	back := s.rollback(2)
	s.holds(back, split)
	if !s.has(back, "Deployment", "millrace-writer") || s.has(back, "Deployment", "millrace-writer-collectors") {
		t.Error("the writers are not one again")
	}
	s.uninstall()
	s.gone(back)
	for _, kind := range []schema.GroupVersionResource{
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}, {Group: "apps", Version: "v1", Resource: "deployments"}, {Version: "v1", Resource: "configmaps"},
	} {
		list, err := s.client.Resource(kind).List(t.Context(), metav1.ListOptions{})
		s.ok(err)
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetName(), "millrace") {
				t.Errorf("%s %s is left", kind.Resource, o.GetName())
			}
		}
	}
	if s.there(s.objects("{apiVersion: v1, kind: Secret, metadata: {name: millrace-bus}}")[0]) == nil {
		t.Error("the passwords of the bus went with the release")
	}
}

// TestAllValuesAreTaken: the API server accepts the objects that the chart renders for each set of values
// that is shipped or tested, and their pods are restricted.
func TestAllValuesAreTaken(t *testing.T) {
	var files []string
	for _, pattern := range []string{chartDir + "/values/*.yaml", "../testdata/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 11 {
		t.Errorf("there are %d files of values", len(files))
	}
	for i, file := range files {
		s := at(t, fmt.Sprintf("values-%d", i))
		if i == 0 {
			s.crds()
		}
		text, err := os.ReadFile(file)
		s.ok(err)
		all := s.install(s.values(string(text)))
		s.holds(all, nil)
		pods := 0
		for _, o := range all {
			if template, is, _ := unstructured.NestedMap(o.Object, "spec", "template"); is {
				s.lets(o, template)
				pods++
			}
		}
		if pods < 3 {
			t.Errorf("%s has %d pods", file, pods)
		}
		s.uninstall()
		s.gone(all)
	}
}

// lets checks with a dry run that the namespace admits a pod of a template. A StatefulSet's pod also has the
// volumes of its claims, which the StatefulSet controller adds.
func (s *site) lets(of *unstructured.Unstructured, template map[string]any) {
	s.Helper()
	name, pod := of.GetName(), &unstructured.Unstructured{Object: template}
	claims, _, err := unstructured.NestedSlice(of.Object, "spec", "volumeClaimTemplates")
	s.ok(err)
	volumes, _, err := unstructured.NestedSlice(template, "spec", "volumes")
	s.ok(err)
	for _, c := range claims {
		claim, _, err := unstructured.NestedString(c.(map[string]any), "metadata", "name")
		s.ok(err)
		volumes = append(volumes, map[string]any{"name": claim, "persistentVolumeClaim": map[string]any{"claimName": claim + "-" + name + "-0"}})
	}
	s.ok(unstructured.SetNestedSlice(template, volumes, "spec", "volumes"))
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(name)
	if _, err := s.resource(pod).Create(s.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err != nil {
		s.Errorf("a pod of %s is not let in: %v", name, err)
	}
}

func (s *site) has(all []*unstructured.Unstructured, kind, name string) bool {
	return slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
}

// holds checks that all objects exist with the fields that were rendered, and that the objects of before that
// are not among them are deleted.
func (s *site) holds(all, before []*unstructured.Unstructured) {
	s.Helper()
	now := map[string]bool{}
	for _, o := range all {
		now[key(o)] = true
		have := s.there(o)
		if have == nil {
			s.Errorf("%s is not there", key(o))
			continue
		}
		for _, path := range lacking("", o.Object, have.Object) {
			s.Errorf("%s%s", key(o), path)
		}
	}
	s.gone(slices.DeleteFunc(slices.Clone(before), func(o *unstructured.Unstructured) bool { return now[key(o)] }))
}

// gone waits until no object exists.
func (s *site) gone(all []*unstructured.Unstructured) {
	s.Helper()
	for _, o := range all {
		s.eventually(key(o)+" is gone", func() bool {
			found := s.there(o)
			return found == nil || found.GetDeletionTimestamp() != nil && found.GetKind() == "PersistentVolumeClaim" // a controller removes its finalizer
		})
	}
}

// lacking are the rendered fields that an object on the API server does not have.
func lacking(at string, meant, have any) (paths []string) {
	switch meant := meant.(type) {
	case map[string]any:
		fields, is := have.(map[string]any)
		if !is && len(meant) > 0 {
			return []string{at + " is not there"}
		}
		for name, value := range meant {
			paths = append(paths, lacking(at+"."+name, value, fields[name])...)
		}
	case []any:
		list, _ := have.([]any)
		if len(list) != len(meant) {
			return []string{fmt.Sprintf("%s has %d entries, not %d", at, len(list), len(meant))}
		}
		for i := range meant {
			paths = append(paths, lacking(fmt.Sprintf("%s[%d]", at, i), meant[i], list[i])...)
		}
	default:
		// A quantity may be rendered as a number; the API server returns a string.
		if meant != nil && meant != "" && fmt.Sprint(meant) != fmt.Sprint(have) {
			paths = append(paths, fmt.Sprintf("%s is %v, not %v", at, have, meant))
		}
	}
	return paths
}
