package job

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Indifferent(shuffled),
		reconciletest.Content(12, applied),
		reconciletest.Law[View]{Name: "slow to let go", Holds: slowToLetGo},
		reconciletest.Law[View]{Name: "counting once", Holds: countingOnce},
		reconciletest.Law[View]{Name: "measured", Holds: measured},
		reconciletest.Law[View]{Name: "final", Holds: final},
		reconciletest.Law[View]{Name: "why comes first", Holds: whyFirst},
		reconciletest.Law[View]{Name: "dismissed for good", Holds: dismissedForGood},
		reconciletest.Law[View]{Name: "ends", Holds: ends},
	)
}

// statusOf returns the status that a decision writes; nil if it writes none.
func statusOf(d reconcile.Decision) *batchv1.JobStatus {
	for _, c := range d.Commands {
		if c.Subresource == "status" {
			return &read[batchv1.Job](c.Body).Status
		}
	}
	return nil
}

func listed(s batchv1.JobStatus) []types.UID {
	if s.UncountedTerminatedPods == nil {
		return nil
	}
	return slices.Concat(s.UncountedTerminatedPods.Succeeded, s.UncountedTerminatedPods.Failed)
}

// slowToLetGo checks that no ended pod that counts loses its finalizer before the status has it.
func slowToLetGo(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbPatch || v.Job == nil {
			continue
		}
		p := v.Pods[slices.IndexFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == command.Name })]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		rules := v.Job.Spec.PodFailurePolicy != nil && p.Status.Phase == corev1.PodFailed
		dismissed := len(v.Job.Status.Conditions) > 0 && v.Job.Status.Conditions[0].Type == batchv1.JobSuccessCriteriaMet && p.DeletionTimestamp != nil
		if !ended || rules || dismissed || len(p.OwnerReferences) == 0 || slices.Contains(listed(v.Job.Status), p.UID) {
			continue
		}
		index, known := indexOf(p)
		told := parseIndexes(v.Job.Status.CompletedIndexes, 99).has(index)
		if *v.Job.Spec.CompletionMode == batchv1.NonIndexedCompletion ||
			known && index < int(*v.Job.Spec.Completions) && !(told && p.Status.Phase == corev1.PodSucceeded) {
			return fmt.Errorf("%s, which %s, is let go and the status does not have it", p.Name, p.Status.Phase)
		}
	}
	return nil
}

// countingOnce checks that a counted pod was listed and has no finalizer, that a listed
// pod has the finalizer and was not listed before, and that the counters include every
// pod that was counted.
func countingOnce(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	next := statusOf(d)
	if next == nil {
		return nil
	}
	had, has := listed(v.Job.Status), listed(*next)
	kept := func(uid types.UID) bool {
		return slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return p.UID == uid && len(p.Finalizers) > 0 && len(p.OwnerReferences) > 0 })
	}
	moved := 0
	for _, uid := range had {
		if !slices.Contains(has, uid) {
			if moved++; kept(uid) {
				return fmt.Errorf("%s is counted and still kept", uid)
			}
		}
	}
	for _, uid := range has {
		if !slices.Contains(had, uid) && !kept(uid) {
			return fmt.Errorf("%s is listed and is not kept", uid)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(has)))) < len(has) {
		return fmt.Errorf("a pod is listed twice: %v", has)
	}
	before, after := v.Job.Status, *next
	rose := int(after.Failed - before.Failed)
	if *v.Job.Spec.CompletionMode == batchv1.NonIndexedCompletion {
		rose += int(after.Succeeded - before.Succeeded)
		if rose != moved {
			return fmt.Errorf("%d pods are let go, the counters rise by %d", moved, rose)
		}
	}
	if !slices.Equal(had, has) && !d.Sure {
		return fmt.Errorf("the list changes, and may do so on any view")
	}
	return nil
}

