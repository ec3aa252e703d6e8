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

// sight is what follows from what is seen of a Job and its pods.
type sight struct {
	job  *batchv1.Job
	now  time.Time
	view View

	pods   []*corev1.Pod // the Job's own; by index, if they have one
	active []*corev1.Pod
	ready  int
	// leaving are the pods on their way out that have not ended.
	leaving []*corev1.Pod

	// listed are the uids that wait in the status to be counted.
	listed struct{ succeeded, failed map[types.UID]bool }
	// succeeded and failed are how many pods ended well and badly, those that have
	// not been counted yet included.
	succeeded, failed int
	// done are the indexes that succeeded, told those of them that are in the status,
	// lost those that will not be tried again, and listedLost those of them in the status.
	done, listedIndexes, lost, listedLost indexes
	// retained are the failed pods, by index, that are kept until another has taken
	// their place, because that continues their count of failures.
	retained map[int]*corev1.Pod
	// end is why the Job is to end; nil while it is not.
	end *ending
	// names are those of all pods that are seen; nil until one is asked for.
	names map[string]bool
}

// look takes in what is seen. pods are those that the Job controls and selects.
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

// byIndex puts pods without an index first, and those of one index in the order of
// their names, whatever order they were given in.
func byIndex(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.Name, b.Name))
}

func place(p *corev1.Pod) int {
	if index, ok := indexOf(p); ok {
		return index
	}
	return -1
}

// tally counts what has ended.
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

// lookAtIndexes takes in what is seen of indexes.
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

// valid tells whether a pod counts: with indexes, one that has an index which is
// asked for.
func (s *sight) valid(p *corev1.Pod) bool {
	index, ok := indexOf(p)
	return !s.indexed() || ok && index < s.completions()
}

// hasFailed tells whether a pod counts as a failure: it failed, or it is being
// deleted and need not have ended to be replaced.
func (s *sight) hasFailed(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	return !s.replacesEnded() && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded
}

// dismissed tells whether a pod leaves after the Job has said that it succeeds without
// it: what becomes of it does not count. Whatever had ended by then was listed with those
// words, and no pod is deleted for them before they are seen, so the record tells and no
// clock has to.
//
// Upstream: pkg/controller/job, trackJobStatusAndRemoveFinalizers lets go of such a pod in
// the sync that says so.
func (s *sight) dismissed(p *corev1.Pod) bool { return s.leftFor(p, batchv1.JobSuccessCriteriaMet) }

// leftFor tells whether a pod leaves and the Job says that it is to end.
func (s *sight) leftFor(p *corev1.Pod, target batchv1.JobConditionType) bool {
	_, ok := conditionOf(s.job.Status.Conditions, target)
	return ok && p.DeletionTimestamp != nil
}

// leftAt is when a pod was deleted; its deletionTimestamp is when it has to be gone.
func leftAt(p *corev1.Pod) time.Time {
	at := p.DeletionTimestamp.Time
	if p.DeletionGracePeriodSeconds != nil {
		at = at.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	}
	return at
}

// replacesEnded tells whether pods are replaced when they have ended, and not as
// soon as they are on their way out.
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

// completions is how many pods have to succeed, where the Job says so.
func (s *sight) completions() int { return number(s.job.Spec.Completions, 0) }

// number is a field, or what the API takes for it when it is missing.
func number(field *int32, missing int) int {
	if field == nil {
		return missing
	}
	return int(*field)
}
