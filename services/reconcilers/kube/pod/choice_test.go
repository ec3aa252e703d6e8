package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAsGood(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	made := func(name string, age time.Duration, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.CreationTimestamp = name, metav1.NewTime(now.Add(-age))
		p.Spec.NodeName, p.Status.Phase = "n", corev1.PodRunning
		if change != nil {
			change(p)
		}
		return p
	}
	a := made("a", 100*time.Second, nil)
	for name, c := range map[string]struct {
		other *corev1.Pod
		want  bool
	}{
		"a twin":                  {made("b", 100*time.Second, nil), true},
		"about as old":            {made("b", 60*time.Second, nil), true},
		"much younger":            {made("b", 10*time.Second, nil), false},
		"not assigned":            {made("b", 100*time.Second, func(p *corev1.Pod) { p.Spec.NodeName = "" }), false},
		"pending":                 {made("b", 100*time.Second, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), false},
		"of another cost":         {made("b", 100*time.Second, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: "5"} }), false},
		"on a node that has more": {made("b", 100*time.Second, func(p *corev1.Pod) { p.Spec.NodeName = "m" }), false},
	} {
		if got := AsGood(a, c.other, Crowd{"n": 1, "m": 2}, true, now); got != c.want {
			t.Errorf("%s: as good is %t", name, got)
		}
		if got := AsGood(c.other, a, Crowd{"n": 1, "m": 2}, true, now); got != c.want {
			t.Errorf("%s, the other way: as good is %t", name, got)
		}
	}
}
