package job

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// With the gate a suspended Job has no start time.
func TestWhenASuspendedJobBegan(t *testing.T) {
	for _, c := range []struct {
		gates gate.Set
		began bool
	}{{nil, false}, {gate.Set{gate.MutableSchedulingDirectivesForSuspendedJobs: false}, true}} {
		v := View{Gates: c.gates, Job: aJob(func(j *batchv1.Job) {
			j.Spec.Suspend, j.Status.StartTime = of(true), of(metav1.NewTime(now.Add(-time.Hour)))
		})}
		for range 4 {
			d := decide(v, now)
			for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus} {
				v = applied(v, d.In(lane), now)
			}
		}
		if !announced(v.Job.Status, batchv1.JobSuspended) || (v.Job.Status.StartTime != nil) != c.began {
			t.Errorf("under %v the Job began at %v, and has %+v", c.gates, v.Job.Status.StartTime, v.Job.Status.Conditions)
		}
	}
}

// A status with the condition Suspended has 0 active pods, unless a pod cannot be deleted.
func TestASuspendedJobHasNoActivePods(t *testing.T) {
	for _, refused := range []bool{false, true} {
		v := View{Job: aJob(func(j *batchv1.Job) { j.Spec.Suspend = of(true) })}
		v.Pods = append(v.Pods, aPod("a", corev1.PodRunning), aPod("b", corev1.PodPending))
		if refused {
			v.Attempt = 7
		}
		v = applied(v, decide(v, now).In(events.LaneStatus), now)
		if got := announced(v.Job.Status, batchv1.JobSuspended); got != refused {
			t.Errorf("with pods that run the Job says that it is suspended: %v; a delete was refused: %v", got, refused)
		}
		for range 3 {
			d := decide(v, now)
			for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus} {
				v = applied(v, d.In(lane), now)
			}
		}
		if !announced(v.Job.Status, batchv1.JobSuspended) || v.Job.Status.Active != 0 {
			t.Errorf("without pods that run the status is %+v", v.Job.Status)
		}
	}
}
