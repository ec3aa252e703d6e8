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
	// remap is how long an object waits if its owner's kind is not served. The API server
	// may begin to serve a kind at any time, and discovery has no watch.
	//
	// Upstream: the REST mapper is reset every 30 s.
	remap = 30 * time.Second
	// unseen is the interval at which a live owner of an unwatched kind is checked again,
	// because no watch reports its deletion.
	unseen = time.Minute
	// retryUnresolvable is the interval at which an object whose owner cannot be looked
	// for is tried again, in case its references have changed.
	retryUnresolvable = 5 * time.Minute
	// recheck is the interval at which an owner looks again for dependents that block it.
	// A dependent that dropped its reference while no watcher ran does not name the owner that it left.
	recheck = time.Minute
)

// decide finishes the deletion of an owner that waits for its dependents, and otherwise
// judges whether the object still has an owner.
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

// orphan removes the references to the object from its dependents. Once none is left, it
// removes the finalizer.
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

// release removes the finalizer once no dependent blocks the deletion.
func (v View) release(now time.Time) reconcile.Decision {
	if len(v.Dependents) == 0 {
		return reconcile.Do("no dependent blocks its deletion", v.dropFinalizer(metav1.FinalizerDeleteDependents))
	}
	return reconcile.Wake(v.nextLook(now), "waits for dependents that block its deletion")
}

// nextLook returns the next multiple of recheck, counted from the deletion. It does not
// move while dependents are deleted one by one, so thousands of them request a single wake.
func (v View) nextLook(now time.Time) time.Time {
	since := now.Sub(v.Object.Meta.DeletionTimestamp.Time) % recheck
	if since < 0 { // deletionTimestamp is in the future during a grace period
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
		// One of the unknown owners lives, so the object stays. An owner that waits for
		// the object would otherwise wait for as long as that one lives.
		return reconcile.Do("has an owner, of a kind that is not watched, and references that no longer count",
			v.forget(v.Object, v.refs(Absent, Waiting), reconcile.IfAbsent(v.refs(Absent)...), v.tell()))
	case now.Before(again):
		return reconcile.Wake(again, because)
	case v.any(Solid) && len(v.refs(Absent, Unknown, Waiting)) == 0:
		return reconcile.Nothing("has an owner")
	case v.any(Solid):
		// The reference to a waiting owner goes too: that owner would wait forever for an
		// object that its other owner keeps.
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

// goInOrder deletes an object that has dependents and for which an owner waits. It
// deletes in the foreground, so that the lowest dependents go first.
func (v View) goInOrder(dead []metav1.OwnerReference) reconcile.Decision {
	// A dependent that waits itself may, in a cycle of references, be the owner: then
	// each would wait for the other. Without blockOwnerDeletion no owner waits for the
	// object. Upstream also acts on this suspicion, without proof.
	if blocking := v.blocking(); len(blocking) > 0 && waiting(&v.Dependents[0].Meta) {
		return reconcile.Do("may be part of an ownership cycle", v.unblock(blocking, dead))
	}
	return reconcile.Do("an owner waits for it, and it has dependents", v.delete(metav1.DeletePropagationForeground, dead))
}

// kept reports whether the writer found an owner alive that may be of an unwatched kind.
func (v View) kept() bool {
	return v.Refused != nil && v.Refused.Reason == ownerAlive && v.any(Unknown)
}

// patience returns the time before which repeating a refused command is pointless.
func (v View) patience() (again time.Time, because string) {
	if v.Refused == nil || !v.any(Unknown) {
		// The watch reports an owner of a watched kind, alive or dead. The key's back-off
		// repeats every other refused command.
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

// propagation returns the policy that the object's finalizers ask for.
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

// delete deletes the object, on condition that its absent owners are really absent, that
// its waiting owners still wait, and that no client has changed its owners meanwhile.
func (v View) delete(how metav1.DeletionPropagation, absent []metav1.OwnerReference) events.Command {
	object := &v.Object.Meta
	return reconcile.Delete(v.Object.Kind, object, reconcile.Propagate(how),
		reconcile.IfUnchanged(object), reconcile.IfSameOwners(object), reconcile.IfAbsent(absent...),
		reconcile.IfLeaving(v.refs(Waiting)...), v.tell())
}

// tell sends an Event about a reference to an object in another namespace.
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
		return reconcile.WithEvents(&events.Notice{
			About: about, Type: corev1.EventTypeWarning, Reason: "OwnerRefInvalidNamespace",
			Message: fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
				ref.APIVersion, ref.Kind, object.Meta.Namespace, ref.Name, ref.UID, object.Meta.Namespace),
		}, nil)
	}
	return reconcile.WithEvents(nil, nil)
}

func group(apiVersion string) string {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return "" // the core group has a version only
	}
	return group
}
