package statefulset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// A status is passing, because no reader waits for it, until all wanted pods exist, are available
// and have the update revision; but not if the status decides which pods are created.
func TestOnlyTheStepsOfASetPass(t *testing.T) {
	for what, c := range map[string]struct {
		replicas, available, updated int32 // of 3
		change                       func(*appsv1.StatefulSet)
		want                         bool
	}{
		"some are there":      {replicas: 2, available: 2, updated: 2, want: true},
		"all are there":       {replicas: 3, available: 2, updated: 3, want: true},
		"some are of before":  {replicas: 3, available: 3, updated: 2, want: true},
		"all are as they are": {replicas: 3, available: 3, updated: 3},
		"some leave":          {replicas: 4, available: 3, updated: 3, want: true},
		"the set is another":  {replicas: 2, change: func(s *appsv1.StatefulSet) { s.Generation++ }},
		"a part of them stays": {replicas: 2, change: func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](1)}
		}},
	} {
		set := stateful("web", 3)
		set.Status.ObservedGeneration = set.Generation
		if c.change != nil {
			c.change(set)
		}
		s := View{Set: set}.stage([]*corev1.Pod{}, history{}, now)
		next := appsv1.StatefulSetStatus{
			Replicas: c.replicas, AvailableReplicas: c.available, UpdatedReplicas: c.updated, ObservedGeneration: set.Generation,
		}
		if got := s.passing(next); got != c.want {
			t.Errorf("%s: passing is %t, want %t", what, got, c.want)
		}
	}
}
