package workloads

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/stage"
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
func fairJobEnds(world []runtime.Object, r stage.Refusal, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	blamed := func(e effect.Effect) effect.Effect { e.Body = blames(world, e.Body); return e }
	theirs, ours = effect.Rewritten(theirs, blamed), effect.Rewritten(ours, blamed)
	if r.Status && r.Times > stage.TriesUntilSpent {
		theirs = exemption.Lets("told-when-written", theirs, effect.Only(theirs, func(e effect.Effect) bool {
			return slices.Contains(ours, e) || !stage.Says("Suspended Job suspended")(e) && !stage.Says("Resumed Job resumed")(e)
		}))
	}
	if r.Verb == plan.Delete && r.Times > 0 {
		theirs, ours = exemption.Lets("ready-until-deleted", theirs, effect.Rewritten(theirs, unready)), effect.Rewritten(ours, unready)
	}
	if r.Status && r.Times > stage.TriesUntilSpent {
		free := letGo(world)
		theirs, ours = exemption.Lets("let-go-when-counted", theirs, effect.Rewritten(theirs, free)), effect.Rewritten(ours, free)
	}
	if r.Times == 0 || r.Verb == plan.Create || !jobEnds(world) {
		return theirs, ours
	}
	if r.Times <= stage.TriesUntilSpent {
		told := func(e effect.Effect) bool {
			return !stage.Says("Suspended Job suspended")(e) && !stage.Says("Resumed Job resumed")(e)
		}
		theirs, ours = effect.Only(theirs, told), effect.Only(ours, told)
		return exemption.Lets("why-it-ends-first", theirs, effect.Rewritten(theirs, endsSomehow)), effect.Rewritten(ours, endsSomehow)
	}
	failures := func(e effect.Effect) bool {
		return e.Verb == effect.Event && strings.HasPrefix(e.Body, corev1.EventTypeWarning)
	}
	return exemption.Lets("why-it-ends-first", theirs, effect.Only(theirs, failures)), effect.Only(ours, failures)
}

// letGo removes the finalizers of pods that the Job's status already counts.
func letGo(world []runtime.Object) func(effect.Effect) effect.Effect {
	job, said := world[0].(*batchv1.Job), map[string]bool{}
	for _, obj := range world[1:] {
		if p, ok := obj.(*corev1.Pod); ok {
			said[p.Name] = !counts(job, p)
		}
	}
	return func(e effect.Effect) effect.Effect {
		if e.Resource != "pods" || !said[e.Name] {
			return e
		}
		p := effect.Tree(e.Body).(map[string]any)
		delete(p["metadata"].(map[string]any), "finalizers")
		e.Body = effect.JSON(p)
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
	rest := stage.Rest{Theirs: Job.Theirs, Ours: Job.Ours, Kinds: stage.Served(kinds.Jobs.Kind, kinds.Pods.Kind)}
	lines, err := rest.OurEnd(objects.Copied(world), stage.Refusal{})
	if err != nil {
		return false
	}
	return slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "jobs ") && (strings.Contains(line, `"`+string(batchv1.JobFailureTarget)+`"`) || strings.Contains(line, `"`+string(batchv1.JobSuccessCriteriaMet)+`"`))
	})
}

// unready is a Job without the number of ready pods.
func unready(e effect.Effect) effect.Effect { return withoutStatus(e, "ready") }

// endsSomehow is a Job that shows whether it ends, not how or why.
func endsSomehow(e effect.Effect) effect.Effect {
	ends := strings.Contains(e.Body, `"`+string(batchv1.JobFailureTarget)+`"`) || strings.Contains(e.Body, `"`+string(batchv1.JobSuccessCriteriaMet)+`"`)
	if e = withoutStatus(e, "conditions", "failed", "failedIndexes", "startTime"); e.Resource == "jobs" && ends {
		e.Name += " ends"
	}
	return e
}

// withoutStatus is a Job without some fields of its status.
func withoutStatus(e effect.Effect, fields ...string) effect.Effect {
	if e.Resource != "jobs" {
		return e
	}
	j := effect.Tree(e.Body).(map[string]any)
	if status, ok := j["status"].(map[string]any); ok {
		for _, field := range fields {
			delete(status, field)
		}
	}
	e.Body = effect.JSON(j)
	return e
}
