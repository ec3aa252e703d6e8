package tainteviction

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func conditionIn(t *testing.T, body json.RawMessage) corev1.PodCondition {
	t.Helper()
	var p corev1.Pod
	if err := json.Unmarshal(body, &p); err != nil || len(p.Status.Conditions) != 1 {
		t.Fatalf("the decision writes %s, %v", body, err)
	}
	return p.Status.Conditions[0]
}

// A terminating pod gets the condition DisruptionTarget, for readers of the reason why it
// ended, such as a Job's pod failure policy. It is not deleted again.
func TestATerminatingPodSaysThatItIsDisrupted(t *testing.T) {
	v := View{Pod: reconciletest.Pod("p", reconciletest.On("n1")), Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}}
	reconciletest.Deleted[*corev1.Pod](now)(v.Pod)
	d := decide(v, now)
	if len(d.Commands) != 1 || conditionIn(t, d.Commands[0].Body).Reason != why {
		t.Fatalf("the decision has the commands %v (%s)", d.Commands, d.Because)
	}
	mark(v.Pod, now)
	if d := decide(v, now.Add(time.Minute)); len(d.Commands) > 0 {
		t.Errorf("and then %v (%s)", d.Commands, d.Because)
	}
	v.Pod = reconciletest.Pod("p", reconciletest.On("n1"))
	v.Pod.Spec.Tolerations = []corev1.Toleration{tolerates("a")}
	reconciletest.Deleted[*corev1.Pod](now)(v.Pod)
	if d := decide(v, now); len(d.Commands) > 0 {
		t.Errorf("one that tolerates its node: %v (%s)", d.Commands, d.Because)
	}
}

// A pod that was disrupted before, for another reason, keeps the time of that disruption.
func TestADisruptionKeepsItsTime(t *testing.T) {
	before := metav1.NewTime(now.Add(-time.Hour))
	for status, want := range map[corev1.ConditionStatus]metav1.Time{corev1.ConditionTrue: before, corev1.ConditionFalse: metav1.NewTime(now)} {
		v := View{Pod: reconciletest.Pod("p", reconciletest.On("n1")), Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}}
		v.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: status, Reason: "PreemptionByScheduler", LastTransitionTime: before}}
		d := decide(v, now)
		if len(d.Commands) != 1 {
			t.Fatalf("the decision has the commands %v (%s)", d.Commands, d.Because)
		}
		if got := conditionIn(t, d.Commands[0].Body).LastTransitionTime; !got.Equal(&want) {
			t.Errorf("it was %s before: it is said to be disrupted since %v, want %v", status, got, want)
		}
	}
}
