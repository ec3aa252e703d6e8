// Package pvcprotection keeps PersistentVolumeClaims that pods use from being
// deleted, by a finalizer: every claim gets it, and a deleted one loses it when no
// pod that was given a node uses it.
//
// What is seen of the pods may be older than the claim, so it only tells when a claim
// stays. Before one is let go, the writer is asked which pods there are: it lists them
// live, after the deletion of the claim was seen. The scheduler gives no pod a node
// whose claim is deleted, so a pod that is in no such answer will not use it. The
// answer is on record, and the claim is let go because of it and nothing else.
package pvcprotection

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// guard is the finalizer. The API server's admission puts it on new claims; the
// controller sees to those of before.
const guard = "kubernetes.io/pvc-protection"

const (
	// lasting is how old an answer may be for the claim to be let go because of it.
	lasting = 30 * time.Second
	// again is when it is asked again after an answer that names a pod. Such a pod is
	// seen a moment later, and then its end is waited for; or it has gone already.
	again = time.Second
)

// Controller is the claim protection controller, under the default feature gates.
var Controller = New(nil)

// New makes the controller, under feature gates that are not at their defaults.
func New(gates gate.Set) reconcile.Controller[View] {
	gates = gates.Of(gate.PersistentVolumeClaimUnusedSinceTime)
	tracks := gates.On(gate.PersistentVolumeClaimUnusedSinceTime)
	return reconcile.Controller[View]{
		Name:     "persistentvolumeclaim-protection-controller",
		Aliases:  []string{"pvc-protection"},
		Identity: "pvc-protection-controller",
		Queue:    "pvcprotection",
		Owns:     &kinds.PersistentVolumeClaims.Kind,
		Inputs: []reconcile.Input{
			reconcile.Own(kinds.PersistentVolumeClaims.Kind),
			{Kind: kinds.Pods.Kind, Keys: claimsOf},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbAsk, Kind: kinds.PersistentVolumeClaims.Name, Subresource: events.SubUsers, On: reconcile.Itself},
			{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumeClaims.Name, On: reconcile.Itself, Changes: []string{".metadata.finalizers"}},
			{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumeClaims.Name, Subresource: "status", On: reconcile.Itself},
		},
		Remembers: true,
		Settings:  gates.Settings(),
		Observe: func(s reconcile.Snapshot, k events.Key) (View, bool) {
			v, ok := observe(s, k)
			if ok && tracks && v.Claim.DeletionTimestamp == nil {
				v.Use = useOf(s, v.Claim)
			}
			return v, ok
		},
		Decide: decide,
	}
}

// View is what the turn of one claim can see.
type View struct {
	Claim *corev1.PersistentVolumeClaim `json:"claim"`
	// Seen are the pods that may need it, as far as is seen. They are collected for a
	// claim that is deleted.
	Seen events.Users `json:"seen,omitzero"`
	// Users are those that there were at At, when the writer was asked about the claim
	// as it is seen now; nil when it was not.
	Users *events.Users `json:"users,omitempty"`
	At    time.Time     `json:"at,omitzero"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
	// Use is whether a pod refers to the claim; empty where that is not told, since the
	// feature gate PersistentVolumeClaimUnusedSinceTime is off, or the claim is deleted.
	Use Use `json:"use,omitempty"`
}

// claimsOf are the claims that a pod uses, and used before.
func claimsOf(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, obj := range []reconcile.Object{now, was} {
		p, ok := obj.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		for i := range p.Spec.Volumes {
			name, _ := events.ClaimOf(p, &p.Spec.Volumes[i])
			if key := (events.Key{Namespace: p.Namespace, Name: name}); name != "" && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	found, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Claim: found}
	if found.DeletionTimestamp == nil {
		return v, true
	}
	for _, p := range reconcile.List(s, kinds.Pods, k.Namespace) {
		v.Seen.Take(p, k.Name)
	}
	// The claim may have lived at another version, in a past that a backup has brought back.
	if last, ok := reconcile.Answers(s, k, found); ok {
		for _, r := range last.Results {
			v.hear(r, last.At)
		}
	}
	return v, true
}

// hear takes in an answer.
func (v *View) hear(r events.Result, at time.Time) {
	if r.Status != events.Answered {
		return
	}
	users := new(events.Users)
	if err := reconcile.Read(r, users); err != nil {
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
		return
	}
	v.Users, v.At = users, at
}

func decide(v View, now time.Time) reconcile.Decision {
	next := *v.Claim // shallow: only the list of finalizers changes, and is made anew
	deleted, guarded := next.DeletionTimestamp != nil, finalizer.Has(&next, guard)
	switch {
	case !deleted && !guarded:
		finalizer.Add(&next, guard)
		return reconcile.Do("the claim is not protected yet", reconcile.Update(kinds.PersistentVolumeClaims.Kind, &next))
	case !deleted && v.Use.untold(v.Claim):
		return v.Use.tell(v.Claim, now)
	case !deleted:
		return reconcile.Nothing("the claim is protected")
	case !guarded:
		return reconcile.Nothing("the claim is deleted, and not held by us")
	case v.Seen.Need(v.Claim):
		return reconcile.Nothing("the claim is deleted, but a pod uses it")
	case v.Users == nil:
		return v.Unread.Ask(now, "the claim is deleted, and no pod is seen that uses it", reconcile.AskUsers(v.Claim))
	case v.Users.Need(v.Claim) && now.Before(v.At.Add(again)):
		return reconcile.Wake(v.At.Add(again), "the claim is deleted, but a pod uses it that is not seen yet")
	case v.Users.Need(v.Claim), now.Sub(v.At) > lasting:
		return reconcile.Do("the pods that use the claim may be others by now", reconcile.AskUsers(v.Claim))
	default:
		finalizer.Remove(&next, guard)
		return reconcile.Do("the claim is deleted, and no pod uses it", reconcile.Update(kinds.PersistentVolumeClaims.Kind, &next))
	}
}
