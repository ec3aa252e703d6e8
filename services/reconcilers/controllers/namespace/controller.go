// Package namespace empties namespaces that are being deleted, and then removes their
// finalizer.
//
// Only the API server knows what a namespace holds: some kinds are not watched, and a
// new kind may be served at any time. So the controller asks. The writer discovers all
// kinds that can be deleted, lists each of them live, and answers with what it found,
// including the names and uids of remaining objects. That answer is an outcome and part
// of the record. The controller deletes each remaining object by its uid, and asks
// again at the end of the same turn. When an answer says that every kind is known,
// could be listed and is empty, the controller removes the namespace's finalizer, and
// the API server deletes the namespace. The record thus also shows why.
//
// Pods come first: while a namespace holds any, the writer looks at nothing else.
//
// The controller begins some seconds after the deletion of the namespace ([settle]),
// when every API server knows that nothing may be created in it any more. It soon looks
// again at objects that take time (a pod with a grace period, an object with a
// finalizer), then less and less often, but never later than upstream would.
//
// The namespace's conditions report the remaining objects and the failures, in
// upstream's words. Upstream reports that nothing remains while pods do; here the pods
// are counted.
//
// Upstream deletes whole collections. A request for each object costs the API server no
// more (it deletes the objects of a collection one by one), each deletion has its own
// cause on record, and none can hit another object of that name.
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
	"github.com/millrace/millrace/pkg/events/query"
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
		{Verb: events.VerbAsk, Kind: kinds.Namespaces.Name, Subresource: query.SubContents, On: reconcile.Itself},
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
	// Contents is what the namespace held at At; nil if that is not known, or is older
	// than the last deletes.
	Contents *query.Contents `json:"contents,omitempty"`
	At       time.Time       `json:"at,omitzero"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
	// Refused are the deletes before At that did not succeed, in order.
	Refused []Refusal `json:"refused,omitempty"`
	// Deleted are the objects deleted before At, according to the API server.
	Deleted []types.UID `json:"deleted,omitempty"`
	// Unsaid tells that the API server refused the last report about the namespace.
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
	if said, ok := reconcile.LastOf(s, k, events.LaneStatus, ns); ok {
		_, v.Unsaid = said.Failure()
	}
	last, ok := reconcile.LastOf(s, k, events.LaneWrite, ns)
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

// hear reads an answer.
func (v *View) hear(r events.Result, at time.Time) {
	contents := new(query.Contents)
	if err := reconcile.Read(r, contents); err != nil {
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
		return
	}
	v.Contents, v.At = contents, at
}

// forget drops the deleted objects that are gone, because only remaining objects
// matter.
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
