package statefulset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide adopts and releases pods and revisions, creates the revision of the template, brings
// the pods to the wanted state, and reports the status.
func decide(v View, now time.Time) reconcile.Decision {
	selector, ok := label.Selector(v.Set.Spec.Selector)
	if !ok {
		return reconcile.Nothing("the selector is invalid or empty")
	}
	claimant := owner.Claimant{Kind: kinds.StatefulSets.Kind, Owner: v.Set, Selector: selector}
	pods := owner.Claims(claimant, kinds.Pods, v.members())
	revisions := owner.Claims(claimant, kinds.ControllerRevisions, v.Revisions)
	if changes := slices.Concat(revisions.Commands, pods.Commands, v.releases()); len(changes) > 0 {
		return reconcile.Do("pods or revisions are adopted or released", changes[:min(len(changes), Burst)]...)
	}
	h, create := v.history()
	switch {
	case create != nil && v.Set.DeletionTimestamp != nil:
		return reconcile.Nothing("the set is being deleted")
	case create != nil:
		// First and alone: a client that sees a pod can look up what it was made of.
		return reconcile.Do("the template has no revision yet", *create)
	}
	s := v.stage(pods.Mine, h, now)
	return reconcile.Join(s.act(), s.truncate(), s.report(), s.nextAvailable())
}

// stage is a set with its pods by position.
type stage struct {
	View
	history
	now time.Time
	// pods are all pods of the set.
	pods []*corev1.Pod
	// replicas are the wanted pods by position, nil where one is missing. condemned are the
	// others, highest ordinal first.
	replicas, condemned []*corev1.Pod
}

func (v View) stage(mine []*corev1.Pod, h history, now time.Time) stage {
	s := stage{View: v, history: h, now: now, pods: mine, replicas: make([]*corev1.Pod, v.wanted())}
	for _, p := range mine {
		switch at := v.ordinal(p) - v.start(); {
		case at >= 0 && at < len(s.replicas):
			s.replicas[at] = p
		default:
			s.condemned = append(s.condemned, p)
		}
	}
	slices.SortStableFunc(s.condemned, func(a, b *corev1.Pod) int { return v.ordinal(b) - v.ordinal(a) })
	return s
}

// act decides about pods and claims: first about the wanted pods, then about the condemned
// ones, then about those of another revision.
//
// Upstream: pkg/controller/statefulset, updateStatefulSet.
func (s stage) act() reconcile.Decision {
	if s.Set.DeletionTimestamp != nil {
		return reconcile.Nothing("the set is being deleted")
	}
	for _, step := range []func() (reconcile.Decision, bool){s.fill, s.keep, s.shrink, s.roll} {
		if d, over := step(); over {
			d.StatusBlind = !s.divided()
			return d
		}
	}
	return reconcile.Nothing("the pods are as desired")
}

// fill goes through the wanted pods. Where order matters, it stops at the first that is not
// available.
func (s stage) fill() (reconcile.Decision, bool) {
	var claims, commands []events.Command
	for at := range s.replicas {
		r := s.replica(at)
		claims, commands = append(claims, r.claims...), append(commands, r.commands...)
		if r.wait != "" && !s.atOnce() {
			if d := s.steps(claims, commands); len(d.Commands) > 0 {
				return d, true
			}
			return reconcile.Nothing(r.wait), true
		}
	}
	d := s.steps(claims, commands)
	return d, len(d.Commands) > 0
}

// steps puts the commands of positions and the creates of claims in one decision. A pod is
// not created in the same turn as its claims, but pods do not wait for the claims of others,
// because the API server may refuse a claim for good.
func (s stage) steps(claims, commands []events.Command) reconcile.Decision {
	because := "pods are not as they should be"
	if len(claims) > 0 {
		because = "claims do not match the set's policy"
	}
	all := slices.Concat(commands, claims)
	return reconcile.Do(because, all[:min(len(all), Burst)]...)
}

// replica is what happens at a position: creates of claims, and the other commands. wait is
// why later positions have to wait; empty if they need not.
type replica struct {
	claims, commands []events.Command
	wait             string
	// hints are Events to record once while their cause lasts.
	hints []hint
}

