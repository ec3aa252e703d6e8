package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestTheStaticPodIsTaken: the API server accepts the roles, and the mirror pod that a kubelet creates: with
// the name of its node, and the annotation of a static pod.
func TestTheStaticPodIsTaken(t *testing.T) {
	s := to(t, "kube-system")
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(checkout, "deployments", "static-pod", file))
		s.ok(err)
		return string(text)
	}
	roles := s.objects(read("roles.yaml"))
	for _, o := range roles {
		if o.GetKind() == "ServiceAccount" {
			t.Errorf("there is an account, %s: a static pod has none", o.GetName())
		}
		made, err := s.resource(o).Create(s.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		s.ok(err)
		s.Cleanup(func() {
			_ = s.resource(made).Delete(context.WithoutCancel(s.Context()), made.GetName(), metav1.DeleteOptions{})
		})
	}
	if len(roles) < 6 {
		t.Errorf("there are %d roles and bindings", len(roles))
	}
	pod := s.objects(read("millrace.yaml"))[0]
	meant := pod.DeepCopy()
	s.ok(unstructured.SetNestedField(pod.Object, "node-1", "spec", "nodeName"))
	pod.SetName(pod.GetName() + "-node-1")
	pod.SetAnnotations(map[string]string{"kubernetes.io/config.mirror": "a", "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "a"})
	made, err := s.resource(pod).Create(s.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	s.ok(err)
	for _, path := range lacking(".spec", meant.Object["spec"], made.Object["spec"]) {
		t.Error(path)
	}
}
