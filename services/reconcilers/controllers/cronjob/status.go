package cronjob

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	jobs "github.com/millrace/millrace/services/reconcilers/kube/job"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// review is what the Jobs mean for the status.
type review struct {
	cronJob *batchv1.CronJob
	jobs    []*batchv1.Job // sorted by name
	did     []events.Result
	told    []string
	now     time.Time
	noted   *note
	// schedule is the new note about the schedule.
	schedule note

	active []corev1.ObjectReference
	last   *metav1.Time // time of the last run
	well   *metav1.Time // end of the last successful one
	news   []*events.Notice
	hints  []hint
}

// review evaluates the Jobs.
func (v View) review(now time.Time) *review {
	r := &review{
		cronJob: v.CronJob, jobs: slices.Clone(v.Jobs), did: v.Did, told: v.Told, now: now,
		noted: v.Noted, schedule: v.schedule(now),
		last: v.CronJob.Status.LastScheduleTime, well: v.CronJob.Status.LastSuccessfulTime,
	}
	slices.SortFunc(r.jobs, func(a, b *batchv1.Job) int {
		return slices.Compare([]string{a.Name, string(a.UID)}, []string{b.Name, string(b.UID)})
	})
	if r.wrong() {
		r.heal()
	}
	r.keep()
	begin := r.begin()
	for _, job := range r.jobs {
		r.child(job, begin)
	}
	r.created(begin)
	return r
}

// wrong reports whether the status has a lastScheduleTime in the future, beyond any clock skew.
func (r *review) wrong() bool {
	last := r.cronJob.Status.LastScheduleTime
	return last != nil && !r.reached(last.Time)
}

// reached reports whether a time has come, allowing for clock skew.
func (r *review) reached(moment time.Time) bool { return !moment.After(r.now.Add(ahead)) }

// heal takes the time of the last run from the existing Jobs, instead of from a status
// that would prevent all runs until then. Without such a Job the schedule counts from the
// creation of the CronJob, as before the first run.
func (r *review) heal() {
	r.last = nil
	for _, job := range r.jobs {
		if moment, ours := momentOf(r.cronJob, job); ours && r.reached(moment) {
			r.reach(moment)
		}
	}
	r.tell(corev1.EventTypeWarning, "InvalidLastScheduleTime", fmt.Sprintf(
		"status.lastScheduleTime %s is in the future, and is set back to that of the last run that is known; missed runs count from then",
		r.cronJob.Status.LastScheduleTime.UTC().Format(time.RFC3339)))
}

// begin returns the time after which runs are new.
func (r *review) begin() time.Time {
	if r.last != nil {
		return r.last.Time
	}
	return r.cronJob.CreationTimestamp.Add(-time.Minute) // names of Jobs have minutes only
}

// keep keeps those Jobs of status.active that are still active.
func (r *review) keep() {
	for _, ref := range r.cronJob.Status.Active {
		job, there := r.job(ref.UID)
		end, over := batchv1.JobCondition{}, false
		if there {
			end, over = jobs.Finished(job)
		}
		switch {
		case r.deleted(ref.UID), there && r.replaced(job):
			// this controller did that, and its delete has sent an Event
		case !there:
			r.tell(corev1.EventTypeNormal, "MissingJob", "Active job went missing: "+ref.Name)
		case over:
			r.tell(corev1.EventTypeNormal, "SawCompletedJob", fmt.Sprintf("Saw completed job: %s, condition: %s", ref.Name, end.Type))
		case r.wrong() && job.Annotations[byHand] == manual:
			// the manual Job that made the status wrong is no run
		default:
			r.active = append(r.active, ref)
		}
	}
}

// child evaluates a Job that status.active may lack, and updates the time of the last success.
func (r *review) child(job *batchv1.Job, begin time.Time) {
	end, over := jobs.Finished(job)
	if at := job.Status.CompletionTime; over && end.Type == batchv1.JobComplete && at != nil && (r.well == nil || at.After(r.well.Time)) {
		r.well = at
	}
	listed := slices.ContainsFunc(r.cronJob.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job.UID })
	moment, ours := momentOf(r.cronJob, job)
	switch news := ours && moment.After(begin) && r.reached(moment); {
	case listed && news:
		r.reach(moment) // another program has changed the status
	case listed:
	case news:
		r.take(job, moment)
	case !over && !r.deleted(job.UID) && !r.replaced(job):
		r.hints = append(r.hints, hint{name: "UnexpectedJob " + string(job.UID), notice: r.notice(corev1.EventTypeWarning,
			"UnexpectedJob", "Saw a job that the controller did not create or forgot: "+job.Name)})
	}
}