// replica decides about the pod at a position and its claims.
//
// Upstream: processReplica. There a pod whose volumes are not the set's is updated,
// which the API allows for none; here it is left as it is.
func (s stage) replica(at int) replica {
	p, ordinal := s.replicas[at], s.start()+at
	switch {
	case p == nil && s.occupied(s.name(ordinal)):
		return replica{wait: "a pod that is not the set's has the name"}
	case p == nil && s.stale(ordinal):
		return replica{wait: "a claim still goes with the pod before"}
	case p == nil:
		return s.absent(ordinal)
	case pod.Terminal(p) && p.DeletionTimestamp == nil:
		return replica{commands: []events.Command{s.deletion(p)}, wait: "a pod has ended"}
	case pod.Terminal(p):
		return replica{wait: "a pod has ended"}
	}
	r := replica{commands: s.owned(ordinal, p), wait: s.unwell(p)}
	if p.Status.Phase == corev1.PodPending {
		claims, leaving := s.missing(ordinal)
		if len(leaving) > 0 {
			return replica{claims: claims, wait: "a claim is being deleted"}
		}
		r.claims = claims
		r.hints = s.conflicts(ordinal, p)
	}
	switch {
	case r.wait != "" && !s.atOnce():
	case p.Labels[appsv1.StatefulSetPodNameLabel] != p.Name:
		r.commands = append(r.commands, s.rename(p))
	case len(r.commands) > 0 && r.commands[0].OnApplied == nil:
		r.commands[0].OnApplied = s.notice(corev1.EventTypeNormal, "SuccessfulUpdate", "Update Pod "+p.Name+" in StatefulSet "+s.Set.Name+" successful")
	}
	return r
}

// absent decides about a position without a pod: its claims come first. It sets the owners of
// the claims in the turn that creates the pod, because the pod may never exist.
func (s stage) absent(ordinal int) replica {
	claims, leaving := s.missing(ordinal)
	switch {
	case len(leaving) > 0:
		return replica{claims: claims, wait: "a claim is being deleted", hints: []hint{s.blocked(ordinal, leaving)}}
	case len(claims) > 0:
		return replica{claims: claims, wait: "claims come before their pod"}
	}
	commands := append([]events.Command{s.create(ordinal)}, s.owned(ordinal, nil)...)
	return replica{commands: commands, wait: "a pod is created after the other", hints: s.conflicts(ordinal, nil)}
}

// unwell is why later pods have to wait for one; empty if they need not.
func (s stage) unwell(p *corev1.Pod) string {
	switch {
	case p.DeletionTimestamp != nil:
		return "a pod is being deleted"
	case !running(p):
		return "a pod is not ready"
	case !s.available(p):
		return "a pod is not available"
	default:
		return ""
	}
}

// keep updates the owners of the claims of condemned pods, so that the claims go with the
// pods or stay.
func (s stage) keep() (reconcile.Decision, bool) {
	var commands []events.Command
	for _, p := range s.condemned {
		commands = append(commands, s.owned(s.ordinal(p), p)...)
	}
	return reconcile.Do("the owners of the claims of deleted pods change", commands...), len(commands) > 0
}

// shrink deletes the condemned pods, the highest ordinal first. It deletes the next one when
// the last has gone and all others are available. Only [stage.firstUnavailable] may be
// unavailable itself.
//
// Upstream: processCondemned.
func (s stage) shrink() (reconcile.Decision, bool) {
	var commands []events.Command
	for _, p := range s.condemned {
		switch {
		case p.DeletionTimestamp != nil && s.atOnce():
		case p.DeletionTimestamp != nil:
			return reconcile.Nothing("a pod is being deleted"), true
		case s.atOnce():
			commands = append(commands, s.deletion(p))
		case !(running(p) && s.available(p)) && p != s.firstUnavailable():
			return reconcile.Nothing("a pod is not healthy, and others are replaced when all are"), true
		default:
			return reconcile.Do("there are too many pods", s.deletion(p)), true
		}
	}
	return reconcile.Do("there are too many pods", commands[:min(len(commands), Burst)]...), len(commands) > 0
}

// roll deletes one pod of another revision, the highest ordinal first, when those above it
// are available; with the feature gate MaxUnavailableStatefulSet it may delete several.
func (s stage) roll() (reconcile.Decision, bool) {
	if s.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return reconcile.Nothing("pods are replaced when a user deletes them"), true
	}
	if s.Gates.On(gate.MaxUnavailableStatefulSet) {
		return s.rollSeveral()
	}
	for at := len(s.replicas) - 1; at >= s.partition(); at-- {
		p := s.replicas[at]
		switch {
		case p == nil:
			return reconcile.Nothing("a pod is missing"), true
		case revisionOf(p) != s.update.Name && p.DeletionTimestamp == nil:
			return reconcile.Do("a pod has another revision", s.deletion(p)), true
		case s.unavailable(p):
			return reconcile.Nothing("a pod is not available"), true
		}
	}
	return reconcile.Decision{}, false
}

// firstUnavailable is the condemned pod with the lowest ordinal that is unavailable; nil if
// none is. The caller has checked that order matters and that the wanted pods are available.
func (s stage) firstUnavailable() *corev1.Pod {
	for _, p := range slices.Backward(s.condemned) {
		if s.unavailable(p) {
			return p
		}
	}
	return nil
}

// nextAvailable asks for a turn when the next ready pod becomes available.
func (s stage) nextAvailable() reconcile.Decision {
	next := pod.NextAvailable(s.pods, s.Set.Spec.MinReadySeconds, s.now)
	if next.IsZero() {
		return reconcile.Decision{}
	}
	return reconcile.Wake(next, "a ready pod is not available yet")
}
