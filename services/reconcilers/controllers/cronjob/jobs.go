package cronjob

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	jobs "github.com/millrace/millrace/services/reconcilers/kube/job"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// skew is the delay between the scheduled time and the start of a Job.
//
// Upstream: pkg/controller/cronjob/metrics, which takes the Job's creation for the
// start.
var skew = reconcile.Metric{
	Name:    "cronjob_controller_job_creation_skew_duration_seconds",
	Help:    "Time between a scheduled run and the creation of its Job.",
	Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
}

// nameOf returns the name of the Job of a run: the CronJob's name, and the scheduled time in minutes.
func nameOf(cj *batchv1.CronJob, moment time.Time) string {
	return cj.Name + "-" + strconv.FormatInt(moment.Unix()/60, 10)
}

// byHand is the annotation that kubectl create job --from sets, with the value manual.
const (
	byHand = "cronjob.kubernetes.io/instantiate"
	manual = "manual"
)

// ahead is the maximum clock skew: how far the clock that started a run may be ahead of
// the clock that judges it.
const ahead = 5 * time.Minute

// momentOf returns the scheduled time of a Job; ok is false if this controller did not
// create the Job. The Job's annotation has the time, and must agree with its name.
func momentOf(cj *batchv1.CronJob, job *batchv1.Job) (moment time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	if err != nil || nameOf(cj, at) != job.Name {
		return time.Time{}, false
	}
	return at.UTC(), true
}

// minuteOf returns the scheduled time, to the minute, in the name of a Job that this
// controller created.
func minuteOf(cj *batchv1.CronJob, name string) (moment time.Time, ok bool) {
	minutes, found := strings.CutPrefix(name, cj.Name+"-")
	n, err := strconv.ParseInt(minutes, 10, 64)
	if !found || err != nil {
		return time.Time{}, false
	}
	return time.Unix(n*60, 0).UTC(), true
}

// create returns the create of the Job of a run.
//
// Upstream: getJobFromTemplate2 in pkg/controller/cronjob/utils.go.
func (r *review) create(name string, moment time.Time) events.Command {
	zone := time.UTC
	if in := r.cronJob.Spec.TimeZone; in != nil {
		if at, err := time.LoadLocation(*in); err == nil {
			zone = at
		}
	}
	t := &r.cronJob.Spec.JobTemplate
	body := reconcile.Body(&batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: kinds.Jobs.APIVersion(), Kind: kinds.Jobs.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Labels:          t.Labels,
			Annotations:     label.With(t.Annotations, batchv1.CronJobScheduledTimestampAnnotation, moment.In(zone).Format(time.RFC3339)),
			OwnerReferences: []metav1.OwnerReference{owner.Reference(kinds.CronJobs.Kind, r.cronJob)},
		},
		Spec: t.Spec,
	})
	return reconcile.Create(kinds.Jobs.Kind, r.cronJob.Namespace, name, body, reconcile.WithEvents(
		r.notice(corev1.EventTypeNormal, "SuccessfulCreate", "Created job {name}"),
		r.notice(corev1.EventTypeWarning, "FailedCreate", "Error creating job: {error}"),
	))
}

// deletions returns the deletes of Jobs; the garbage collector deletes their pods in the background.
func (r *review) deletions(toDelete []*batchv1.Job) []events.Command {
	commands := make([]events.Command, 0, len(toDelete))
	for _, job := range toDelete {
		commands = append(commands, reconcile.Delete(kinds.Jobs.Kind, job, reconcile.Propagate(metav1.DeletePropagationBackground), reconcile.WithEvents(
			r.notice(corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job {name}"),
			r.notice(corev1.EventTypeWarning, "FailedDelete", "Deleted job: {error}"),
		)))
	}
	return commands
}

// clear deletes the oldest ended Jobs beyond the history limits, once the status has the
// last run. While a run is due or scheduled, it does not retry a refused delete: repeated
// failures lengthen the key's back-off, which would delay the run as well.
func (r *review) clear(runs bool) reconcile.Decision {
	if !r.said() {
		return reconcile.Decision{}
	}
	spec := r.cronJob.Spec
	ended := slices.Concat(r.excess(batchv1.JobComplete, spec.SuccessfulJobsHistoryLimit), r.excess(batchv1.JobFailed, spec.FailedJobsHistoryLimit))
	if len(ended) == 0 || runs && slices.ContainsFunc(ended, r.stays) {
		return reconcile.Decision{}
	}
	return reconcile.Do("there are more finished Jobs than the history limit", r.deletions(ended)...)
}

// stays reports whether the API server refused to delete a Job in the last turn. A writer that skips
// the delete, or refuses the turn as stale, has not asked it.
func (r *review) stays(job *batchv1.Job) bool {
	return slices.ContainsFunc(r.did, func(did events.Result) bool {
		asked := did.Status != events.Skipped && (did.Status != events.Refused || did.Reason != "Stale")
		return did.Ref.Name == job.Name && !did.OK() && asked
	})
}

func (r *review) excess(how batchv1.JobConditionType, kept *int32) []*batchv1.Job {
	if kept == nil {
		return nil
	}
	var ended []*batchv1.Job
	for _, job := range r.jobs {
		if end, ok := jobs.Finished(job); ok && end.Type == how && job.DeletionTimestamp == nil {
			ended = append(ended, job)
		}
	}
	slices.SortFunc(ended, oldestFirst)
	return ended[:max(0, len(ended)-max(0, int(*kept)))]
}

// oldestFirst sorts Jobs without a start time last.
func oldestFirst(a, b *batchv1.Job) int {
	beganA, beganB := a.Status.StartTime, b.Status.StartTime
	switch {
	case beganA != nil && beganB == nil:
		return -1
	case beganA == nil && beganB != nil:
		return 1
	case beganA != nil && !beganA.Equal(beganB):
		return beganA.Compare(beganB.Time)
	default:
		return cmp.Compare(a.Name, b.Name)
	}
}

// notice returns an Event about the CronJob.
func (r *review) notice(level, reason, message string) *events.Notice {
	return &events.Notice{About: reconcile.About(kinds.CronJobs.Kind, r.cronJob), Type: level, Reason: reason, Message: message}
}
