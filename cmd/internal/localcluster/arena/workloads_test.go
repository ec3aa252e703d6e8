package arena

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestConditionsOfWorkloads(t *testing.T) {
	job := func(succeeded int32, status corev1.ConditionStatus) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "sum"}, Status: batchv1.JobStatus{
			Succeeded: succeeded, Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: status}},
		}}
	}
	quiet := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UnavailableReplicas: 3}
	for _, c := range []struct {
		name string
		view *view
		is   Condition
		want bool
	}{
		{"complete", seen(job(2, corev1.ConditionTrue)), Complete("sum", 2), true},
		{"another number", seen(job(1, corev1.ConditionTrue)), Complete("sum", 2), false},
		{"not complete", seen(job(2, corev1.ConditionFalse)), Complete("sum", 2), false},
		{"no such job", seen(), Complete("sum", 0), false},
		{"told", seen(deployment("x", 3, quiet)), Told(3), true},
		{"told less", seen(deployment("x", 4, quiet)), Told(4), false},
		{"no deployment to tell", seen(), Told(0), false},
	} {
		if got := c.is.so(c.view); got != c.want {
			t.Errorf("%s: %v is %v, want %v", c.name, c.is, got, c.want)
		}
	}
}
