package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	jobsFinished    = "job_controller_jobs_finished_total"
	podsFinished    = "job_controller_job_pods_finished_total"
	podsCreated     = "job_controller_job_pods_creation_total"
	indexesFinished = "job_controller_job_finished_indexes_total"
	failuresHandled = "job_controller_pod_failures_handled_by_failure_policy_total"
	podsTracked     = "job_controller_terminated_pods_tracking_finalizer_total"
)

// metrics are the upstream metrics about the results of Jobs.
//
// Upstream: pkg/controller/job/metrics.
var metrics = []reconcile.Metric{
	{Name: jobsFinished, Sort: reconcile.Counter, Labels: []string{"completion_mode", "result", "reason"}, Help: "Jobs that have ended."},
	{Name: podsFinished, Sort: reconcile.Counter, Labels: []string{"completion_mode", "result"}, Help: "Pods of Jobs that have ended and were counted."},
	{Name: podsCreated, Sort: reconcile.Counter, Labels: []string{"reason", "status"}, Help: "Creations of pods of Jobs, by reason (new, or replacement of a failed or terminating pod) and by status."},
	{Name: indexesFinished, Sort: reconcile.Counter, Labels: []string{"status", "backoffLimit"}, Help: "Indexes of Jobs that have finished."},
	{Name: failuresHandled, Sort: reconcile.Counter, Labels: []string{"action"}, Help: "Failed pods that matched a rule of their Job's podFailurePolicy, by the rule's action."},
	{Name: podsTracked, Sort: reconcile.Counter, Labels: []string{"event"}, Help: "Terminated pods with the finalizer of Jobs: add when the finalizer is observed, delete when it is removed. The difference is the number of pods whose finalizer is still to be removed."},
}

// counted adds the metric values of its creates to a decision.
func (s *sight) counted(d reconcile.Decision) reconcile.Decision {
	reason := "new"
	switch policy := s.job.Spec.PodReplacementPolicy; {
	case policy != nil && *policy == batchv1.Failed && s.failed > 0:
		reason = "recreate_failed"
	case s.failed > 0 || len(s.leaving) > 0:
		reason = "recreate_terminating_or_failed"
	}
	for _, c := range d.Commands {
		if c.Verb == events.VerbCreate {
			d.Figures = append(d.Figures,
				reconcile.Figure{Metric: podsCreated, Value: 1, Labels: []string{reason, "succeeded"}, Of: c.Ref()},
				reconcile.Figure{Metric: podsCreated, Value: 1, Labels: []string{reason, "failed"}, Of: c.Ref(), Failed: true})
		}
	}
	return d
}

// handled returns the metric value of the rule that matched a failed pod; none without a rule.
func (s *sight) handled(p *corev1.Pod, of events.Ref) []reconcile.Figure {
	action := s.verdict(p).action
	if action == "" || p.Status.Phase == corev1.PodSucceeded {
		return nil
	}
	return []reconcile.Figure{{Metric: failuresHandled, Value: 1, Labels: []string{action}, Of: of}}
}

// tracked returns the metric value of an ended pod that the status newly has (add) or
// whose finalizer is removed (delete); none for a pod that has not ended.
//
// Upstream: counted as its informer sees the pod end, and the finalizer go.
func tracked(p *corev1.Pod, event string, of events.Ref) []reconcile.Figure {
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return nil
	}
	return []reconcile.Figure{{Metric: podsTracked, Value: 1, Labels: []string{event}, Of: of}}
}

// released returns the metric values of a pod whose finalizer is removed. A pod that the
// status never had, because it was ignored or dismissed, gets its add here too.
func (s *sight) released(p *corev1.Pod) []reconcile.Figure {
	of := events.Ref{Kind: kinds.Pods.Name, Namespace: p.Namespace, Name: p.Name}
	figures := tracked(p, "delete", of)
	index, _ := indexOf(p)
	if s.listed.failed[p.UID] || s.listed.succeeded[p.UID] || p.Status.Phase == corev1.PodSucceeded && s.indexed() && s.listedIndexes.has(index) {
		return figures
	}
	figures = append(figures, tracked(p, "add", of)...)
	if s.hasFailed(p) && !s.dismissed(p) && s.valid(p) {
		figures = append(figures, s.handled(p, of)...)
	}
	return figures
}

// figures returns the differences between two statuses as metric values, which count once
// the status update is applied.
func (w *writing) figures(had batchv1.JobStatus, of events.Ref) (figures []reconcile.Figure) {
	mode, limit := string(batchv1.NonIndexedCompletion), "global"
	if w.indexed() {
		mode = string(batchv1.IndexedCompletion)
	}
	if w.perIndex() {
		limit = "perIndex"
	}
	count := func(metric string, more int32, labels ...string) {
		if more >= 0 { // a zero is emitted too, as upstream does
			figures = append(figures, reconcile.Figure{Metric: metric, Value: float64(more), Labels: labels, Of: of})
		}
	}
	for _, p := range w.noted {
		figures = slices.Concat(figures, tracked(p, "add", of), w.handled(p, of))
	}
	count(podsFinished, w.status.Succeeded-had.Succeeded, mode, "succeeded")
	count(podsFinished, w.status.Failed-had.Failed, mode, "failed")
	if w.indexed() {
		count(indexesFinished, w.status.Succeeded-had.Succeeded, "succeeded", limit)
	}
	if w.perIndex() && had.FailedIndexes != nil {
		count(indexesFinished, int32(w.lost.count()-parseIndexes(*had.FailedIndexes, w.completions()).count()), "failed", limit)
	}
	for end, result := range map[batchv1.JobConditionType]string{batchv1.JobComplete: "succeeded", batchv1.JobFailed: "failed"} {
		for _, c := range w.status.Conditions {
			if c.Type == end && c.Status == corev1.ConditionTrue {
				count(jobsFinished, 1, mode, result, c.Reason)
			}
		}
	}
	return figures
}
