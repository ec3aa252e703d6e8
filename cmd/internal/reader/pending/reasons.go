package pending

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

// Reason is something that keeps an object from its desired state, according to the record.
type Reason struct {
	Object events.Ref `json:"object"`
	Text   string     `json:"text"`
	// Next is what the user can look at or do.
	Next string `json:"next,omitempty"`
}

// children is the kind of the objects that objects of a kind control by their owner
// references.
var children = map[kinds.Name]kinds.Name{
	kinds.Deployments.Name: kinds.ReplicaSets.Name, kinds.CronJobs.Name: kinds.Jobs.Name,
	kinds.ReplicaSets.Name: kinds.Pods.Name, kinds.ReplicationControllers.Name: kinds.Pods.Name, kinds.StatefulSets.Name: kinds.Pods.Name,
	kinds.DaemonSets.Name: kinds.Pods.Name, kinds.Jobs.Name: kinds.Pods.Name,
}

// good are the conditions that should be true, and bad those that should not. Reasons ignore
// all others.
var (
	good = []string{
		string(corev1.PodScheduled), string(corev1.PodInitialized), string(corev1.ContainersReady), string(corev1.PodReady), "Available", "Progressing",
		"AbleToScale", "ScalingActive", "DisruptionAllowed",
	}
	bad = []string{
		"ReplicaFailure", "Failed", "FailureTarget", "Suspended", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable",
		"NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure", "NamespaceDeletionContentFailure", "NamespaceContentRemaining", "NamespaceFinalizersRemaining",
	}
)

// mostChildren is how many different reasons of children are listed.
const mostChildren = 5

// reasons are those of an object and of its children.
//
// Errors: [record.ErrNotThere]; the record cannot be read.
func reasons(ctx context.Context, s *session.Session, kind kinds.Kind, ref events.Ref) ([]Reason, error) {
	state, err := record.New(s.Bus).One(ctx, kind, ref, record.Moment{})
	if err != nil {
		return nil, err
	}
	tree, err := fields.Of(kind, state.Entries[0].Delta)
	if err != nil {
		return nil, err
	}
	found, err := below(ctx, s, kind, ref, unstructured.Unstructured{Object: tree})
	if kind.Name == kinds.Pods.Name {
		found = append(found, owned(ref, unstructured.Unstructured{Object: tree}))
	}
	return found, err
}

// below are the reasons of an object and, recursively, of the objects that it controls.
func below(ctx context.Context, s *session.Session, kind kinds.Kind, ref events.Ref, object unstructured.Unstructured) ([]Reason, error) {
	found := own(ref, object)
	if len(found) == 0 {
		refused, err := refused(ctx, s.Bus, kind, ref)
		if err != nil {
			return nil, err
		}
		found = append(found, refused...)
	}
	of, owns := children[kind.Name]
	have, err := s.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(have, func(k kinds.Kind) bool { return k.Name == of })
	if !owns || at < 0 {
		return found, nil
	}
	state, err := record.New(s.Bus).At(ctx, have[at], ref.Namespace, record.Moment{})
	if err != nil {
		return nil, err
	}
	var further []Reason
	for _, e := range state.Entries {
		tree, err := fields.Of(have[at], e.Delta)
		if err != nil {
			return nil, err
		}
		child := unstructured.Unstructured{Object: tree}
		if !controls(object.GetUID(), child) || idle(child) {
			continue
		}
		some, err := below(ctx, s, have[at], e.Ref, child)
		if err != nil {
			return nil, err
		}
		further = append(further, some...)
	}
	return deepestFirst(alike(further), found), nil
}

// deepestFirst puts the reasons of children before those of their owner, and drops reasons of
// the owner that repeat a child's.
func deepestFirst(children, own []Reason) []Reason {
	own = slices.DeleteFunc(own, func(r Reason) bool {
		return slices.ContainsFunc(children, func(c Reason) bool { return c.Text == r.Text })
	})
	for i, c := range children {
		if c.Next == "" && c.Object.Kind != kinds.Pods.Name {
			children[i].Next = "millrace why-not " + printer.ArgumentOf(c.Object)
		}
	}
	return append(children, own...)
}

// controls is whether a child has an owner reference with that UID whose controller is true or
// not set.
func controls(owner types.UID, child unstructured.Unstructured) bool {
	for _, o := range child.GetOwnerReferences() {
		if o.UID == owner && (o.Controller == nil || *o.Controller) {
			return true
		}
	}
	return false
}

// idle is whether an object needs nothing: a set with no replicas that is not being deleted, or a
// pod that has succeeded.
func idle(object unstructured.Unstructured) bool {
	replicas, sized, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	if number, is, _ := unstructured.NestedFloat64(object.Object, "spec", "replicas"); is {
		replicas, sized = int64(number), true
	}
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	return sized && replicas == 0 && object.GetDeletionTimestamp() == nil || phase == string(corev1.PodSucceeded)
}

