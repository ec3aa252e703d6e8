package job

import (
	"math"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// After a failure the next pod waits, twice as long after each.
//
// Upstream: DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff in
// pkg/controller/job/job_controller.go.
const (
	shortestWait = 10 * time.Second
	longestWait  = 10 * time.Minute
)

// patience is until when something waits that failed so often in a row, the last
// time at a moment.
func patience(failures int, last time.Time) time.Time {
	if failures <= 0 {
		return time.Time{}
	}
	wait := longestWait
	if doublings := failures - 1; doublings < 6 { // 640 s are more than the longest
		wait = min(shortestWait<<doublings, longestWait)
	}
	return last.Add(wait)
}

// rest is until when no pod is created because of those that failed since the last
// success.
//
// Upstream: pkg/controller/job/backoff_utils.go, which counts as it sees them end.
func (s *sight) rest() time.Time {
	var success, last time.Time
	for _, at := range s.successes() {
		success = later(success, at)
	}
	failures := 0
	for _, at := range s.failures() {
		if at.After(success) {
			failures, last = failures+1, later(last, at)
		}
	}
	return patience(failures, last)
}

// successes are when pods succeeded.
func (s *sight) successes() []time.Time {
	var all []time.Time
	for _, p := range s.pods {
		if s.valid(p) && p.Status.Phase == corev1.PodSucceeded {
			all = append(all, endedAt(p))
		}
	}
	return all
}

// failures are when pods failed. A pod on its way out that is not kept was either
// counted as a failure or was one too many, which cannot be seen; so such pods are
// failures as far as the status has more of them than are seen. What it has beyond
// that is gone, and counts as one, if the last thing that was done was to let go of
// pods that are not there. Those that were too many are known, as long as every turn that
// acts hands it on to the next, and no failures. The status has no failures that the rules ignore: a pod
// that they would ignore failed, and was not one too many.
func (s *sight) failures() []time.Time {
	var all, unsure []time.Time
	seen := 0 // of those that the status has, or is to have
	for _, p := range s.pods {
		if !s.valid(p) || !s.hasFailed(p) || slices.Contains(s.view.Surplus, p.UID) {
			continue
		}
		counts := s.verdict(p).counts
		if counts && !counted(p) && p.DeletionTimestamp != nil {
			unsure = append(unsure, endedAt(p))
			continue
		}
		if all = append(all, endedAt(p)); counts {
			seen++
		}
	}
	slices.SortFunc(unsure, func(a, b time.Time) int { return b.Compare(a) })
	missing := max(0, s.failed-seen)
	all = append(all, unsure[:min(missing, len(unsure))]...)
	if gone := s.view.LetGo; gone != nil && (missing > len(unsure) || s.ignoredOne()) {
		all = append(all, gone.Truncate(time.Second))
	}
	return all
}

// ignoredOne tells whether what was let go and is gone can only have been a failure
// that does not count: there are rules, and every success is still there.
func (s *sight) ignoredOne() bool {
	return s.job.Spec.PodFailurePolicy != nil && s.succeeded <= len(s.successes())
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// restOf is until when no pod is created for an index, because of the one that it is
// to replace.
func (s *sight) restOf(index int) time.Time {
	p, ok := s.retained[index]
	if !ok {
		return time.Time{}
	}
	return patience(failuresOf(p)+ignoredOf(p)+1, endedAt(p))
}

// endedAt is when a pod ended: when its containers had, or it was not ready any
// more, or a client deleted it; at worst when it was created.
func endedAt(p *corev1.Pod) time.Time {
	if at, ok := containersEndedAt(p); ok {
		return at
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	if p.DeletionTimestamp != nil {
		return leftAt(p)
	}
	return p.CreationTimestamp.Time
}

// containersEndedAt is when the last container ended; ok is false where nothing says
// so. Of those that are started first only the ones that run beside the others count.
//
// Upstream: one that runs beside and has not ended hides what the others say; those hide
// nothing of what runs beside them.
func containersEndedAt(p *corev1.Pod) (last time.Time, ok bool) {
	ended := func(c *corev1.ContainerStatus) bool {
		if c.State.Terminated == nil || c.State.Terminated.FinishedAt.IsZero() {
			last, ok = time.Time{}, false
			return false
		}
		last, ok = later(last, c.State.Terminated.FinishedAt.Time), true
		return true
	}
	for i := range p.Status.ContainerStatuses {
		if !ended(&p.Status.ContainerStatuses[i]) {
			break
		}
	}
	for i := range p.Status.InitContainerStatuses {
		if c := &p.Status.InitContainerStatuses[i]; runsBeside(p, c.Name) && !ended(c) {
			break
		}
	}
	return last, ok
}

// runsBeside tells whether a container that is started first goes on beside the others.
func runsBeside(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(spec corev1.Container) bool {
		return spec.Name == name && spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// failuresOf is how often the index of a pod had failed before it, and ignoredOf
// how often that was ignored. They are written on each pod for the one after it.
func failuresOf(p *corev1.Pod) int { return noted(p, batchv1.JobIndexFailureCountAnnotation) }

func ignoredOf(p *corev1.Pod) int { return noted(p, batchv1.JobIndexIgnoredFailureCountAnnotation) }

// noted is a number in an annotation; 0 when it is none, or no sensible one.
func noted(p *corev1.Pod, annotation string) int {
	n, err := strconv.Atoi(p.Annotations[annotation])
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return n
}

// exhausted tells whether a pod's failure is the one too many of its index.
func (s *sight) exhausted(p *corev1.Pod) bool {
	if !s.hasFailed(p) {
		return false
	}
	v := s.verdict(p)
	return v.forIts || v.counts && failuresOf(p) >= number(s.job.Spec.BackoffLimitPerIndex, 0)
}

// retain finds for each index that is to be tried again, since none of the pods at
// work has it, the failed pod that says how often it has failed: the one with the
// highest count, and of those the last.
func (s *sight) retain(atWork []*corev1.Pod) map[int]*corev1.Pod {
	busy := each(indexesOf(atWork)).with(s.done).with(s.lost)
	retained := map[int]*corev1.Pod{}
	for _, p := range s.pods {
		index, ok := indexOf(p)
		if !ok || !counted(p) || !s.valid(p) || !s.hasFailed(p) || busy.has(index) {
			continue
		}
		had, there := retained[index]
		if !there || failuresOf(had)+ignoredOf(had) <= failuresOf(p)+ignoredOf(p) && !endedAt(p).Before(endedAt(had)) {
			retained[index] = p
		}
	}
	return retained
}

// relieve tells whether one of some pods has taken the place of a failed one that the
// status does not have yet. That need not be kept as long as they are there; without
// them it would be, and would not count until its index is tried again.
func (s *sight) relieve(pods []*corev1.Pod) bool {
	if !s.perIndex() {
		return false
	}
	without := slices.DeleteFunc(slices.Clone(s.active), func(p *corev1.Pod) bool { return slices.Contains(pods, p) })
	for index, p := range s.retain(without) {
		if s.retained[index] != p && s.fails(p) {
			return true
		}
	}
	return false
}
