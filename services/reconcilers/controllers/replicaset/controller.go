// Package replicaset keeps as many pods running as each ReplicaSet asks for.
//
// A set claims the pods that its selector matches, gives up those that it does
// not match any more, and then has pods born or deleted until their number is
// right, at most [Burst] at a time. What it finds it reports in its status. That
// no turn is taken on a view older than the last one's effects is the shell's
// business; here every decision is plain arithmetic over what is seen.
package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Burst is how many births or deaths one turn decides at most.
const Burst = 500

// Controller keeps the number of pods of ReplicaSets.
var Controller = reconcile.Controller[View]{
	Name:    "replicaset-controller",
	Aliases: []string{"replicaset"},
	Queue:   "replicaset",
	Owns:    &kinds.ReplicaSets.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.ReplicaSets.Kind),
		{Kind: kinds.Pods.Kind, Keys: keysOfPod},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbCreate, Kind: kinds.Pods.Name},
		{Verb: events.VerbPatch, Kind: kinds.Pods.Name},
		{Verb: events.VerbDelete, Kind: kinds.Pods.Name},
		{Verb: events.VerbUpdate, Kind: kinds.ReplicaSets.Name, Subresource: "status"},
	},
	StatusBlind: true,
	Metrics:     []reconcile.Metric{ageRatio},
	Observe:     observe,
	Decide:      decide,
}

// View is what one turn can see.
type View struct {
	// Set is the ReplicaSet.
	Set *appsv1.ReplicaSet `json:"set"`
	// Pods are those that the set controls, and the orphans that it selects.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Crowd counts, by node, the active pods of this set and of the other sets
	// of its controller. It is collected only when there are pods to spare.
	Crowd pod.Crowd `json:"crowd,omitempty"`
	// Failure is what failed when this set last had pods claimed, born or
	// deleted; nil when nothing did.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is how an attempt of a set ended.
type Failure struct {
	// Attempt tells this attempt from all others.
	Attempt uint64 `json:"attempt"`
	// Result is the fate of the first command that failed.
	Result events.Result `json:"result"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	set, ok := reconcile.Get(s, kinds.ReplicaSets, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Set: set, Failure: failure(s, k)}
	selector, ok := label.Selector(set.Spec.Selector)
	if !ok {
		return v, true
	}
	active := 0
	for _, p := range reconcile.ControlledBy(s, kinds.Pods, set.UID) {
		if p.Namespace == set.Namespace {
			v.Pods = append(v.Pods, p)
			if pod.Active(p) {
				active++
			}
		}
	}
	for _, p := range reconcile.Orphans(s, kinds.Pods, set.Namespace) {
		if pod.Active(p) && selector.Matches(labels.Set(p.Labels)) {
			v.Pods = append(v.Pods, p)
		}
	}
	if active > v.wanted() {
		v.Crowd = crowd(s, set)
	}
	return v, true
}

func failure(s reconcile.Snapshot, k events.Key) *Failure {
	last, ok := s.Last(k, events.Act)
	if !ok {
		return nil
	}
	result, failed := last.Failure()
	if !failed {
		return nil
	}
	return &Failure{Attempt: last.Turn, Result: result}
}

// crowd counts the pods that are related to a set's own: whatever the sets of
// the same controller select.
//
// Upstream: pkg/controller/replicaset/replica_set.go, getIndirectlyRelatedPods;
// a set without a controller has no relations, not even with itself.
func crowd(s reconcile.Snapshot, set *appsv1.ReplicaSet) pod.Crowd {
	controller, ok := owner.Of(set)
	if !ok {
		return nil
	}
	var selectors []labels.Selector
	for _, sibling := range reconcile.ControlledBy(s, kinds.ReplicaSets, controller.UID) {
		if selector, ok := label.Selector(sibling.Spec.Selector); ok && sibling.Namespace == set.Namespace {
			selectors = append(selectors, selector)
		}
	}
	company := pod.Crowd{}
	for _, p := range reconcile.List(s, kinds.Pods, set.Namespace) {
		for _, selector := range selectors {
			if selector.Matches(labels.Set(p.Labels)) {
				company.Join(p)
				break
			}
		}
	}
	return company
}

// keysOfPod maps a pod to the set that controls it, the one that did before, and
// for an orphan to every set that may adopt it.
//
// Upstream: pkg/controller/replicaset/replica_set.go, updatePod. There an orphan
// whose labels and owners are as before concerns nobody; here it always does,
// because a change that comes again must make the same turns as at first.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	add := func(key events.Key) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, p := range []reconcile.Object{now, was} {
		if key, ok := controllerOf(s, p); ok {
			add(key)
		}
	}
	if !adoptable(now) {
		return keys
	}
	for _, set := range reconcile.List(s, kinds.ReplicaSets, now.GetNamespace()) {
		if label.Selects(set.Spec.Selector, now) {
			add(events.Key{Namespace: set.Namespace, Name: set.Name})
		}
	}
	return keys
}

// adoptable is true for an orphan that is not on its way out.
func adoptable(p reconcile.Object) bool {
	if p.None() || p.GetDeletionTimestamp() != nil || len(p.GetLabels()) == 0 {
		return false
	}
	_, controlled := owner.Of(p)
	return !controlled
}

func controllerOf(s reconcile.Snapshot, p reconcile.Object) (events.Key, bool) {
	if p.None() {
		return events.Key{}, false
	}
	ref, ok := owner.Of(p)
	if !ok {
		return events.Key{}, false
	}
	set, ok := reconcile.Get(s, kinds.ReplicaSets, p.GetNamespace(), ref.Name)
	if !ok || !owner.Refers(ref, kinds.ReplicaSets.Kind, set) {
		return events.Key{}, false
	}
	return events.Key{Namespace: set.Namespace, Name: set.Name}, true
}

// wanted is how many pods there should be. The API sets a missing number to 1.
func (v View) wanted() int {
	if v.Set.Spec.Replicas == nil {
		return 1
	}
	return int(*v.Set.Spec.Replicas)
}

// available tells whether a pod counts as available to this set.
func (v View) available(p *corev1.Pod, now time.Time) bool {
	return pod.Available(p, v.Set.Spec.MinReadySeconds, now)
}
