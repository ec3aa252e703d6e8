package oracle

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// fairJobEnds leaves of the ends of a Job what both do:
//
//   - Not the Event about suspend or resume, if the status cannot be written: upstream emits
//     it all the same.
//   - Of a Job that ends, nothing that depends on whether its pods are deleted before its status
//     has the reason: upstream deletes them first, and then counts other failures. If one of
//     both writes is refused for good, nothing of the Job and its pods.
//   - Not the readiness of pods whose delete was refused: upstream subtracts them.
//   - Not the removal of finalizers of pods that the status already counts, while the rest of
//     the status is refused for good.
func fairJobEnds(world []runtime.Object, r Refusal, theirs, ours []Effect) ([]Effect, []Effect) {
	blamed := func(e Effect) Effect { e.Body = blames(world, e.Body); return e }
	theirs, ours = rewritten(theirs, blamed), rewritten(ours, blamed)
	if r.Status && r.Times > spentTries {
		theirs = lets("told-when-written", theirs, only(theirs, func(e Effect) bool {
			return slices.Contains(ours, e) || !says("Suspended Job suspended")(e) && !says("Resumed Job resumed")(e)
		}))
	}
	if r.Verb == plan.Delete && r.Times > 0 {
		theirs, ours = lets("ready-until-deleted", theirs, rewritten(theirs, unready)), rewritten(ours, unready)
	}
	if r.Status && r.Times > spentTries {
		free := letGo(world)
		theirs, ours = lets("let-go-when-counted", theirs, rewritten(theirs, free)), rewritten(ours, free)
	}
	if r.Times == 0 || r.Verb == plan.Create || !jobEnds(world) {
		return theirs, ours
	}
	if r.Times <= spentTries {
		told := func(e Effect) bool { return !says("Suspended Job suspended")(e) && !says("Resumed Job resumed")(e) }
		theirs, ours = only(theirs, told), only(ours, told)
		return lets("why-it-ends-first", theirs, rewritten(theirs, endsSomehow)), rewritten(ours, endsSomehow)
	}
	failures := func(e Effect) bool { return e.Verb == event && strings.HasPrefix(e.Body, corev1.EventTypeWarning) }
	return lets("why-it-ends-first", theirs, only(theirs, failures)), only(ours, failures)
}

// letGo removes the finalizers of pods that the Job's status already counts.
func letGo(world []runtime.Object) func(Effect) Effect {
	job, said := world[0].(*batchv1.Job), map[string]bool{}
	for _, obj := range world[1:] {
		if p, ok := obj.(*corev1.Pod); ok {
			said[p.Name] = !counts(job, p)
		}
	}
	return func(e Effect) Effect {
		if e.Resource != "pods" || !said[e.Name] {
			return e
		}
		p := tree(e.Body).(map[string]any)
		delete(p["metadata"].(map[string]any), "finalizers")
		e.Body = text(p)
		return e
	}
}

// counts reports whether a pod has ended, and the Job's status does not count it yet.
func counts(job *batchv1.Job, p *corev1.Pod) bool {
	index, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if waiting := job.Status.UncountedTerminatedPods; waiting != nil && (slices.Contains(waiting.Succeeded, p.UID) || slices.Contains(waiting.Failed, p.UID)) {
		return job.Spec.BackoffLimitPerIndex != nil && p.Status.Phase == corev1.PodFailed && err == nil && index < int(*job.Spec.Completions)
	}
	switch {
	case *job.Spec.CompletionMode != batchv1.IndexedCompletion:
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed && job.Spec.PodFailurePolicy == nil
	case err != nil || index >= int(*job.Spec.Completions):
		return false
	case p.Status.Phase == corev1.PodSucceeded:
		return !strings.Contains(job.Status.CompletedIndexes, strconv.Itoa(index))
	}
	return p.Status.Phase == corev1.PodFailed && job.Spec.PodFailurePolicy == nil
}

// jobEnds reports whether the Job of a world ends without refusals.
func jobEnds(world []runtime.Object) bool {
	rest := Rest{Theirs: Job.Theirs, Ours: Job.Ours, Kinds: served(kinds.Jobs.Kind, kinds.Pods.Kind)}
	lines, err := rest.ours(copied(world), Refusal{})
	if err != nil {
		return false
	}
	return slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "jobs ") && (strings.Contains(line, `"`+string(batchv1.JobFailureTarget)+`"`) || strings.Contains(line, `"`+string(batchv1.JobSuccessCriteriaMet)+`"`))
	})
}

// unready is a Job without the number of ready pods.
func unready(e Effect) Effect { return withoutStatus(e, "ready") }

// endsSomehow is a Job that shows whether it ends, not how or why.
func endsSomehow(e Effect) Effect {
	ends := strings.Contains(e.Body, `"`+string(batchv1.JobFailureTarget)+`"`) || strings.Contains(e.Body, `"`+string(batchv1.JobSuccessCriteriaMet)+`"`)
	if e = withoutStatus(e, "conditions", "failed", "failedIndexes", "startTime"); e.Resource == "jobs" && ends {
		e.Name += " ends"
	}
	return e
}

// withoutStatus is a Job without some fields of its status.
func withoutStatus(e Effect, fields ...string) Effect {
	if e.Resource != "jobs" {
		return e
	}
	j := tree(e.Body).(map[string]any)
	if status, ok := j["status"].(map[string]any); ok {
		for _, field := range fields {
			delete(status, field)
		}
	}
	e.Body = text(j)
	return e
}
