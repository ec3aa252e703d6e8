package deployment

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
)

// A Deployment that is resumed with a new template reports that it is resumed, and never
// that its new set was created.
func TestTheResumedSaySo(t *testing.T) {
	for was, want := range map[string]string{reasonPaused: reasonResumed, reasonResumed: reasonCreated, reasonComplete: reasonCreated} {
		replicas, limit, labels := int32(1), int32(600), map[string]string{"app": "web"}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "d"}}
		d.Spec.Replicas, d.Spec.ProgressDeadlineSeconds = &replicas, &limit
		d.Spec.Selector, d.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
		d.Spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionUnknown, Reason: was}}
		decision := decide(View{Deployment: d}, time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC))
		tell := decision.In(events.LaneStatus).Commands
		if len(decision.In(events.LaneWrite).Commands) != 1 || len(tell) != 1 {
			t.Fatalf("after %s: wants %v", was, decision.Commands)
		}
		var said appsv1.Deployment
		if err := json.Unmarshal(tell[0].Body, &said); err != nil {
			t.Fatal(err)
		}
		if got, _ := find(said.Status.Conditions, appsv1.DeploymentProgressing); got.Reason != want {
			t.Errorf("after %s it says %s, want %s", was, got.Reason, want)
		}
	}
}