// measured checks that creates and deletes bring the number of pods to no more than
// allowed, and that no create uses the name or index of an active pod.
func measured(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Job == nil {
		return nil
	}
	created, died, indexes, mine := 0, 0, indexesOf(nil), 0
	for _, p := range v.Pods {
		if len(p.OwnerReferences) > 0 && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			mine++
			indexes = append(indexes, indexesOf([]*corev1.Pod{p})...)
		}
	}
	for _, command := range c.Decide(v, now).Commands {
		switch command.Verb {
		case events.VerbDelete:
			died++
		case events.VerbCreate:
			created++
			index := indexesOf([]*corev1.Pod{read[corev1.Pod](command.Body)})
			if len(index) > 0 && (slices.Contains(indexes, index[0]) || index[0] >= int(*v.Job.Spec.Completions)) {
				return fmt.Errorf("a pod is created with the index %d, which is taken or not asked for", index[0])
			}
			indexes = append(indexes, index...)
			if slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == command.Name }) {
				return fmt.Errorf("a pod is created under the name of %s", command.Name)
			}
		}
	}
	most := int(*v.Job.Spec.Parallelism)
	if v.Job.Spec.Completions != nil {
		most = min(most, int(*v.Job.Spec.Completions))
	}
	switch {
	case created > 0 && died > 0:
		return fmt.Errorf("%d pods are created while %d die", created, died)
	case created > 0 && (mine+created > most || *v.Job.Spec.Suspend || v.Job.DeletionTimestamp != nil):
		return fmt.Errorf("%d pods are created beside %d", created, mine)
	}
	return nil
}

// final checks that a Job gets a final condition only when no pod is left to count, and
// after its target condition.
func final(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	next := statusOf(c.Decide(v, now))
	if next == nil || !slices.ContainsFunc(next.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed
	}) {
		return nil
	}
	if len(v.Job.Status.Conditions) == 0 || len(listed(*next)) > 0 || next.Active > 0 || *next.Terminating > 0 {
		return fmt.Errorf("it ends too early: %+v", next)
	}
	for _, p := range v.Pods {
		if len(p.OwnerReferences) > 0 && len(p.Finalizers) > 0 {
			return fmt.Errorf("it ends while %s is kept", p.Name)
		}
	}
	return nil
}

// announced reports whether a status has one of these conditions.
func announced(status batchv1.JobStatus, ends ...batchv1.JobConditionType) bool {
	return slices.ContainsFunc(status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && slices.Contains(ends, c.Type)
	})
}

// whyFirst checks that a counted pod is deleted only on a view in which the status says
// why the Job ends, since otherwise the deletion reads as a failure; and that this report
// waits for nothing else.
func whyFirst(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Job == nil {
		return nil
	}
	d := c.Decide(v, now)
	said := announced(v.Job.Status, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget)
	for _, command := range d.Commands {
		at := slices.IndexFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == command.Name })
		released := slices.ContainsFunc(d.Commands, func(o events.Command) bool { return o.Verb == events.VerbPatch && o.Name == command.Name })
		if command.Verb == events.VerbDelete && !said && !released && len(v.Pods[at].Finalizers) > 0 {
			return fmt.Errorf("%s is deleted before the Job says why", command.Name)
		}
	}
	next := statusOf(d)
	if next == nil || said || !announced(*next, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget) {
		return nil
	}
	if !d.ReportFirst || slices.ContainsFunc(d.Commands, func(c events.Command) bool { return c.Lane() == events.LaneWrite }) {
		return fmt.Errorf("the end is announced beside something else, or may have to wait")
	}
	return nil
}

// dismissedForGood checks that a pod that terminates after the Job has succeeded is never
// a failure, whatever the clocks say about when it was deleted.
func dismissedForGood(t *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Job == nil {
		return nil
	}
	v.Job = v.Job.DeepCopy()
	v.Job.Status.Conditions = []batchv1.JobCondition{{
		Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Add(time.Duration(rapid.IntRange(-60, 60).Draw(t, "announced")) * time.Second)),
	}}
	next := statusOf(c.Decide(v, now))
	if next == nil {
		return nil
	}
	for _, uid := range listed(*next) {
		leaves := slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return p.UID == uid && p.DeletionTimestamp != nil })
		if leaves && !slices.Contains(listed(v.Job.Status), uid) {
			return fmt.Errorf("%s leaves because the Job has succeeded, and counts", uid)
		}
	}
	return nil
}
