package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// Intermediate steps of a rollout are passing; its beginning, its end and changed
// conditions are not, because a reader may wait for them.
func TestOnlyTheStepsOfARolloutPass(t *testing.T) {
	available := func(status corev1.ConditionStatus) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: status}}
	}
	for what, c := range map[string]struct {
		ready, seen int32 // ready of 4 replicas; seen: generations behind
		conditions  []appsv1.DeploymentCondition
		want        bool
	}{
		"a step":                   {1, 0, available(corev1.ConditionFalse), true},
		"the end":                  {4, 0, available(corev1.ConditionFalse), false},
		"the beginning":            {1, 1, available(corev1.ConditionFalse), false},
		"enough is available":      {3, 0, available(corev1.ConditionTrue), false},
		"a condition that was not": {1, 0, append(available(corev1.ConditionFalse), appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure}), false},
		"a condition that is over": {1, 0, nil, false},
	} {
		d := rolling(4, "25%", "25%")
		d.Status.Conditions, d.Status.ObservedGeneration = available(corev1.ConditionFalse), d.Generation-int64(c.seen)
		set := aSet(d, "web-a", imageOf(d), 1, 4, c.ready)
		r := newRollout(View{Deployment: d}, []*appsv1.ReplicaSet{set}, reconciletest.Now)
		status := r.count(d.Status)
		status.Conditions = c.conditions
		if got := passing(d, status); got != c.want {
			t.Errorf("%s: passing is %t, want %t: %+v", what, got, c.want, status)
		}
	}
}
