package job

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// The results of a Job are counted once on its way from its first pod to its end.
func TestAJobIsCountedOnce(t *testing.T) {
	for what, c := range map[string]struct {
		edit  func(*batchv1.Job)
		phase corev1.PodPhase
		want  map[string]float64
	}{
		"a good end": {func(*batchv1.Job) {}, corev1.PodSucceeded, map[string]float64{
			podsCreated + " [new succeeded]": 1, podsFinished + " [NonIndexed succeeded]": 1, jobsFinished + " [NonIndexed succeeded CompletionsReached]": 1,
			podsTracked + " [add]": 1, podsTracked + " [delete]": 1,
		}},
		"a bad end": {func(j *batchv1.Job) { j.Spec.BackoffLimit = of(int32(0)) }, corev1.PodFailed, map[string]float64{
			podsCreated + " [new succeeded]": 1, podsFinished + " [NonIndexed failed]": 1, jobsFinished + " [NonIndexed failed BackoffLimitExceeded]": 1,
			podsTracked + " [add]": 1, podsTracked + " [delete]": 1,
		}},
		"a rule that counts": {func(j *batchv1.Job) {
			j.Spec.BackoffLimit, j.Spec.PodFailurePolicy = of(int32(0)), onDisruption(batchv1.PodFailurePolicyActionCount)
		}, corev1.PodFailed, map[string]float64{
			podsCreated + " [new succeeded]": 1, podsFinished + " [NonIndexed failed]": 1, jobsFinished + " [NonIndexed failed BackoffLimitExceeded]": 1,
			podsTracked + " [add]": 1, podsTracked + " [delete]": 1, failuresHandled + " [Count]": 1,
		}},
		"an index": {func(j *batchv1.Job) { j.Spec.CompletionMode = of(batchv1.IndexedCompletion) }, corev1.PodSucceeded, map[string]float64{
			podsCreated + " [new succeeded]": 1, podsFinished + " [Indexed succeeded]": 1, indexesFinished + " [succeeded global]": 1,
			jobsFinished + " [Indexed succeeded CompletionsReached]": 1, podsTracked + " [add]": 1, podsTracked + " [delete]": 1,
		}},
	} {
		v, now, sums := View{Job: aJob(c.edit)}, reconciletest.Now, map[string]float64{}
		v.Job.Spec.Parallelism, v.Job.Spec.Completions = of(int32(1)), of(int32(1))
		for range 20 {
			d := decide(v, now)
			for _, f := range d.Figures {
				if !f.Failed && f.Value > 0 {
					sums[fmt.Sprint(f.Metric, " ", f.Labels)] += f.Value
				}
			}
			v, now = applied(v, d, now), now.Add(time.Second)
			for i, p := range v.Pods {
				v.Pods[i] = p.DeepCopy()
				v.Pods[i].Status.Phase = c.phase
				v.Pods[i].Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
			}
		}
		if fmt.Sprint(sums) != fmt.Sprint(c.want) {
			t.Errorf("%s counts as\n%v, want\n%v", what, sums, c.want)
		}
	}
}

// onDisruption returns a policy with one rule for disrupted pods.
func onDisruption(action batchv1.PodFailurePolicyAction) *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
	}}}
}

// An ignored failure is in no status: it counts in the metrics when its finalizer is
// removed, and so does a pod whose Job is deleted.
func TestWhatNoStatusHasIsCountedAsItIsLetGo(t *testing.T) {
	ignored := aPod("sum-a", corev1.PodFailed, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	})
	job := aJob(func(j *batchv1.Job) { j.Spec.PodFailurePolicy = onDisruption(batchv1.PodFailurePolicyActionIgnore) })
	for what, c := range map[string]struct {
		view View
		want []string
	}{
		"an ignored failure":     {View{Job: job, Pods: []*corev1.Pod{ignored}}, []string{podsTracked + " [delete]", podsTracked + " [add]", failuresHandled + " [Ignore]"}},
		"a pod without a Job":    {View{Stray: aPod("sum-x", corev1.PodSucceeded)}, []string{podsTracked + " [add]", podsTracked + " [delete]"}},
		"one that has not ended": {View{Stray: aPod("sum-x", corev1.PodRunning)}, nil},
	} {
		var got []string
		for _, f := range decide(c.view, now).In(events.LaneWrite).Figures {
			if f.Metric == podsTracked || f.Metric == failuresHandled {
				got = append(got, fmt.Sprint(f.Metric, " ", f.Labels))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s counts as %v, want %v", what, got, c.want)
		}
	}
}
