package garbagecollector

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// remap is how long a kind that is not served is left alone; a new kind may
	// be served at any time, and discovery is not told.
	//
	// Upstream: the REST mapper is reset every 30 s.
	remap = 30 * time.Second
	// unseen is how often an owner that lives but is of a kind that is not
	// watched is looked at again: its deletion will not be announced.
	unseen = time.Minute
	// retryUnresolvable is how often an object whose owner can be looked for nowhere is
	// tried again, in case its references have changed.
	retryUnresolvable = 5 * time.Minute
	// recheck is how often an owner looks again for dependents that block it. A
	// dependent that dropped its reference while no watcher looked does not say
	// which owner it left.
	recheck = time.Minute
)

// decide finishes the deletion of an owner that has business with its
// dependents, and otherwise judges whether the object still has an owner.
func decide(v View, now time.Time) reconcile.Decision {
	switch object := &v.Object.Meta; {
	case orphaning(object):
		return v.orphan()
	case waiting(object):
		return v.release(now)
	case object.DeletionTimestamp != nil:
		return reconcile.Nothing("already being deleted")
	case len(object.OwnerReferences) == 0:
		return reconcile.Nothing("has no owner")
	case v.any(Unresolvable):
		// Upstream: such an object is given up, not retried and never deleted.
		return reconcile.Nothing("cluster-scoped, but names a namespaced owner")
	default:
		return v.judge(now)
	}
}

// orphan makes the dependents forget the object; once none is left that names
// it, the object may go.
func (v View) orphan() reconcile.Decision {
	if len(v.Dependents) == 0 {
		return reconcile.Do("orphaned its dependents", v.dropFinalizer(metav1.FinalizerOrphanDependents))
	}
	var strip []events.Command
	for _, d := range v.Dependents {
		strip = append(strip, v.forget(d, referencesTo(d, v.Object.Meta.UID)))
	}
	return reconcile.Do("orphans its dependents", strip...)
}

// release lets the object go when no dependent blocks it any more.
func (v View) release(now time.Time) reconcile.Decision {
	if len(v.Dependents) == 0 {
		return reconcile.Do("no dependent blocks its deletion", v.dropFinalizer(metav1.FinalizerDeleteDependents))
	}
	return reconcile.Wake(v.nextLook(now), "waits for dependents that block its deletion")
}

// nextLook is the next of the moments, counted from the deletion, at which a
// waiting owner looks again. It does not move while its dependents die, so
// thousands of them ask for one wake.
func (v View) nextLook(now time.Time) time.Time {
	since := now.Sub(v.Object.Meta.DeletionTimestamp.Time) % recheck
	if since < 0 { // deletionTimestamp lies ahead during a grace period
		since += recheck
	}
	return now.Add(recheck - since)
}

// judge decides about an object with owner references that is not being
// deleted.
func (v View) judge(now time.Time) reconcile.Decision {
	again, because := v.patience()
	dead := v.refs(Absent, Unknown)
	switch {
	case v.kept() && len(v.refs(Absent, Waiting)) > 0:
		// One of them lives, whichever it is, so the object stays; and an owner that
		// waits for it would wait for as long as that one lives.
		return reconcile.Do("has an owner, of a kind that is not watched, and references that no longer count",
			v.forget(v.Object, v.refs(Absent, Waiting), reconcile.IfAbsent(v.refs(Absent)...), v.tell()))
	case now.Before(again):
		return reconcile.Wake(again, because)
	case v.any(Solid) && len(v.refs(Absent, Unknown, Waiting)) == 0:
		return reconcile.Nothing("has an owner")
	case v.any(Solid):
		// A waiting owner is forgotten too: it would wait for ever for an object
		// that its other owner keeps.
		return reconcile.Do("has an owner, and references that no longer count",
			v.forget(v.Object, v.refs(Absent, Unknown, Waiting), reconcile.IfAbsent(dead...), v.tell()))
	case v.any(Waiting) && len(v.Dependents) > 0:
		return v.goInOrder(dead)
	case v.any(Waiting):
		return reconcile.Do("an owner waits for it", v.delete(v.propagation(), dead))
	default:
		return reconcile.Do("its owners are gone", v.delete(v.propagation(), dead))
	}
}

