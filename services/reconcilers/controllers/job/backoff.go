package job

import (
	"math"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// The delay before the next pod after a failure. It doubles with each failure.
//
// Upstream: DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff in
// pkg/controller/job/job_controller.go.
const (
	shortestWait = 10 * time.Second
	longestWait  = 10 * time.Minute
)

// patience returns the end of the back-off after this many failures in a row, the last of
// them at last. It is the zero time if there was no failure.
func patience(failures int, last time.Time) time.Time {
	if failures <= 0 {
		return time.Time{}
	}
	wait := longestWait
	if doublings := failures - 1; doublings < 6 { // 640 s exceed longestWait
		wait = min(shortestWait<<doublings, longestWait)
	}
	return last.Add(wait)
}

// rest returns the time before which no pod is created, because of the failures since the last success.
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

// successes returns the times at which the visible pods succeeded.
func (s *sight) successes() []time.Time {
	var all []time.Time
	for _, p := range s.pods {
		if s.valid(p) && p.Status.Phase == corev1.PodSucceeded {
			all = append(all, endedAt(p))
		}
	}
	return all
}

// failures returns the times at which pods failed, as far as they can still be known:
//
//   - A visible pod that failed counts, except those in View.Surplus.
//   - A terminating pod without the finalizer either was counted as a failure or was
//     surplus; the pod does not show which. Such pods count, the latest first, as far as
//     the status has more failures than are visible otherwise.
//   - Failures of the status beyond those belong to deleted pods. Together they count as
//     one, at View.LetGo, if the last acting turn removed the finalizer of a pod that is
//     now deleted.
//
// View.Surplus is complete as long as every acting turn hands it on to the next; its pods
// are no failures. The status does not count failures that the rules ignore, but a pod
// with an ignored failure did fail, so it was not surplus.
func (s *sight) failures() []time.Time {
	var all, unsure []time.Time
	seen := 0 // pods that the status counts as failed, or will count
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

// ignoredOne reports whether the deleted pod of View.LetGo can only have been a failure
// that the rules ignore: the Job has rules, and every counted success is still visible.
func (s *sight) ignoredOne() bool {
	return s.job.Spec.PodFailurePolicy != nil && s.succeeded <= len(s.successes())
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// restOf returns the time before which no pod is created for an index, because of the
// failed pod that the new one replaces.
func (s *sight) restOf(index int) time.Time {
	p, ok := s.retained[index]
	if !ok {
		return time.Time{}
	}
	return patience(failuresOf(p)+ignoredOf(p)+1, endedAt(p))
}

// endedAt returns when a pod ended: when its last container ended, else when it stopped
// being ready, else when a client deleted it, else when it was created.
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

// containersEndedAt returns when the last container ended; ok is false if the statuses do
// not say so. Of the init containers only sidecars count.
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

// runsBeside reports whether an init container is a sidecar (restartPolicy Always).
func runsBeside(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(spec corev1.Container) bool {
		return spec.Name == name && spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// failuresOf returns how often the index had failed before this pod was created, and
// ignoredOf how often the rules ignored a failure. Each pod carries both as annotations
// for its successor.
func failuresOf(p *corev1.Pod) int { return noted(p, batchv1.JobIndexFailureCountAnnotation) }

func ignoredOf(p *corev1.Pod) int { return noted(p, batchv1.JobIndexIgnoredFailureCountAnnotation) }

// noted returns the number in an annotation; 0 if it is missing, invalid, negative or
// above MaxInt32.
func noted(p *corev1.Pod, annotation string) int {
	n, err := strconv.Atoi(p.Annotations[annotation])
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return n
}

// exhausted reports whether the failure of a pod exceeds the back-off limit of its index,
// or a rule fails the index.
func (s *sight) exhausted(p *corev1.Pod) bool {
	if !s.hasFailed(p) {
		return false
	}
	v := s.verdict(p)
	return v.forIts || v.counts && failuresOf(p) >= number(s.job.Spec.BackoffLimitPerIndex, 0)
}

// retain returns, for each index that must be retried, the failed pod that carries its
// count of failures: the pod with the highest count, and among equals the last to end. An
// index that one of atWork has is not retried.
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

// relieve reports whether one of the given pods replaced a failed pod that the status does
// not have yet. While the replacement exists, the failed pod need not be retained, so it
// is counted. Without the replacement it would be retained, and would not count until its
// index is retried.
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
