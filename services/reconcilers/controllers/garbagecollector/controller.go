// Package garbagecollector deletes objects whose owners are gone.
//
// Every object may name owners. When all of them are gone, the collector deletes the
// object; when some are gone and some live, it only removes the references to the dead
// ones. An owner deleted in the foreground waits until the dependents that block it are
// gone. An owner deleted with the orphan policy waits until no dependent refers to it any
// more. In both cases the owner has a finalizer, which the collector removes.
//
// Each object of any kind is a key of its own and decides about itself: an owner with ten
// thousand dependents is ten thousand small turns, not one large one. The graph is the
// snapshot. It may lag behind the cluster, and kinds in it are not ordered with respect
// to each other, so an owner that is not in it is only "absent as far as seen". Each
// command that rests on an absence carries the reference, and the writer looks for that
// owner live just before it acts. The outcome returns the writer's refusals, which are
// part of the next view.
//
// One thing is left out. For a cluster-scoped object that names a namespaced owner,
// upstream writes an Event as often as it looks at the object; this controller decides
// nothing about such an object, so it writes no Event either.
package garbagecollector

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the garbage collector.
var Controller = reconcile.Controller[View]{
	Name:     "garbage-collector-controller",
	Aliases:  []string{"garbagecollector"},
	Identity: "generic-garbage-collector",
	Queue:    "garbage_collector_attempt_to_delete",
	Inputs:   []reconcile.Input{{Every: true, Keys: keys}},
	Writes: reconcile.Writes{
		{Verb: events.VerbDelete, Any: true, On: reconcile.Itself, Unchanged: true,
			Propagation: []metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}},
		{Verb: events.VerbPatch, Any: true, On: reconcile.Itself, Fields: []string{".metadata.finalizers"}, Unchanged: true, How: patches},
		{Verb: events.VerbPatch, Any: true, Fields: []string{".metadata.ownerReferences"}, How: patches},
	},
	Events: reconcile.EventPromises{
		{Any: true, On: reconcile.Itself, Reasons: []string{"OwnerRefInvalidNamespace"}},
	},
	Silent:  true,
	Observe: observe,
	Decide:  decide,
}

// Ignored reports whether objects of a kind are never collected, nor looked at as
// owners.
//
// Upstream: pkg/controller/garbagecollector/graph_builder.go, ignoredResources.
func Ignored(kind kinds.Name) bool {
	return kind == kinds.NameOf("", "events") || kind == kinds.NameOf("events.k8s.io", "events")
}

// keys maps a change to the object itself, to the dependents that have lost it or must go
// before it, and to the owners that may wait for it.
func keys(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	switch {
	case now.None() && was.None():
		return nil
	case now.None():
		return afterDeletion(s, was)
	case Ignored(now.Kind.Name):
		return nil
	case was.None():
		return afterChange(s, was, now)
	case was.GetUID() != now.GetUID():
		// Another object under the same name: a deletion and a create in one.
		return append(afterDeletion(s, was), afterChange(s, reconcile.Object{}, now)...)
	default:
		return afterChange(s, was, now)
	}
}

func afterDeletion(s reconcile.Snapshot, gone reconcile.Object) []events.Key {
	if Ignored(gone.Kind.Name) {
		return nil
	}
	keys := dependents(s, gone)
	for _, ref := range gone.GetOwnerReferences() {
		keys = append(keys, leaving(s, ref)...)
	}
	return keys
}

func afterChange(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	changed := was.None() || differ(was, now)
	if changed && concerns(now) {
		keys = append(keys, keyOf(now))
	}
	if changed && waiting(now) {
		keys = append(keys, dependents(s, now)...)
	}
	for _, ref := range now.GetOwnerReferences() {
		if was.None() || !slices.ContainsFunc(was.GetOwnerReferences(), sameOwner(ref)) {
			keys = append(keys, leaving(s, ref)...) // an orphaning owner may have to remove this new reference
		}
	}
	if was.None() {
		return keys
	}
	for _, ref := range was.GetOwnerReferences() {
		if !slices.ContainsFunc(now.GetOwnerReferences(), sameOwner(ref)) {
			keys = append(keys, leaving(s, ref)...)
		}
	}
	return keys
}

// concerns reports whether there may be something to decide about an object.
func concerns(o metav1.Object) bool {
	return len(o.GetOwnerReferences()) > 0 || waiting(o) || orphaning(o)
}

func differ(was, now metav1.Object) bool {
	return was.GetDeletionTimestamp().IsZero() != now.GetDeletionTimestamp().IsZero() ||
		!slices.Equal(was.GetFinalizers(), now.GetFinalizers()) ||
		!slices.EqualFunc(was.GetOwnerReferences(), now.GetOwnerReferences(), sameReference)
}

func sameReference(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && sameOwner(a)(b)
}

// sameOwner matches references to the same owner with the same blockOwnerDeletion.
func sameOwner(a metav1.OwnerReference) func(metav1.OwnerReference) bool {
	return func(b metav1.OwnerReference) bool { return a.UID == b.UID && blocks(a) == blocks(b) }
}

// leaving returns the key of an owner that is being deleted and waits for its dependents.
func leaving(s reconcile.Snapshot, ref metav1.OwnerReference) []events.Key {
	owner, ok := s.ByUID(ref.UID)
	if !ok || !waiting(owner) && !orphaning(owner) {
		return nil
	}
	return []events.Key{keyOf(owner)}
}

func dependents(s reconcile.Snapshot, owner reconcile.Object) []events.Key {
	var keys []events.Key
	for _, d := range s.Dependents(owner.GetUID()) {
		if !Ignored(d.Kind.Name) {
			keys = append(keys, keyOf(d))
		}
	}
	return keys
}

func keyOf(o reconcile.Object) events.Key { return events.Key(o.Ref()) }

// patches are the patch types for kinds with and without merge keys.
var patches = []types.PatchType{types.StrategicMergePatchType, types.MergePatchType}
