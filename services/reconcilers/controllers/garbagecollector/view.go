package garbagecollector

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// burst bounds the dependents in one view, and so the commands of one turn.
const burst = 500

// View is what the turn of one object can see.
type View struct {
	Object Object `json:"object"`
	// Owners are what is known of each owner reference, in their order.
	Owners []Owner `json:"owners,omitempty"`
	// Dependents are those that the judgement rests on, at most 500: all that
	// name an orphan maker; those that block an owner that waits for them; and,
	// when owners of the object wait for it, those that wait themselves or, if
	// none does, any.
	Dependents []Object `json:"dependents,omitempty"`
	// Refused is why the writer did not do what was asked last.
	Refused *Refusal `json:"refused,omitempty"`
}

// Object is an object as far as the collector looks at it.
type Object struct {
	Kind kinds.Kind `json:"kind"`
	// Meta has name, namespace, uid, resourceVersion, deletionTimestamp,
	// finalizers and owner references only.
	Meta metav1.ObjectMeta `json:"metadata"`
}

// Owner is what the view knows about the target of an owner reference.
type Owner struct {
	State State `json:"state"`
	// Elsewhere is true for an owner that is not where the reference points,
	// while an object with its uid lives in another namespace.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// State of an owner.
type State string

// The states of an owner.
const (
	// Solid owners are there and keep what they own.
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

// The reasons of the writer that a later turn heeds.
const (
	ownerAlive   = "OwnerAlive"
	noMatch      = "NoMatch"
	unresolvable = "UnresolvableOwner"
)

// Refusal is the writer's answer to a command that was not carried out.
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

// ownerOf looks for an owner where the reference says it is. An object with the
// right uid somewhere else, or of another kind, is not the owner.
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

// relevant picks the dependents that the judgement rests on. Most objects need
// none, and an owner that just lives is not asked for its thousands.
func relevant(s reconcile.Snapshot, k events.Key, v View) []Object {
	switch uid := v.Object.Meta.UID; {
	case orphaning(&v.Object.Meta):
		return pick(behind(s, k, &v.Object.Meta, s.Dependents(uid)), func(reconcile.Object) bool { return true })
	case waiting(&v.Object.Meta):
		// What owns itself does not wait for itself; upstream would for ever.
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

// behind are dependents in another order where they are more than a turn can hold: first
// those behind the last one of a turn that failed. So dependents that refuse to be changed
// keep off no others.
//
// Upstream: orphanDependents tries all of them.
func behind(s reconcile.Snapshot, k events.Key, owner metav1.Object, dependents []reconcile.Object) []reconcile.Object {
	last, ok := reconcile.LastOf(s, k, events.Act, owner)
	if !ok || len(last.Results) == 0 || len(dependents) <= burst {
		return dependents
	}
	ref := last.Results[len(last.Results)-1].Ref
	at := slices.IndexFunc(dependents, func(o reconcile.Object) bool { return compare(o.Ref(), ref) > 0 })
	if at <= 0 {
		return dependents
	}
	return slices.Concat(dependents[at:], dependents[:at])
}

// compare is the order of [reconcile.Snapshot.Dependents].
func compare(a, b events.Ref) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
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

// refusal is the failure that the next decision heeds, if the last one failed.
func refusal(s reconcile.Snapshot, k events.Key, found metav1.Object) *Refusal {
	last, ok := reconcile.LastOf(s, k, events.Act, found)
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

// refs are the owner references whose owner is in one of the states.
func (v View) refs(states ...State) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for i, ref := range v.Object.Meta.OwnerReferences {
		if i < len(v.Owners) && slices.Contains(states, v.Owners[i].State) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// waiting is true for an object that is being deleted and stays until its
// blocking dependents are gone.
func waiting(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// orphaning is true for an object that is being deleted and stays until its
// dependents have forgotten it.
func orphaning(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}
