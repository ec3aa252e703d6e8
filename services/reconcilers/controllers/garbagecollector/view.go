package garbagecollector

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// burst is the maximum number of dependents in one view, and so of commands in one turn.
const burst = 500

// View is the input of the turn of one object.
type View struct {
	Object Object `json:"object"`
	// Owners has the state of the owner of each reference, in the order of the references.
	Owners []Owner `json:"owners,omitempty"`
	// Dependents are the dependents that the decision needs, at most 500. For an
	// orphaning object: all that name it. For an owner that waits: those that block it.
	// For an object that an owner waits for: the dependents that wait themselves or, if
	// none does, any.
	Dependents []Object `json:"dependents,omitempty"`
	// Refused is the failure of the last command; nil if it succeeded.
	Refused *Refusal `json:"refused,omitempty"`
}

// Object is the part of an object that the collector uses.
type Object struct {
	Kind kinds.Kind `json:"kind"`
	// Meta has only name, namespace, uid, resourceVersion, deletionTimestamp, finalizers
	// and owner references.
	Meta metav1.ObjectMeta `json:"metadata"`
}

// Owner is what the view knows about the owner of a reference.
type Owner struct {
	State State `json:"state"`
	// Elsewhere is true if the owner is not where the reference points, while an object
	// with its uid exists in another namespace.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// State of an owner.
type State string

// The states of an owner.
const (
	// Solid owners exist and keep their dependents.
	Solid State = "solid"
	// Waiting owners are being deleted and wait for their dependents.
	Waiting State = "waiting"
	// Absent owners are not in the view, although their kind is.
	Absent State = "absent"
	// Unknown owners are of a kind that is not in the view.
	Unknown State = "unknown"
	// Unresolvable owners are of a namespaced kind, named by a cluster-scoped
	// object; they cannot be looked for anywhere.
	Unresolvable State = "unresolvable"
)

// The refusal reasons of the writer that a later turn takes into account.
const (
	ownerAlive   = "OwnerAlive"
	noMatch      = "NoMatch"
	unresolvable = "UnresolvableOwner"
)

// Refusal is the writer's reason for not carrying out a command.
type Refusal struct {
	Reason string    `json:"reason,omitempty"`
	Code   int       `json:"code,omitempty"`
	At     time.Time `json:"at"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	found, ok := s.Get(k.Kind, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	seen, ok := s.ByUID(found.GetUID())
	if !ok {
		return View{}, false
	}
	v := View{Object: objectOf(seen), Refused: refusal(s, k, found)}
	for _, ref := range seen.GetOwnerReferences() {
		v.Owners = append(v.Owners, ownerOf(s, seen, ref))
	}
	v.Dependents = relevant(s, k, v)
	return v, true
}

func objectOf(o reconcile.Object) Object {
	return Object{Kind: o.Kind, Meta: metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		DeletionTimestamp: o.GetDeletionTimestamp(), Finalizers: o.GetFinalizers(), OwnerReferences: o.GetOwnerReferences(),
	}}
}

// ownerOf looks for an owner where the reference points. An object with that uid in
// another namespace, or of another kind, is not the owner.
func ownerOf(s reconcile.Snapshot, o reconcile.Object, ref metav1.OwnerReference) Owner {
	kind, ok := s.KindOf(group(ref.APIVersion), ref.Kind)
	if !ok {
		return Owner{State: Unknown, Elsewhere: elsewhere(s, o, ref)}
	}
	namespace := ""
	if kind.Namespaced {
		namespace = o.GetNamespace()
		if namespace == "" {
			return Owner{State: Unresolvable, Elsewhere: elsewhere(s, o, ref)}
		}
	}
	owner, ok := s.Get(kind.Name, namespace, ref.Name)
	switch {
	case !ok || owner.GetUID() != ref.UID:
		return Owner{State: Absent, Elsewhere: elsewhere(s, o, ref)}
	case waiting(owner):
		return Owner{State: Waiting}
	default:
		return Owner{State: Solid}
	}
}

func elsewhere(s reconcile.Snapshot, o reconcile.Object, ref metav1.OwnerReference) bool {
	owner, ok := s.ByUID(ref.UID)
	return ok && owner.GetNamespace() != "" && owner.GetNamespace() != o.GetNamespace()
}

// relevant returns the dependents that the decision needs. Most objects need none, so a
// live owner does not list its thousands of dependents.
func relevant(s reconcile.Snapshot, k events.Key, v View) []Object {
	switch uid := v.Object.Meta.UID; {
	case orphaning(&v.Object.Meta):
		return pick(behind(s, k, &v.Object.Meta, s.Dependents(uid)), func(reconcile.Object) bool { return true })
	case waiting(&v.Object.Meta):
		// An object that owns itself does not wait for itself; upstream would wait forever.
		return pick(s.Dependents(uid), func(d reconcile.Object) bool { return d.GetUID() != uid && blocksOwner(d, uid) })
	case v.Object.Meta.DeletionTimestamp == nil && !v.any(Solid) && v.any(Waiting):
		all := s.Dependents(uid)
		if going := pick(all, func(d reconcile.Object) bool { return waiting(d) }); len(going) > 0 {
			return going
		}
		return pick(all, func(reconcile.Object) bool { return true })
	default:
		return nil
	}
}

// behind rotates the dependents if they exceed burst: it begins after the last one of the
// last turn that acted. So dependents that refuse to be changed do not block the others.
//
// Upstream: orphanDependents tries all of them.
func behind(s reconcile.Snapshot, k events.Key, owner metav1.Object, dependents []reconcile.Object) []reconcile.Object {
	last, ok := reconcile.LastOf(s, k, events.LaneWrite, owner)
	if !ok || len(last.Results) == 0 || len(dependents) <= burst {
		return dependents
	}
	ref := last.Results[len(last.Results)-1].Ref
	// Dependents are in the order of [events.Ref.Compare].
	at := slices.IndexFunc(dependents, func(o reconcile.Object) bool { return o.Ref().Compare(ref) > 0 })
	if at <= 0 {
		return dependents
	}
	return slices.Concat(dependents[at:], dependents[:at])
}

func pick(from []reconcile.Object, wanted func(reconcile.Object) bool) []Object {
	var picked []Object
	for _, o := range from {
		if len(picked) == burst {
			break
		}
		if !Ignored(o.Kind.Name) && wanted(o) {
			picked = append(picked, objectOf(o))
		}
	}
	return picked
}

// refusal returns the first failure of the last acting turn; nil if none failed.
func refusal(s reconcile.Snapshot, k events.Key, found metav1.Object) *Refusal {
	last, ok := reconcile.LastOf(s, k, events.LaneWrite, found)
	if !ok {
		return nil
	}
	failure, failed := last.Failure()
	if !failed {
		return nil
	}
	return &Refusal{Reason: failure.Reason, Code: failure.Code, At: last.At}
}

func (v View) any(state State) bool {
	return slices.ContainsFunc(v.Owners, func(o Owner) bool { return o.State == state })
}

// refs returns the references whose owner has one of the states.
func (v View) refs(states ...State) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for i, ref := range v.Object.Meta.OwnerReferences {
		if i < len(v.Owners) && slices.Contains(states, v.Owners[i].State) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// waiting reports whether an object is being deleted and waits for the dependents that block it.
func waiting(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// orphaning reports whether an object is being deleted and waits until no dependent refers to it.
func orphaning(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}
