package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	jobs "github.com/millrace/millrace/services/reconcilers/kube/job"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide adopts and releases pods, creates or deletes pods, removes the finalizer from
// counted pods, and updates the status.
func decide(v View, now time.Time) reconcile.Decision {
	if v.Stray != nil {
		return v.free()
	}
	selector, selects := label.Selector(v.Job.Spec.Selector)
	_, over := jobs.Finished(v.Job)
	switch {
	case elsewhere(v.Job):
		return reconcile.Nothing("another controller manages the Job")
	case over:
		return reconcile.Nothing("the Job has finished")
	case !known(v.Job.Spec.CompletionMode):
		return v.unknown()
	case !selects:
		return reconcile.Nothing("the selector is invalid or empty")
	}
	claim := owner.Claims(owner.Claimant{
		Kind: kinds.Jobs.Kind, Owner: v.Job, Selector: selector, Finalizer: batchv1.JobTrackingFinalizer,
	}, kinds.Pods, v.Pods)
	if len(claim.Commands) > 0 {
		return v.handOn(reconcile.Do("pods are adopted or released", claim.Commands[:min(len(claim.Commands), Burst)]...), claims)
	}
	s := look(v, claim.Mine, now)
	d := reconcile.Join(s.counted(s.scale()), s.letGo(), s.report(), s.nextDeadline(), reconcile.Nothing("the number of pods is as desired"))
	return v.handOn(d, note{})
}

// known reports whether this controller supports a completion mode. Today's API server
// admits no others; a newer one may.
func known(mode *batchv1.CompletionMode) bool {
	return mode == nil || *mode == batchv1.NonIndexedCompletion || *mode == batchv1.IndexedCompletion
}

// unknown sends one Event for each version of a Job whose completion mode is unsupported,
// and does nothing else.
//
// Upstream: the Event is sent at every sync.
func (v View) unknown() reconcile.Decision {
	const because = "the completion mode is unknown"
	if v.Told {
		return reconcile.Nothing(because)
	}
	return reconcile.Do(because, reconcile.Record(*(&sight{job: v.Job}).notice(corev1.EventTypeWarning,
		"UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")))
}

// letGo removes the finalizer from pods whose end is in the status.
func (s *sight) letGo() reconcile.Decision {
	if s.end != nil && !s.end.announced {
		return reconcile.Decision{} // the status must say why the Job ends first
	}
	var d reconcile.Decision
	for _, p := range s.pods {
		if counted(p) && s.over(p) && !s.uncounted(p) && !s.unlost(p) && len(d.Commands) < Burst {
			d.Because, d.Commands = "pods are counted", append(d.Commands, release(p))
			d.Figures = append(d.Figures, s.released(p)...)
		}
	}
	return d
}

// over reports whether a pod can no longer change how it counts, so that the finalizer need not keep it.
func (s *sight) over(p *corev1.Pod) bool {
	switch index, _ := indexOf(p); {
	case s.job.DeletionTimestamp != nil, p.Status.Phase == corev1.PodSucceeded:
		return true
	case s.end != nil:
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed
	case !s.hasFailed(p):
		return false
	default:
		return s.retained[index] != p
	}
}

// uncounted reports whether the status lacks a pod that is over and that it must have.
func (s *sight) uncounted(p *corev1.Pod) bool { return s.succeeds(p) || s.fails(p) }

// unlost reports whether a pod is the reason why its index is not retried, and the status
// does not list the index yet. Once the pod is deleted, nothing else records that.
func (s *sight) unlost(p *corev1.Pod) bool {
	index, _ := indexOf(p)
	return s.perIndex() && s.lost.has(index) && !s.listedLost.has(index) && s.valid(p) && s.exhausted(p)
}

// succeeds reports whether a pod has succeeded and the status does not say so.
func (s *sight) succeeds(p *corev1.Pod) bool {
	index, _ := indexOf(p)
	switch {
	case p.Status.Phase != corev1.PodSucceeded, s.dismissed(p), s.listed.failed[p.UID]:
		return false
	case s.indexed():
		return s.valid(p) && !s.listedIndexes.has(index)
	default:
		return !s.listed.succeeded[p.UID]
	}
}

// fails reports whether the status lacks the failure of a pod: the pod failed, or the
// failure of its Job ends it.
func (s *sight) fails(p *corev1.Pod) bool {
	switch {
	case p.Status.Phase == corev1.PodSucceeded, s.dismissed(p), s.listed.failed[p.UID], !s.valid(p):
		return false
	case !s.hasFailed(p) && (s.end == nil || !s.end.failed()):
		return false
	default:
		return s.verdict(p).counts
	}
}

// nextDeadline requests a wake at the deadline of the Job.
func (s *sight) nextDeadline() reconcile.Decision {
	if at, limited := s.deadline(); limited && s.end == nil {
		return reconcile.Wake(at, "the Job has a deadline")
	}
	return reconcile.Decision{}
}
