// Package namespace empties namespaces that are being deleted, and lets them go.
//
// Only the API server knows what is in a namespace: of some kinds nothing is
// watched, and a new kind may be served at any time. So it is asked. The writer looks
// up all kinds that can be deleted, lists each of them live, and says what it found,
// with the names and uids of what still stands; that answer is an outcome, on record
// like any other. What stands is deleted, each object by its uid, and at the end of
// the same turn the question is asked again. When an answer says that every kind is
// known, could be listed, and has nothing, the namespace's finalizer is taken away, and
// the API server lets the namespace go. So it is on record, too, on what that rested.
//
// Pods go first: while there are any, nothing else is looked at.
//
// It begins some seconds after the namespace was deleted ([settle]), when every API
// server knows that nothing new may be created in it. What takes its time to go (a pod
// that has a grace period, an object with a finalizer) is looked at again soon, and
// less and less often, yet never later than upstream would.
//
// What is left, and what went wrong, is in the namespace's conditions, in upstream's
// words. Upstream says that nothing remains while pods do; here they are counted.
//
// Upstream deletes whole collections. One request for each object costs the API server
// no more (it deletes the objects of a collection one after the other), each one's end
// has its own cause on record, and none can hit another object of that name.
package namespace

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller empties namespaces that are being deleted.
var Controller = reconcile.Controller[View]{
	Name:    "namespace-controller",
	Aliases: []string{"namespace"},
	Queue:   "namespace",
	Owns:    &kinds.Namespaces.Kind,
	Inputs:  []reconcile.Input{{Kind: kinds.Namespaces.Kind, Keys: leaving}},
	Writes: reconcile.Writes{
		{Verb: events.VerbAsk, Kind: kinds.Namespaces.Name, Subresource: events.SubContents, On: reconcile.Itself},
		{Verb: events.VerbDelete, Any: true, On: reconcile.Within, Propagation: []metav1.DeletionPropagation{metav1.DeletePropagationBackground}, Where: ".metadata.deletionTimestamp"},
		{Verb: events.VerbUpdate, Kind: kinds.Namespaces.Name, Subresource: "status", On: reconcile.Itself},
		{Verb: events.VerbUpdate, Kind: kinds.Namespaces.Name, Subresource: "finalize", On: reconcile.Itself, Changes: []string{".spec.finalizers"}, Where: ".metadata.deletionTimestamp"},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// View is what one turn can see.
type View struct {
	Namespace *corev1.Namespace `json:"namespace"`
	// Contents is what the namespace held at At; nil when that is not known, or not
	// as of after the last deletions.
	Contents *events.Contents `json:"contents,omitempty"`
	At       time.Time        `json:"at,omitzero"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
	// Refused are deletes before that which did not succeed, in their order.
	Refused []Refusal `json:"refused,omitempty"`
	// Deleted are objects that were deleted before that, as the API server said.
	Deleted []types.UID `json:"deleted,omitempty"`
	// Unsaid tells that what was last to be said of the namespace was refused.
	Unsaid bool `json:"unsaid,omitempty"`
}

// Refusal is why an object was not deleted.
type Refusal struct {
	Kind    kinds.Name `json:"kind"`
	UID     types.UID  `json:"uid"`
	Message string     `json:"message"`
}

// leaving maps a namespace that is being deleted to itself.
func leaving(_ reconcile.Snapshot, _, now reconcile.Object) []events.Key {
	if now.None() || now.GetDeletionTimestamp() == nil {
		return nil
	}
	return []events.Key{{Name: now.GetName()}}
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	ns, ok := reconcile.Get(s, kinds.Namespaces, "", k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Namespace: ns}
	if said, ok := reconcile.LastOf(s, k, events.Tell, ns); ok {
		_, v.Unsaid = said.Failure()
	}
	last, ok := reconcile.LastOf(s, k, events.Act, ns)
	if !ok {
		return v, true
	}
	for _, r := range last.Results {
		switch {
		case r.Status == events.Answered:
			v.hear(r, last.At)
		case r.Ref.Kind == kinds.Namespaces.Name: // the namespace itself
		case r.OK():
			v.Deleted = append(v.Deleted, r.UID)
		case r.Status == events.Failed, r.Status == events.Refused && r.Code != 0:
			v.Refused = append(v.Refused, Refusal{Kind: r.Ref.Kind, UID: r.UID, Message: cmp.Or(r.Message, r.Reason)})
		}
	}
	v.forget()
	return v, true
}

// hear takes in an answer.
func (v *View) hear(r events.Result, at time.Time) {
	contents := new(events.Contents)
	if err := reconcile.Read(r, contents); err != nil {
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
		return
	}
	v.Contents, v.At = contents, at
}

// forget leaves out what was deleted and is gone: only what stands matters.
func (v *View) forget() {
	if v.Contents == nil {
		v.Deleted = nil
		return
	}
	standing := map[types.UID]bool{}
	for _, h := range v.Contents.Kinds {
		for _, o := range h.Standing {
			standing[o.UID] = true
		}
	}
	v.Deleted = slices.DeleteFunc(v.Deleted, func(uid types.UID) bool { return !standing[uid] })
}
