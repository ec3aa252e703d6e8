package workloads_test

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

func TestCronJobsEndAsUpstreamsDo(t *testing.T) {
	endAlike(t, workloads.CronJob, cronJobWorld)
}

func TestFinishedJobsEndAsUpstreamsDo(t *testing.T) {
	endAlike(t, workloads.TTLAfterFinished, finishedJobWorld)
}

// cronJobWorld is a CronJob with Jobs. Schedules are regular, because upstream loses runs of irregular ones,
// and "@every" comes without a deadline, with which it stops upstream. No run that has its scheduled time is
// newer than the status: upstream forgets a run whose report was lost, and ours adds it. Other Jobs of the
// CronJob have any name, even that of the run that is due.
func cronJobWorld(t *rapid.T) []runtime.Object {
	exemption.Uses("irregular-schedule")
	exemption.Uses("run-unknown-to-status")
	cj := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "nightly", UID: "uid-nightly", ResourceVersion: "1",
			CreationTimestamp: oracletest.Before(objects.Now, rapid.SampledFrom([]int{30, 4000, 90000}).Draw(t, "created")),
		},
		Spec: batchv1.CronJobSpec{
			Schedule: rapid.SampledFrom([]string{
				"* * * * *", "*/5 * * * *", "0 * * * *", "0 0 * * *", "30 4 * * *", "@every 50s", "0 0 31 2 *", "nonsense", "TZ=UTC 0 * * * *",
			}).Draw(t, "schedule"),
			ConcurrencyPolicy: rapid.SampledFrom([]batchv1.ConcurrencyPolicy{
				batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent,
			}).Draw(t, "policy"),
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": "nightly"}, Annotations: map[string]string{"note": "x"}},
				Spec:       batchv1.JobSpec{Parallelism: oracletest.Ptr(int32(1))},
			},
		},
	}
	if deadline := rapid.Bool().Draw(t, "deadline"); deadline && cj.Spec.Schedule == "@every 50s" {
		exemption.Uses("every-with-deadline")
	} else if deadline {
		cj.Spec.StartingDeadlineSeconds = oracletest.Ptr(int64(rapid.SampledFrom([]int{10, 200, 20000}).Draw(t, "seconds")))
	}
	if rapid.Bool().Draw(t, "limited") {
		cj.Spec.SuccessfulJobsHistoryLimit = oracletest.Ptr(int32(rapid.IntRange(0, 2).Draw(t, "well")))
		cj.Spec.FailedJobsHistoryLimit = oracletest.Ptr(int32(rapid.IntRange(0, 1).Draw(t, "badly")))
	}
	if rapid.IntRange(0, 3).Draw(t, "zone") == 3 {
		cj.Spec.TimeZone = oracletest.Ptr(rapid.SampledFrom([]string{"Europe/Berlin", "Asia/Tokyo", "Nowhere/Land"}).Draw(t, "which"))
	}
	if rapid.IntRange(0, 5).Draw(t, "suspended") == 5 {
		cj.Spec.Suspend = oracletest.Ptr(true)
	}
	if rapid.IntRange(0, 7).Draw(t, "deleted") == 7 {
		cj.DeletionTimestamp, cj.Finalizers = oracletest.Ptr(oracletest.Before(objects.Now, 1)), []string{metav1.FinalizerDeleteDependents}
	}
	world := []runtime.Object{cj}
	if rapid.IntRange(0, 3).Draw(t, "ran") > 0 {
		cj.Status.LastScheduleTime = oracletest.Ptr(oracletest.Before(objects.Now, rapid.SampledFrom([]int{60, 3600, 7200}).Draw(t, "ran before")))
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "jobs") {
		world = append(world, anyRun(t, cj, i))
	}
	if rapid.IntRange(0, 5).Draw(t, "one is gone") == 5 {
		cj.Status.Active = append(cj.Status.Active, corev1.ObjectReference{Kind: "Job", Namespace: "default", Name: "nightly-gone", UID: "gone"})
	}
	return world
}

// anyRun is a Job of a CronJob: an earlier run, or one that a user created.
func anyRun(t *rapid.T, cj *batchv1.CronJob, i int) *batchv1.Job {
	at := oracletest.Before(objects.Now, rapid.SampledFrom([]int{0, 60, 3600, 7200}).Draw(t, "scheduled before")+600*i)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprintf("nightly-%d", at.Unix()/60), UID: types.UID(fmt.Sprint("uid-run-", i)), ResourceVersion: "1",
		CreationTimestamp: at,
		OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(cj, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
	}}
	if rapid.IntRange(0, 2).Draw(t, "by hand") == 2 {
		job.Name = "nightly-" + rapid.SampledFrom([]string{"by-hand-", "", fmt.Sprint(objects.Now.Unix()), "20261123123"}).Draw(t, "under the name") + fmt.Sprint(i)
		job.Annotations = map[string]string{"cronjob.kubernetes.io/instantiate": "manual"}
	} else if last := cj.Status.LastScheduleTime; last != nil && !at.After(last.Time) {
		job.Annotations = map[string]string{batchv1.CronJobScheduledTimestampAnnotation: at.Format(time.RFC3339)}
	}
	if rapid.IntRange(0, 3).Draw(t, "ended") > 0 {
		end := oracletest.Before(objects.Now, rapid.IntRange(10, 3000).Draw(t, "ended before"))
		how := rapid.SampledFrom([]batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed}).Draw(t, "how")
		if rapid.IntRange(0, 4).Draw(t, "never began") < 4 {
			job.Status.StartTime = &at
		}
		if how == batchv1.JobComplete {
			job.Status.CompletionTime = &end
		}
		job.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue, LastTransitionTime: end}}
	}
	cleared := cj.Spec.SuccessfulJobsHistoryLimit != nil && len(job.Status.Conditions) > 0
	if cleared { // upstream does not see the end of a Job that it deletes at once
		exemption.Uses("cleared-before-it-is-seen")
	}
	if rapid.Bool().Draw(t, "listed") && !cleared {
		cj.Status.Active = append(cj.Status.Active, corev1.ObjectReference{
			APIVersion: "batch/v1", Kind: "Job", Namespace: "default", Name: job.Name, UID: job.UID, ResourceVersion: "1",
		})
	}
	return job
}

func finishedJobWorld(t *rapid.T) []runtime.Object {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sum", UID: "uid-sum", ResourceVersion: "1"}}
	if rapid.Bool().Draw(t, "mortal") {
		job.Spec.TTLSecondsAfterFinished = oracletest.Ptr(int32(rapid.SampledFrom([]int{0, 10, 3600}).Draw(t, "kept")))
	}
	if rapid.IntRange(0, 4).Draw(t, "deleted") == 4 {
		job.DeletionTimestamp, job.Finalizers = oracletest.Ptr(oracletest.Before(objects.Now, 1)), []string{metav1.FinalizerDeleteDependents}
	}
	for _, of := range []batchv1.JobConditionType{batchv1.JobSuspended, batchv1.JobSuccessCriteriaMet, batchv1.JobComplete, batchv1.JobFailed} {
		if rapid.Bool().Draw(t, string(of)) {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
				Type: of, Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "True", "False"}).Draw(t, "status"),
				LastTransitionTime: oracletest.Before(objects.Now, rapid.SampledFrom([]int{1, 11, 3590, 3601}).Draw(t, "when")),
			})
		}
	}
	return []runtime.Object{job}
}
