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
//   - Not that it is suspended or resumed, where that cannot be written and upstream tells it
//     all the same.
//   - Of a Job that ends not what rests on the order in which its pods are deleted and its
//     status says why: upstream deletes them first, and then counts some of them as failures,
//     or others. Where one of both is refused for good, nothing of the Job and its pods.
//   - Not whether pods are ready whose delete was refused: upstream takes them off the count.
//   - Not that pods are let go of which the status says all that counts, though the rest of
//     it is refused for good.
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

// letGo makes pods without finalizers of those of which a Job says already whatever counts.
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

// counts tells whether a pod has ended, and a Job does not say so.
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

// jobEnds tells whether the Job of a world is to end, when nothing is refused.
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

// unready is a Job that does not say how many of its pods are ready.
func unready(e Effect) Effect { return withoutStatus(e, "ready") }

// endsSomehow is a Job of which is said whether it is to end, not how or why.
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
