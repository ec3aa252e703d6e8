package cronjob

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide starts the run that is due, deletes old Jobs, and reports the active ones.
func decide(v View, now time.Time) reconcile.Decision {
	r := v.review(now)
	run := r.run()
	return reconcile.Join(run, r.clear(len(run.Commands) > 0 || !run.WakeAt.IsZero()), r.report())
}

// run decides about the next run of the schedule.
func (r *review) run() reconcile.Decision {
	cj := r.cronJob
	if cj.DeletionTimestamp != nil {
		return reconcile.Nothing("the CronJob is being deleted")
	}
	if zone := cj.Spec.TimeZone; zone != nil {
		if _, err := time.LoadLocation(*zone); err != nil {
			r.hint("UnknownTimeZone", *zone, fmt.Sprintf("invalid timeZone: %q: %s", *zone, err))
			return reconcile.Nothing("the time zone is unknown")
		}
	}
	if cj.Spec.Suspend != nil && *cj.Spec.Suspend {
		return reconcile.Nothing("the CronJob is suspended")
	}
	plan, err := parse(cj)
	if err != nil {
		r.hint("UnparseableSchedule", cj.Spec.Schedule, fmt.Sprintf("unparseable schedule: %q : %s", cj.Spec.Schedule, err))
		return reconcile.Nothing("the schedule is invalid")
	}
	if namesZone(cj) {
		r.hint("UnsupportedSchedule", cj.Spec.Schedule, fmt.Sprintf("CRON_TZ or TZ used in schedule %q is not officially supported, "+
			"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", cj.Spec.Schedule))
	}
	begin := cj.CreationTimestamp.Time
	if r.last != nil {
		begin = r.last.Time
	}
	next, ever := plan.next(begin)
	if !ever {
		r.hint("InvalidSchedule", cj.Spec.Schedule, "invalid schedule: "+cj.Spec.Schedule+" : time difference between two schedules is less than 1 second")
		return reconcile.Nothing("the schedule has no next run")
	}
	moment, missed := plan.last(begin, r.now)
	if !missed {
		return reconcile.Wake(next, "the next run is not due")
	}
	if !moment.After(r.schedule.Since) {
		next, _ = plan.next(moment)
		return reconcile.Wake(next, "the schedule was changed after its last run was due")
	}
	return r.start(plan, begin, moment)
}

// start starts a run that is due, if nothing prevents it. It is not tried again before
// the next scheduled time.
func (r *review) start(plan plan, begin, moment time.Time) reconcile.Decision {
	cj := r.cronJob
	next := time.Time{}
	if at, ever := plan.next(moment); ever {
		next = at
	}
	name := nameOf(cj, moment)
	if r.late(moment) {
		return reconcile.Wake(next, "the starting deadline of the last run has passed")
	}
	if cutoff, limited := r.cutoff(); plan.missed(later(begin, cutoff, limited), r.now) {
		r.hint("TooManyMissedTimes", name, "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	switch {
	case r.listed(name):
		return reconcile.Wake(next, "the last run has been started")
	case r.taken(name):
		return reconcile.Wake(next, "another owner's Job has the name of this run's")
	case cj.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(r.active) > 0:
		r.hint("JobAlreadyActive", name, "Not starting job because prior execution is running and concurrency policy is Forbid")
		return reconcile.Wake(next, "the previous run is active, and this run is skipped")
	case cj.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent && len(r.working()) > 0 && !r.said():
		return reconcile.Wake(next, "the previous run is active, and the status must record its start first")
	case cj.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent && len(r.working()) > 0:
		return reconcile.Do("the previous run is active, and this run replaces it", r.deletions(r.working())...)
	case r.exists(name):
		return reconcile.Wake(next, "the CronJob has a Job with the name of this run's")
	}
	d := reconcile.Do("a run is due", r.create(name, moment))
	d.Figures = []reconcile.Figure{{Metric: skew.Name, Value: r.now.Sub(moment).Seconds()}}
	d.WakeAt = next
	return d
}

// cutoff returns the time before which runs are not made up for.
func (r *review) cutoff() (at time.Time, limited bool) {
	seconds := r.cronJob.Spec.StartingDeadlineSeconds
	if seconds == nil {
		return time.Time{}, false
	}
	return r.now.Add(-time.Duration(*seconds) * time.Second), true
}

// late reports whether a run is past its deadline and is skipped.
//
// Upstream: a run exactly at the deadline is late.
func (r *review) late(moment time.Time) bool {
	at, limited := r.cutoff()
	return limited && !moment.After(at)
}

func later(begin, cutoff time.Time, limited bool) time.Time {
	if limited && cutoff.After(begin) {
		return cutoff
	}
	return begin
}

// listed reports whether a Job of this name is active.
func (r *review) listed(name string) bool {
	return slices.ContainsFunc(r.active, func(ref corev1.ObjectReference) bool { return ref.Name == name })
}

// exists reports whether the CronJob has a Job of this name, even one created by hand.
func (r *review) exists(name string) bool {
	return slices.ContainsFunc(r.jobs, func(job *batchv1.Job) bool { return job.Name == name })
}

// taken reports whether the last create of a run failed because another Job has its name. A
// conflict without a uid means that this Job was gone when the writer looked: the name is free again.
func (r *review) taken(name string) bool {
	for _, did := range r.did {
		if did.Status == events.Conflict && did.Ref.Name == name && did.UID != "" {
			return true
		}
	}
	return false
}

// hint adds an Event that is sent once and changes nothing. about distinguishes it from
// other Events with the same reason.
func (r *review) hint(reason, about, message string) {
	level := corev1.EventTypeWarning
	if reason == "JobAlreadyActive" {
		level = corev1.EventTypeNormal
	}
	r.hints = append(r.hints, hint{name: reason + " " + about, notice: r.notice(level, reason, message)})
}

// hint is an Event with a name by which a later turn recognises its outcome.
type hint struct {
	name   string
	notice *events.Notice
}
