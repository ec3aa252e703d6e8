package job

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// What a Job comes to is counted once on its way from its first pod to its end.
func TestAJobIsCountedOnce(t *testing.T) {
	for what, c := range map[string]struct {
		edit  func(*batchv1.Job)
		phase corev1.PodPhase
		want  map[string]float64
	}{
		"a good end": {func(*batchv1.Job) {}, corev1.PodSucceeded, map[string]float64{
			podsCreated + " [new succeeded]": 1, podsFinished + " [NonIndexed succeeded]": 1, jobsFinished + " [NonIndexed succeeded CompletionsReached]": 1,
		}},
		"a bad end": {func(j *batchv1.Job) { j.Spec.BackoffLimit = of(int32(0)) }, corev1.PodFailed, map[string]float64{
			podsCreated + " [new succeeded]": 1, podsFinished + " [NonIndexed failed]": 1, jobsFinished + " [NonIndexed failed BackoffLimitExceeded]": 1,
		}},
		"an index": {func(j *batchv1.Job) { j.Spec.CompletionMode = of(batchv1.IndexedCompletion) }, corev1.PodSucceeded, map[string]float64{
			podsCreated + " [new succeeded]": 1, podsFinished + " [Indexed succeeded]": 1, indexesFinished + " [succeeded global]": 1,
			jobsFinished + " [Indexed succeeded CompletionsReached]": 1,
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
			}
		}
		if fmt.Sprint(sums) != fmt.Sprint(c.want) {
			t.Errorf("%s counts as\n%v, want\n%v", what, sums, c.want)
		}
	}
}
