package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// report updates the status if it differs. A report that counts pods sets Sure, because
// it must count each pod once. A report that the Job ends, and why, sets ReportFirst: it
// must be seen before any pod is deleted.
func (s *sight) report() reconcile.Decision {
	w := &writing{sight: s, status: *s.job.Status.DeepCopy()}
	if w.status.UncountedTerminatedPods == nil {
		w.status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	w.start()
	w.numbers()
	progress := *w.status.DeepCopy()
	w.count()
	w.list()
	w.indexes()
	w.suspend()
	w.finish()
	had := *s.job.Status.DeepCopy()
	if had.UncountedTerminatedPods == nil {
		had.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if equality.Semantic.DeepEqual(w.status, had) {
		return reconcile.Decision{}
	}
	job := *s.job // shallow: the parts are only read
	job.TypeMeta = metav1.TypeMeta{APIVersion: kinds.Jobs.APIVersion(), Kind: kinds.Jobs.Kind.Kind}
	job.Status = w.status
	because, ends := "the status has changed", s.end != nil && !s.end.announced
	if ends {
		because = "the Job's end is recorded before its pods are deleted"
	}
	d := reconcile.Do(because, reconcile.UpdateStatus(kinds.Jobs.Kind, &job, reconcile.WithEvents(w.told, nil)))
	d.Figures = w.figures(had, d.Commands[0].Ref())
	for _, more := range w.more {
		d.Commands = append(d.Commands, reconcile.Record(more))
	}
	d.Sure = !equality.Semantic.DeepEqual(w.status, progress)
	d.ReportFirst = ends
	return d
}

// writing is a status update under construction.
type writing struct {
	*sight
	status batchv1.JobStatus
	told   *events.Notice  // Event to send once the update is applied
	more   []events.Notice // further Events
	noted  []*corev1.Pod   // newly listed as uncounted or completed
}

// moment returns the current time in whole seconds, as the API stores it.
func (w *writing) moment() metav1.Time { return metav1.NewTime(w.now.Truncate(time.Second)) }

// start sets the start time.
func (w *writing) start() {
	if w.status.StartTime == nil && !w.suspended() {
		at := w.moment()
		w.status.StartTime = &at
	}
}

// numbers sets the counts of active, ready and terminating pods.
func (w *writing) numbers() {
	ready, leaving := int32(w.ready), int32(len(w.leaving))
	w.status.Active, w.status.Ready, w.status.Terminating = int32(len(w.active)), &ready, &leaving
}

// count moves pods without the finalizer from the list of uids to the counters.
func (w *writing) count() {
	kept := map[types.UID]bool{}
	for _, p := range w.pods {
		if counted(p) {
			kept[p.UID] = true
		}
	}
	gone := func(uid types.UID) bool { return !kept[uid] }
	waiting := w.status.UncountedTerminatedPods
	succeeded, failed := len(waiting.Succeeded), len(waiting.Failed)
	waiting.Succeeded = slices.DeleteFunc(waiting.Succeeded, gone)
	waiting.Failed = slices.DeleteFunc(waiting.Failed, gone)
	w.status.Succeeded += int32(succeeded - len(waiting.Succeeded))
	w.status.Failed += int32(failed - len(waiting.Failed))
}

// list adds pods that have ended to the status, so that their finalizers can be removed.
func (w *writing) list() {
	waiting, done := w.status.UncountedTerminatedPods, []int(nil)
	for _, p := range w.pods {
		if len(done)+len(waiting.Succeeded)+len(waiting.Failed) >= Burst {
			break // the next report has room again, once these are counted
		}
		if !counted(p) || !w.over(p) {
			continue
		}
		switch {
		case w.succeeds(p) && w.indexed():
			index, _ := indexOf(p)
			done = append(done, index)
		case w.succeeds(p):
			waiting.Succeeded = append(waiting.Succeeded, p.UID)
		case w.fails(p):
			waiting.Failed = append(waiting.Failed, p.UID)
		default:
			continue
		}
		w.noted = append(w.noted, p)
	}
	if w.indexed() {
		all := w.listedIndexes.with(each(done))
		w.status.CompletedIndexes, w.status.Succeeded = all.String(), int32(all.count())
	}
}

// indexes sets status.failedIndexes, the indexes that are not retried.
func (w *writing) indexes() {
	if !w.indexed() {
		return
	}
	w.status.FailedIndexes = nil
	if w.perIndex() {
		lost := w.lost.String()
		w.status.FailedIndexes = &lost
	}
}

// suspend sets the condition Suspended. Resuming a Job restarts its clock. The condition
// becomes true only once the active pods are deleted, unless a delete was refused: the
// API server lets users change the resources of a suspended Job only while its status
// counts no active pods.
//
// Upstream: pkg/controller/job, syncJob deletes the pods and then writes the condition and
// the count together. A Job that is about to end or to be deleted does not say so any more.
func (w *writing) suspend() {
	if w.end != nil || w.job.DeletionTimestamp != nil {
		return
	}
	if !w.suspended() {
		if w.set(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed") {
			at := w.moment()
			w.status.StartTime = &at
			w.told = w.notice(corev1.EventTypeNormal, "Resumed", "Job resumed")
		}
		return
	}
	if len(w.active) > 0 && w.view.Attempt == 0 {
		return
	}
	if w.set(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended") {
		if w.view.Gates.On(gate.MutableSchedulingDirectivesForSuspendedJobs) {
			w.status.StartTime = nil
		}
		w.told = w.notice(corev1.EventTypeNormal, "Suspended", "Job suspended")
	}
}

// finish sets the target condition of a Job that must end, and its final condition once
// nothing is left to count.
func (w *writing) finish() {
	if w.end == nil {
		return
	}
	if !w.end.announced {
		w.set(w.end.target, corev1.ConditionTrue, w.end.reason, w.end.message)
		return
	}
	waiting := w.status.UncountedTerminatedPods
	if len(w.active)+len(w.leaving)+len(waiting.Succeeded)+len(waiting.Failed) > 0 || slices.ContainsFunc(w.pods, counted) {
		return
	}
	if w.end.failed() {
		w.set(batchv1.JobFailed, corev1.ConditionTrue, w.end.reason, w.end.message)
		w.told = w.notice(corev1.EventTypeWarning, w.end.reason, w.end.message)
		return
	}
	w.set(batchv1.JobComplete, corev1.ConditionTrue, w.end.reason, w.end.message)
	at := w.moment()
	w.status.CompletionTime = &at
	w.told = w.notice(corev1.EventTypeNormal, "Completed", "Job completed")
	if w.job.Spec.Completions != nil && w.status.Succeeded > *w.job.Spec.Completions {
		w.more = append(w.more, *w.notice(corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"))
	}
}

// set sets a condition. changed is false if the condition has these values already, or if
// it is missing and would be False.
func (w *writing) set(of batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) (changed bool) {
	at := slices.IndexFunc(w.status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == of })
	next := batchv1.JobCondition{
		Type: of, Status: status, Reason: reason, Message: message, LastProbeTime: w.moment(), LastTransitionTime: w.moment(),
	}
	if at < 0 {
		if status == corev1.ConditionFalse {
			return false
		}
		w.status.Conditions = append(w.status.Conditions, next)
		return true
	}
	had := w.status.Conditions[at]
	if had.Status == status && had.Reason == reason && had.Message == message {
		return false
	}
	w.status.Conditions[at] = next
	return true
}
