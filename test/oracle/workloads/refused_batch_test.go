package workloads_test

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

// TestRefusedCronJobsEndAsUpstreams refuses deletes for good only: upstream retries the delete of a Job at
// its next sync of the CronJob.
func TestRefusedCronJobsEndAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, workloads.CronJobAtRest, dueCronJobWorld, oracletest.Creates, oracletest.DeletesEver)
}

// dueCronJobWorld has no Job under the name of a run that has not begun: upstream would try again and again
// to create the Job of that run.
func dueCronJobWorld(t *rapid.T) []runtime.Object {
	exemption.Uses("run-unknown-to-status")
	exemption.Uses("cleared-at-the-next-look")
	return slices.DeleteFunc(cronJobWorld(t), func(obj runtime.Object) bool {
		job, ok := obj.(*batchv1.Job)
		return ok && len(job.Annotations) == 0
	})
}

// TestRefusedReportsOfCronJobsEndAsUpstreams refuses reports if no run begins and no Job is deleted: upstream
// forgets a run, and an end, whose report was refused.
func TestRefusedReportsOfCronJobsEndAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, workloads.CronJobAtRest, func(t *rapid.T) []runtime.Object {
		exemption.Uses("run-unknown-to-status")
		exemption.Uses("cleared-before-it-is-seen")
		world := cronJobWorld(t)
		spec := &world[0].(*batchv1.CronJob).Spec
		spec.Suspend, spec.SuccessfulJobsHistoryLimit, spec.FailedJobsHistoryLimit = oracletest.Ptr(true), nil, nil
		return world
	}, oracletest.Reports)
}

func TestRefusedPodsAreEndedAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, workloads.PodGCAtRest, lostPodWorld, oracletest.StatusPatches, oracletest.Deletes)
}

func TestRefusedEndedPodsGoAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, workloads.EndedPodsAtRest, endedPodsWorld, oracletest.Deletes)
}

func TestRefusedJobsEndAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, workloads.JobAtRest, lastingJobWorld, oracletest.Creates, oracletest.Patches, oracletest.Reports, oracletest.Deletes)
}

// lastingJobWorld has a Job whose deadline is later than the end of the test.
func lastingJobWorld(t *rapid.T) []runtime.Object {
	world := jobWorld(t)
	job := world[0].(*batchv1.Job)
	if job.Spec.ActiveDeadlineSeconds != nil && (job.Status.StartTime == nil || len(job.Status.Conditions) > 0) {
		exemption.Uses("deadline-where-none-is-created")
		job.Spec.ActiveDeadlineSeconds = oracletest.Ptr(int64(36000))
	}
	return world
}