// goInOrder deletes an object whose owner waits for it and that has dependents
// of its own: in the foreground, so that the lowest goes first.
func (v View) goInOrder(dead []metav1.OwnerReference) reconcile.Decision {
	// A dependent that waits itself may, around some corners, be the owner: then
	// each would wait for the other. An object that does not block cannot be
	// waited for. Upstream does the same on the same suspicion, without proof.
	if blocking := v.blocking(); len(blocking) > 0 && waiting(&v.Dependents[0].Meta) {
		return reconcile.Do("may be part of a circle of owners", v.unblock(blocking, dead))
	}
	return reconcile.Do("an owner waits for it, and it has dependents", v.delete(metav1.DeletePropagationForeground, dead))
}

// kept tells whether an owner was found alive that may be one of a kind that is not watched.
func (v View) kept() bool {
	return v.Refused != nil && v.Refused.Reason == ownerAlive && v.any(Unknown)
}

// patience is the moment before which a refused command is not worth repeating.
func (v View) patience() (again time.Time, because string) {
	if v.Refused == nil || !v.any(Unknown) {
		// An owner of a kind that is watched shows up by itself, alive or dead;
		// what else was refused is repeated with the key's backoff.
		return time.Time{}, ""
	}
	switch v.Refused.Reason {
	case ownerAlive:
		return v.Refused.At.Add(unseen), "has an owner, of a kind that is not watched"
	case noMatch:
		return v.Refused.At.Add(remap), "names an owner of a kind that is not served"
	case unresolvable:
		return v.Refused.At.Add(retryUnresolvable), "names an owner that can be looked for nowhere"
	default:
		return time.Time{}, ""
	}
}

// propagation honours what the object asks for by its finalizers.
func (v View) propagation() metav1.DeletionPropagation {
	propagation := metav1.DeletePropagationBackground
	for _, f := range v.Object.Meta.Finalizers {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return metav1.DeletePropagationOrphan
		case metav1.FinalizerDeleteDependents:
			propagation = metav1.DeletePropagationForeground
		}
	}
	return propagation
}

// delete ends the object, provided that its absent owners are absent in truth,
// those that wait for it still do, and no client has given it other owners meanwhile.
func (v View) delete(how metav1.DeletionPropagation, absent []metav1.OwnerReference) events.Command {
	object := &v.Object.Meta
	return reconcile.Delete(v.Object.Kind, object, reconcile.Propagate(how),
		reconcile.IfUnchanged(object), reconcile.IfSameOwners(object), reconcile.IfAbsent(absent...),
		reconcile.IfLeaving(v.refs(Waiting)...), v.tell())
}

// tell reports a reference that reaches into another namespace.
//
// Upstream: pkg/controller/garbagecollector/graph_builder.go,
// reportInvalidNamespaceOwnerRef.
func (v View) tell() reconcile.Option {
	for i, ref := range v.Object.Meta.OwnerReferences {
		if i >= len(v.Owners) || !v.Owners[i].Elsewhere {
			continue
		}
		object := v.Object
		about := reconcile.About(object.Kind, &object.Meta)
		about.ResourceVersion = ""
		return reconcile.Tell(&events.Notice{
			About: about, Type: corev1.EventTypeWarning, Reason: "OwnerRefInvalidNamespace",
			Message: fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
				ref.APIVersion, ref.Kind, object.Meta.Namespace, ref.Name, ref.UID, object.Meta.Namespace),
		}, nil)
	}
	return reconcile.Tell(nil, nil)
}

func group(apiVersion string) string {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return "" // the core group has a version only
	}
	return group
}
