package job

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/services/reconcilers/kube/pod"
)

// sight is everything derived from the view of a Job and its pods.
type sight struct {
	job  *batchv1.Job
	now  time.Time
	view View

	pods   []*corev1.Pod // the pods that the Job controls, ordered by index if they have one
	active []*corev1.Pod
	ready  int
	// leaving are the terminating pods that have not ended.
	leaving []*corev1.Pod

	// listed are the uids in status.uncountedTerminatedPods.
	listed struct{ succeeded, failed map[types.UID]bool }
	// succeeded and failed are the numbers of pods that ended well and badly, including
	// those that the status has not counted yet.
	succeeded, failed int
	// done are the indexes that succeeded, listedIndexes those of them in the status.
	// lost are the indexes that will not be retried, listedLost those of them in the status.
	done, listedIndexes, lost, listedLost indexes
	// retained are the failed pods, by index, that keep their finalizer until a
	// replacement exists, because the replacement continues their count of failures.
	retained map[int]*corev1.Pod
	// end is why the Job must end; nil if it must not.
	end *ending
	// names are the names of all pods of the view; nil until taken is called.
	names map[string]bool
}

// look derives a sight from the view. pods are the pods that the Job controls and selects.
func look(v View, pods []*corev1.Pod, now time.Time) *sight {
	s := &sight{job: v.Job, now: now, view: v, pods: slices.Clone(pods)}
	slices.SortStableFunc(s.pods, byIndex)
	for _, p := range s.pods {
		switch {
		case pod.Active(p):
			s.active = append(s.active, p)
			if pod.Ready(p) {
				s.ready++
			}
		case pod.Terminating(p):
			s.leaving = append(s.leaving, p)
		}
	}
	s.tally()
	if s.indexed() {
		s.lookAtIndexes()
	}
	s.end = s.ending()
	return s
}

// byIndex orders pods by index, those without one first, and pods of the same index by
// name. The order of the input does not matter.
func byIndex(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.Name, b.Name))
}

func place(p *corev1.Pod) int {
	if index, ok := indexOf(p); ok {
		return index
	}
	return -1
}

// tally counts the pods that have ended.
func (s *sight) tally() {
	s.listed.succeeded, s.listed.failed = map[types.UID]bool{}, map[types.UID]bool{}
	if waiting := s.job.Status.UncountedTerminatedPods; waiting != nil {
		for _, uid := range waiting.Succeeded {
			s.listed.succeeded[uid] = true
		}
		for _, uid := range waiting.Failed {
			s.listed.failed[uid] = true
		}
	}
	s.succeeded = int(s.job.Status.Succeeded) + len(s.listed.succeeded)
	s.failed = int(s.job.Status.Failed) + len(s.listed.failed)
	for _, p := range s.pods {
		if !counted(p) || !s.valid(p) || s.dismissed(p) {
			continue
		}
		if p.Status.Phase == corev1.PodSucceeded && !s.listed.succeeded[p.UID] && !s.listed.failed[p.UID] {
			s.succeeded++
		}
		if s.hasFailed(p) && !s.listed.failed[p.UID] && s.verdict(p).counts {
			s.failed++
		}
	}
}

// lookAtIndexes derives the completed, failed and retained indexes.
func (s *sight) lookAtIndexes() {
	limit := s.completions()
	s.listedIndexes = parseIndexes(s.job.Status.CompletedIndexes, limit)
	if s.perIndex() && s.job.Status.FailedIndexes != nil {
		s.listedLost = parseIndexes(*s.job.Status.FailedIndexes, limit)
	}
	var done, lost []int
	for _, p := range s.pods {
		index, _ := indexOf(p)
		if !counted(p) || !s.valid(p) || s.dismissed(p) {
			continue
		}
		if p.Status.Phase == corev1.PodSucceeded {
			done = append(done, index)
		}
		if s.perIndex() && s.exhausted(p) && !s.leftFor(p, batchv1.JobFailureTarget) {
			lost = append(lost, index)
		}
	}
	s.done, s.lost = s.listedIndexes.with(each(done)), s.listedLost.with(each(lost))
	s.succeeded = s.done.count()
	if s.perIndex() {
		s.retained = s.retain(s.active)
	}
}

// valid reports whether a pod counts: in an indexed Job, only a pod with an index below
// completions does.
func (s *sight) valid(p *corev1.Pod) bool {
	index, ok := indexOf(p)
	return !s.indexed() || ok && index < s.completions()
}

// hasFailed reports whether a pod counts as a failure: it failed, or it is terminating and
// the Job replaces terminating pods without waiting for their end.
func (s *sight) hasFailed(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	return !s.replacesEnded() && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded
}

// dismissed reports whether a pod terminates after the Job has SuccessCriteriaMet: its end
// does not count. Every pod that had ended by then was listed in the status update that
// set the condition, and the controller deletes no pod for it before that update is seen.
// So the recorded state decides this, and no clock has to.
//
// Upstream: pkg/controller/job, trackJobStatusAndRemoveFinalizers lets go of such a pod in
// the sync that says so.
func (s *sight) dismissed(p *corev1.Pod) bool { return s.leftFor(p, batchv1.JobSuccessCriteriaMet) }

// leftFor reports whether a pod terminates while the Job has the target condition.
func (s *sight) leftFor(p *corev1.Pod, target batchv1.JobConditionType) bool {
	_, ok := conditionOf(s.job.Status.Conditions, target)
	return ok && p.DeletionTimestamp != nil
}

// leftAt returns when a client deleted the pod. Its deletionTimestamp is that time plus
// the grace period.
func leftAt(p *corev1.Pod) time.Time {
	at := p.DeletionTimestamp.Time
	if p.DeletionGracePeriodSeconds != nil {
		at = at.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	}
	return at
}

// replacesEnded reports whether a pod is replaced only once it has ended, and not as soon
// as it terminates.
func (s *sight) replacesEnded() bool {
	policy := s.job.Spec.PodReplacementPolicy
	return s.job.Spec.PodFailurePolicy != nil || policy != nil && *policy == batchv1.Failed
}

func (s *sight) indexed() bool {
	mode := s.job.Spec.CompletionMode
	return mode != nil && *mode == batchv1.IndexedCompletion
}

func (s *sight) perIndex() bool { return s.indexed() && s.job.Spec.BackoffLimitPerIndex != nil }

func (s *sight) suspended() bool { return s.job.Spec.Suspend != nil && *s.job.Spec.Suspend }

// completions returns how many pods must succeed; 0 if the Job does not say.
func (s *sight) completions() int { return number(s.job.Spec.Completions, 0) }

// number returns the value of a field, or missing if the field is nil.
func number(field *int32, missing int) int {
	if field == nil {
		return missing
	}
	return int(*field)
}
