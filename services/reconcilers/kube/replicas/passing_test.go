package replicas

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// No reader waits for the steps to the wanted number, except a Deployment during a
// rollout.
func TestOnlyTheStepsOfASetPass(t *testing.T) {
	for what, c := range map[string]struct {
		replicas, available int32 // of 3
		desired             string
		change              func(*appsv1.ReplicaSetStatus)
		want                bool
	}{
		"some are there":             {replicas: 2, want: true},
		"all are there":              {replicas: 3, available: 2, want: true},
		"all are available":          {replicas: 3, available: 3},
		"some leave":                 {replicas: 4, available: 3, want: true},
		"one of a Deployment":        {replicas: 2, desired: "3", want: true},
		"one of a rollout":           {replicas: 2, desired: "4"},
		"the set is another one now": {replicas: 2, change: func(s *appsv1.ReplicaSetStatus) { s.ObservedGeneration++ }},
		"creates fail": {replicas: 2, change: func(s *appsv1.ReplicaSetStatus) {
			s.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure}}
		}},
	} {
		v := View{Set: reconciletest.ReplicaSet("web", 3)}
		if c.desired != "" {
			v.Set.Annotations = map[string]string{DesiredNote: c.desired}
		}
		status := *v.Set.Status.DeepCopy()
		status.Replicas, status.AvailableReplicas = c.replicas, c.available
		if c.change != nil {
			c.change(&status)
		}
		if got := v.passing(status); got != c.want {
			t.Errorf("%s: passing is %t, want %t", what, got, c.want)
		}
	}
}