// alike merges reasons with the same kind and text, and adds how many there are.
func alike(all []Reason) (merged []Reason) {
	type group struct{ kind, text string }
	count := map[group]int{}
	for _, r := range all {
		g := group{string(r.Object.Kind), r.Text}
		if count[g]++; count[g] == 1 && len(merged) < mostChildren {
			merged = append(merged, r)
		}
	}
	for i, r := range merged {
		if n := count[group{string(r.Object.Kind), r.Text}]; n > 1 {
			merged[i].Text += fmt.Sprintf(" (and %d more %s say the same)", n-1, r.Object.Kind.Resource())
		}
	}
	return merged
}

// own are the reasons in the object itself.
func own(ref events.Ref, object unstructured.Unstructured) (found []Reason) {
	say := func(next, format string, args ...any) {
		found = append(found, Reason{ref, fmt.Sprintf(format, args...), next})
	}
	if at := object.GetDeletionTimestamp(); at != nil {
		waits := ""
		if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
			waits = ", and waits for its finalizers " + strings.Join(finalizers, ", ")
		}
		say("", "it is being deleted since %s%s", printer.Time(at.Time), waits)
	}
	if paused, _, _ := unstructured.NestedBool(object.Object, "spec", "paused"); paused {
		say("millrace history shows who paused it", "it is paused (spec.paused)")
	}
	if suspended, _, _ := unstructured.NestedBool(object.Object, "spec", "suspend"); suspended {
		say("millrace history shows who suspended it", "it is suspended (spec.suspend)")
	}
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	waiting := waiting(object)
	for _, text := range waiting {
		say("", "%s", text)
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		kind, status := textOf(c, "type"), textOf(c, "status")
		wrong := slices.Contains(good, kind) && status == "False" || slices.Contains(bad, kind) && status == "True"
		if !wrong || strings.HasSuffix(kind, "eady") && len(found) > 0 || phase == string(corev1.PodSucceeded) {
			continue // an earlier reason explains why it is not ready
		}
		say("", "%s: %s", strings.TrimSuffix(strings.Join([]string{kind, status, textOf(c, "reason")}, " "), " "), textOf(c, "message"))
	}
	if phase == string(corev1.PodFailed) && len(found) == 0 {
		say("", "it has failed: %s %s", textOf(object.Object, "status", "reason"), textOf(object.Object, "status", "message"))
	}
	return found
}

// waiting are the reasons why containers of a pod wait.
func waiting(object unstructured.Unstructured) (found []string) {
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		containers, _, _ := unstructured.NestedSlice(object.Object, "status", list)
		for _, c := range containers {
			c, _ := c.(map[string]any)
			reason := textOf(c, "state", "waiting", "reason")
			if reason == "" || reason == "PodInitializing" || reason == "ContainerCreating" {
				continue
			}
			found = append(found, strings.TrimSuffix(fmt.Sprintf("container %s waits: %s: %s", textOf(c, "name"), reason, textOf(c, "state", "waiting", "message")), ": "))
		}
	}
	return found
}

func textOf(tree map[string]any, path ...string) string {
	text, _, _ := unstructured.NestedString(tree, path...)
	return text
}

// refused is the newest command that was refused or failed in the last turns of an object's
// controller.
func refused(ctx context.Context, b bus.Archive, kind kinds.Kind, ref events.Ref) ([]Reason, error) {
	controller := actor(kind)
	have, err := b.Controllers(ctx)
	if err != nil || !slices.Contains(have, controller) {
		return nil, err
	}
	standing, err := standing.New(b).Standing(ctx, kind, ref, controller)
	if err != nil {
		return nil, err
	}
	for _, t := range standing.Turns {
		if o := t.Outcome; o != nil && o.Results[events.Refused]+o.Results[events.Failed] > 0 { // a conflict is tried again at once
			return []Reason{{ref, fmt.Sprintf("%s could not, at %s: %s", controller, printer.Time(o.At), o.Failure), "millrace why-not " + printer.ArgumentOf(ref)}}, nil
		}
	}
	return nil, nil
}

// owned names the controller that recreates a pod, or says that none does.
func owned(ref events.Ref, pod unstructured.Unstructured) Reason {
	if owner := printer.Owner(pod); owner != "" {
		return Reason{ref, "it belongs to " + owner, "millrace why-not " + printer.Argument(owner, ref.Namespace)}
	}
	return Reason{ref, "it has no owner: no controller makes it again or moves it; the scheduler binds it, and its node's kubelet runs it", ""}
}