// take records a Job as the run of its time: it is active, or has ended.
func (r *review) take(job *batchv1.Job, moment time.Time) {
	if end, over := jobs.Finished(job); over {
		r.tell(corev1.EventTypeNormal, "SawCompletedJob", fmt.Sprintf("Saw completed job: %s, condition: %s", job.Name, end.Type))
	} else {
		r.active = append(r.active, reconcile.About(kinds.Jobs.Kind, job))
	}
	r.reach(moment)
}

// created records a run whose Job the last turn created, if that Job no longer exists.
func (r *review) created(begin time.Time) {
	for _, did := range r.did {
		moment, ours := minuteOf(r.cronJob, did.Ref.Name)
		if ours && did.OK() && !did.Removed && moment.After(begin) && r.reached(moment) && r.absent(did.UID) {
			r.reach(moment)
		}
	}
}

func (r *review) reach(moment time.Time) {
	if r.last == nil || moment.After(r.last.Time) {
		at := metav1.NewTime(moment)
		r.last = &at
	}
}

// said reports whether the status has the last run. Until it does, only the Jobs and the
// results of the last turn show that the run has begun, so no Job is deleted.
func (r *review) said() bool { return r.last.Equal(r.cronJob.Status.LastScheduleTime) }

func (r *review) job(uid types.UID) (*batchv1.Job, bool) {
	at := slices.IndexFunc(r.jobs, func(job *batchv1.Job) bool { return job.UID == uid })
	if at < 0 {
		return nil, false
	}
	return r.jobs[at], true
}

func (r *review) absent(uid types.UID) bool {
	_, there := r.job(uid)
	return !there
}

// deleted reports whether the last turn deleted a Job.
func (r *review) deleted(uid types.UID) bool {
	return slices.ContainsFunc(r.did, func(did events.Result) bool { return did.OK() && did.Removed && did.UID == uid })
}

// replaced reports whether a Job is being deleted in favour of the next run.
func (r *review) replaced(job *batchv1.Job) bool {
	return r.cronJob.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent && job.DeletionTimestamp != nil
}

// working returns the active Jobs that exist and are not terminating.
func (r *review) working() []*batchv1.Job {
	var working []*batchv1.Job
	for _, ref := range r.active {
		if job, there := r.job(ref.UID); there && job.DeletionTimestamp == nil {
			working = append(working, job)
		}
	}
	return working
}

func (r *review) tell(level, reason, message string) {
	r.news = append(r.news, r.notice(level, reason, message))
}

// report updates the status if it differs, and sends the new Events.
func (r *review) report() reconcile.Decision {
	status := *r.cronJob.Status.DeepCopy()
	status.Active, status.LastScheduleTime, status.LastSuccessfulTime = r.active, r.last, r.well
	if equality.Semantic.DeepEqual(status, r.cronJob.Status) {
		return r.record()
	}
	cj := *r.cronJob // shallow: the parts are only read
	cj.TypeMeta = metav1.TypeMeta{APIVersion: kinds.CronJobs.APIVersion(), Kind: kinds.CronJobs.Kind.Kind}
	cj.Status = status
	d := reconcile.Do("the status has changed", reconcile.UpdateStatus(kinds.CronJobs.Kind, &cj))
	for _, n := range r.news {
		d.Commands = append(d.Commands, reconcile.Record(*n))
	}
	d.Commands = append(d.Commands, r.records()...)
	d.Sure = true
	return d
}

// record sends the Events that are sent once, and notes the schedule. It repeats all of
// them or none, because the memory keeps only the last report.
func (r *review) record() reconcile.Decision {
	switch {
	case slices.ContainsFunc(r.hints, func(h hint) bool { return !slices.Contains(r.told, h.name) }):
		return reconcile.Do("there are Events to record", r.records()...)
	case r.cronJob.DeletionTimestamp == nil && (r.noted == nil || *r.noted != r.schedule):
		return reconcile.Do("the new schedule is recorded", r.records()...)
	default:
		return reconcile.Decision{}
	}
}

func (r *review) records() []events.Command {
	var commands []events.Command
	for _, h := range r.hints {
		c := reconcile.Record(*h.notice)
		c.Kind, c.Version, c.Namespace, c.Name = kinds.Events.Name, kinds.Events.Version, r.cronJob.Namespace, h.name
		commands = append(commands, c)
	}
	return append(commands, events.Command{Verb: events.VerbRecord, Note: reconcile.Body(r.schedule)})
}
