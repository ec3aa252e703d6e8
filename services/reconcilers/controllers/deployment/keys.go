package deployment

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// keysOfSet maps a ReplicaSet to the Deployment that controls it, the one that
// did before, and for an orphan to every Deployment that may adopt it.
func keysOfSet(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, set := range []reconcile.Object{now, was} {
		if d, ok := deploymentOf(s, set); ok && (len(keys) == 0 || keys[0] != keyOf(d)) {
			keys = append(keys, keyOf(d))
		}
	}
	if !adoptable(was, now) {
		return keys
	}
	for _, d := range reconcile.List(s, kinds.Deployments, now.GetNamespace()) {
		if key := keyOf(d); label.Selects(d.Spec.Selector, now) && (len(keys) == 0 || keys[0] != key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// adoptable reports whether an orphan became adoptable by this change.
func adoptable(was, now reconcile.Object) bool {
	if now.None() || now.GetDeletionTimestamp() != nil || len(now.GetLabels()) == 0 {
		return false
	}
	if _, controlled := owner.Of(now); controlled {
		return false
	}
	return was.None() || !maps.Equal(was.GetLabels(), now.GetLabels()) ||
		!equality.Semantic.DeepEqual(was.GetOwnerReferences(), now.GetOwnerReferences())
}

// keysOfPod maps a pod that its set has lost to the set's Deployment, if that uses
// Recreate and has no running pod left. Everything else about pods a Deployment reads in
// the status of its sets.
//
// Upstream: deletePod looks at the end of pods alone. A set that lets go of one says
// so in its status afterwards; here it may have said that before.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if was.None() {
		return nil
	}
	ref, ok := owner.Of(was)
	if !ok {
		return nil
	}
	if !now.None() {
		if still, ok := owner.Of(now); ok && still.UID == ref.UID {
			return nil
		}
	}
	set, ok := reconcile.Get(s, kinds.ReplicaSets, was.GetNamespace(), ref.Name)
	if !ok || !owner.Refers(ref, kinds.ReplicaSets.Kind, set) {
		return nil
	}
	d, ok := deploymentOf(s, reconcile.Object{Kind: kinds.ReplicaSets.Kind, Object: set})
	if !ok || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	for _, sibling := range reconcile.ControlledBy(s, kinds.ReplicaSets, d.UID) {
		for _, p := range reconcile.ControlledBy(s, kinds.Pods, sibling.UID) {
			if p.UID != was.GetUID() && !pod.Terminal(p) {
				return nil
			}
		}
	}
	return []events.Key{keyOf(d)}
}

// deploymentOf returns the Deployment that controls a ReplicaSet, if it exists.
func deploymentOf(s reconcile.Snapshot, set reconcile.Object) (*appsv1.Deployment, bool) {
	if set.None() {
		return nil, false
	}
	ref, ok := owner.Of(set)
	if !ok {
		return nil, false
	}
	d, ok := reconcile.Get(s, kinds.Deployments, set.GetNamespace(), ref.Name)
	if !ok || !owner.Refers(ref, kinds.Deployments.Kind, d) {
		return nil, false
	}
	return d, true
}

func keyOf(d *appsv1.Deployment) events.Key {
	return events.Key{Namespace: d.Namespace, Name: d.Name}
}
