package job

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
)

// The two parts of a decision are stored separately. Whichever of them is stored alone, a
// Job ends for the reason for which its end began.
func TestAJobEndsForItsFirstReason(t *testing.T) {
	running := func(count int) (pods []*corev1.Pod) {
		for i := range count {
			pods = append(pods, aPod(fmt.Sprintf("sum-%d", i), corev1.PodRunning, withIndex(i)))
		}
		return pods
	}
	for what, c := range map[string]struct {
		edit   func(*batchv1.Job)
		first  corev1.PodPhase // of the pod with index 0
		end    batchv1.JobConditionType
		reason string
	}{
		"its success policy is met": {func(j *batchv1.Job) {
			j.Spec.CompletionMode = of(batchv1.IndexedCompletion)
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: of("0")}}}
		}, corev1.PodSucceeded, batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy},
		"it is the same, and failures are counted by index": {func(j *batchv1.Job) {
			j.Spec.CompletionMode, j.Spec.BackoffLimitPerIndex = of(batchv1.IndexedCompletion), of(int32(0))
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: of("0")}}}
		}, corev1.PodSucceeded, batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy},
		"its time is over": {func(j *batchv1.Job) {
			j.Spec.ActiveDeadlineSeconds = of(int64(60))
			j.Status.StartTime = of(metav1.NewTime(now.Add(-time.Hour)))
		}, corev1.PodRunning, batchv1.JobFailureTarget, batchv1.JobReasonDeadlineExceeded},
	} {
		for _, stored := range [][]events.Lane{{events.LaneWrite}, {events.LaneStatus}, {events.LaneWrite, events.LaneStatus}} {
			v := View{Job: aJob(c.edit), Pods: running(4)}
			v.Job.Spec.Parallelism, v.Job.Spec.Completions, v.Job.Spec.BackoffLimit = of(int32(4)), of(int32(4)), of(int32(0))
			v.Pods[0].Status.Phase = c.first
			for n := range 4 {
				d := decide(v, now)
				lanes := stored
				if n > 0 { // from then on everything is stored
					lanes = []events.Lane{events.LaneWrite, events.LaneStatus}
				}
				for _, lane := range lanes {
					v = applied(v, d.In(lane), now)
				}
			}
			if !announced(v.Job.Status, c.end) || v.Job.Status.Conditions[0].Reason != c.reason {
				t.Errorf("%s, and %v is stored first: %+v, want %s %s", what, stored, v.Job.Status.Conditions, c.end, c.reason)
			}
			if c.end == batchv1.JobSuccessCriteriaMet && v.Job.Status.Failed+int32(len(v.Job.Status.UncountedTerminatedPods.Failed)) > 0 {
				t.Errorf("%s, and %v is stored first: pods count as failures: %+v", what, stored, v.Job.Status)
			}
		}
	}
}
