package oracle_test

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle"
)

// The kinds of requests that may be refused.
var (
	creates       = oracle.Refusal{Verb: plan.Create}
	updates       = oracle.Refusal{Verb: plan.Update}
	reports       = oracle.Refusal{Verb: plan.Update, Status: true}
	patches       = oracle.Refusal{Verb: plan.Patch}
	statusPatches = oracle.Refusal{Verb: plan.Patch, Status: true}
	deletes       = oracle.Refusal{Verb: plan.Delete}
	deletesEver   = oracle.Refusal{Verb: plan.Delete, Times: 1 << 30}
)

// restAlike searches for a world in which both come to different ends if some requests are refused.
func restAlike(t *testing.T, rest oracle.Rest, worlds func(*rapid.T) []runtime.Object, requests ...oracle.Refusal) {
	fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		world, refusal := worlds(r), refusalOf(r, requests)
		diff, err := rest.Compare(t, world, refusal)
		if err != nil {
			r.Fatalf("%v: %v\n%s", refusal, err, page(r, world))
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) come to different ends where is refused: %v\n%s\n%s", refusal, diff, page(r, world))
		}
	})
}

// refusalOf refuses one kind of request, temporarily or for good.
func refusalOf(t *rapid.T, requests []oracle.Refusal) oracle.Refusal {
	r := rapid.SampledFrom(requests).Draw(t, "refused")
	times := []int{0, 1, 2, 1 << 30}
	if r.Times > 0 {
		times = []int{0, r.Times}
	}
	r.Times = rapid.SampledFrom(times).Draw(t, "times")
	r.Answer = rapid.SampledFrom(oracle.Refusals(r.Verb)).Draw(t, "answer")
	switch {
	case oracle.Lasting(r.Answer):
		r.Times = 1 << 30
	case oracle.Passing(r.Verb, r.Answer):
		r.Times = min(r.Times, 2)
	}
	return r
}

// TestRefusedCronJobsEndAsUpstreams refuses deletes for good only: upstream retries the delete of a Job at
// its next sync of the CronJob.
func TestRefusedCronJobsEndAsUpstreams(t *testing.T) {
	restAlike(t, oracle.CronJobAtRest, dueCronJobWorld, creates, deletesEver)
}

// dueCronJobWorld has no Job under the name of a run that has not begun: upstream would try again and again
// to create the Job of that run.
func dueCronJobWorld(t *rapid.T) []runtime.Object {
	oracle.Uses("run-unknown-to-status")
	oracle.Uses("cleared-at-the-next-look")
	return slices.DeleteFunc(cronJobWorld(t), func(obj runtime.Object) bool {
		job, ok := obj.(*batchv1.Job)
		return ok && len(job.Annotations) == 0
	})
}

// TestRefusedReportsOfCronJobsEndAsUpstreams refuses reports if no run begins and no Job is deleted: upstream
// forgets a run, and an end, whose report was refused.
func TestRefusedReportsOfCronJobsEndAsUpstreams(t *testing.T) {
	restAlike(t, oracle.CronJobAtRest, func(t *rapid.T) []runtime.Object {
		oracle.Uses("run-unknown-to-status")
		oracle.Uses("cleared-before-it-is-seen")
		world := cronJobWorld(t)
		spec := &world[0].(*batchv1.CronJob).Spec
		spec.Suspend, spec.SuccessfulJobsHistoryLimit, spec.FailedJobsHistoryLimit = of(true), nil, nil
		return world
	}, reports)
}

func TestRefusedPodsAreEndedAsUpstreams(t *testing.T) {
	restAlike(t, oracle.PodGCAtRest, lostPodWorld, statusPatches, deletes)
}

func TestRefusedEndedPodsGoAsUpstreams(t *testing.T) {
	restAlike(t, oracle.EndedPodsAtRest, endedPodsWorld, deletes)
}

func TestRefusedEphemeralVolumesAreAsUpstreams(t *testing.T) {
	restAlike(t, oracle.EphemeralVolumeAtRest, ephemeralWorld, creates)
}

func TestRefusedJobsEndAsUpstreams(t *testing.T) {
	restAlike(t, oracle.JobAtRest, lastingJobWorld, creates, patches, reports, deletes)
}

// lastingJobWorld has a Job whose deadline is later than the end of the test.
func lastingJobWorld(t *rapid.T) []runtime.Object {
	world := jobWorld(t)
	job := world[0].(*batchv1.Job)
	if job.Spec.ActiveDeadlineSeconds != nil && (job.Status.StartTime == nil || len(job.Status.Conditions) > 0) {
		oracle.Uses("deadline-where-none-is-created")
		job.Spec.ActiveDeadlineSeconds = of(int64(36000))
	}
	return world
}
