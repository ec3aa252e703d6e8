package finalizer_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
)

func TestFinalizersComeAndGo(t *testing.T) {
	had := []string{"a", "b"}
	p := &corev1.Pod{}
	p.Finalizers = had
	finalizer.Add(p, "c")
	finalizer.Remove(p, "a")
	if !slices.Equal(p.Finalizers, []string{"b", "c"}) || finalizer.Has(p, "a") || !finalizer.Has(p, "c") {
		t.Errorf("the finalizers are %v", p.Finalizers)
	}
	if !slices.Equal(had, []string{"a", "b"}) {
		t.Errorf("the list that it had is %v now", had)
	}
}
