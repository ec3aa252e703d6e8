package podgc

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// A deleted pod counts once, with its namespace and the reason; a pod that is only marked
// as failed does not count yet.
func TestWhoIsDeletedIsCounted(t *testing.T) {
	gone := reconciletest.Pod("p", reconciletest.InPhase(corev1.PodFailed), reconciletest.Deleted[*corev1.Pod](now))
	d := decide(View{Pod: gone}, now)
	if len(d.Figures) != 2 || d.Figures[0].Metric != deleted || d.Figures[0].Labels[0] != gone.Namespace || d.Figures[0].Labels[1] != "unscheduled" ||
		d.Figures[1].Metric != failed || !d.Figures[1].Failed || d.Figures[1].Of != d.Commands[0].Ref() {
		t.Errorf("the figures are %+v", d.Figures)
	}
	gone.Status.Phase = corev1.PodPending
	if d := decide(View{Pod: gone}, now); len(d.Commands) != 1 || len(d.Figures) > 0 {
		t.Errorf("of one that has not ended the figures are %+v", d.Figures)
	}
	if d := decide(View{Excess: []*corev1.Pod{gone, gone}}, now); len(d.Figures) != 4 || d.Figures[0].Labels[1] != "terminated" {
		t.Errorf("of two that are too many the figures are %+v", d.Figures)
	}
}
