package owner

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Keys maps a dependent, such as a pod, to the owner of a kind that controls it and
// to the one that did before. An orphan maps to every owner that may adopt it: those
// in its namespace whose selector matches.
//
// Upstream: the pod handlers of the controllers of sets. There an orphan whose
// labels and owners are as before concerns no owner; here it always does, because a
// change that comes again must make the same turns as at first.
func Keys[T metav1.Object](kind kinds.Of[T], selector func(T) *metav1.LabelSelector) func(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	return func(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
		var keys []events.Key
		add := func(owner metav1.Object) {
			if key := (events.Key{Namespace: owner.GetNamespace(), Name: owner.GetName()}); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		for _, dependent := range []reconcile.Object{now, was} {
			if owner, ok := controllerOf(s, kind, dependent); ok {
				add(owner)
			}
		}
		if !adoptable(now) {
			return keys
		}
		for _, owner := range reconcile.List(s, kind, now.GetNamespace()) {
			if label.Selects(selector(owner), now) {
				add(owner)
			}
		}
		return keys
	}
}

// adoptable is true for an orphan that is not being deleted.
func adoptable(dependent reconcile.Object) bool {
	if dependent.None() || dependent.GetDeletionTimestamp() != nil || len(dependent.GetLabels()) == 0 {
		return false
	}
	_, controlled := Of(dependent)
	return !controlled
}

// controllerOf returns the owner of a kind that controls a dependent.
func controllerOf[T metav1.Object](s reconcile.Snapshot, kind kinds.Of[T], dependent reconcile.Object) (owner T, ok bool) {
	if dependent.None() {
		return owner, false
	}
	ref, ok := Of(dependent)
	if !ok {
		return owner, false
	}
	owner, ok = reconcile.Get(s, kind, dependent.GetNamespace(), ref.Name)
	return owner, ok && Refers(ref, kind.Kind, owner)
}
