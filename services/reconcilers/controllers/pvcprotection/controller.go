// Package pvcprotection protects PersistentVolumeClaims that pods use, by a finalizer: every
// claim gets it, and the controller removes it from a deleted claim when no scheduled pod
// uses the claim.
//
// The view of pods may be older than the claim, so a pod in it only shows that the claim
// must stay. Before the controller releases a claim, it asks the writer, which lists the
// pods live after the deletion of the claim was seen. The scheduler does not schedule a pod
// whose claim is deleted, so a pod that is not in that answer will not use it. The answer is
// on record, and is the only reason to release the claim.
package pvcprotection

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// guard is the finalizer. The API server's admission adds it to new claims; the controller
// adds it to older ones.
const guard = "kubernetes.io/pvc-protection"

// protection puts the finalizer on a claim, and removes it.
var protection = finalizer.Protection{Kind: kinds.PersistentVolumeClaims.Kind, Finalizer: guard, Noun: "claim"}

const (
	// lasting is how old an answer may be when the claim is released because of it.
	lasting = 30 * time.Second
	// again is when to ask again after an answer that names a pod. That pod is seen a moment
	// later, and then the controller waits for its end; or it has gone already.
	again = time.Second
)

// Controller is the claim protection controller under the default feature gates.
var Controller = New(nil)

// New returns the controller under feature gates that differ from their defaults.
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
			{Verb: events.VerbAsk, Kind: kinds.PersistentVolumeClaims.Name, Subresource: query.SubUsers, On: reconcile.Itself},
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
	// Seen are the pods that may need the claim, as far as seen. They are collected only for
	// a deleted claim.
	Seen query.Users `json:"seen,omitzero"`
	// Users are the pods at At, from the writer's answer about the claim as it is seen now;
	// nil if there is none.
	Users *query.Users `json:"users,omitempty"`
	At    time.Time    `json:"at,omitzero"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
	// Use is whether a pod refers to the claim; empty if the feature gate
	// PersistentVolumeClaimUnusedSinceTime is off, or the claim is deleted.
	Use Use `json:"use,omitempty"`
}

// claimsOf maps a pod to the claims that it uses, and used before.
func claimsOf(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, obj := range []reconcile.Object{now, was} {
		p, ok := obj.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		for i := range p.Spec.Volumes {
			name, _ := query.ClaimOf(p, &p.Spec.Volumes[i])
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
	// The claim may have had this uid at another version, in a past that a backup has
	// restored.
	if last, ok := reconcile.Answers(s, k, found); ok {
		for _, r := range last.Results {
			v.hear(r, last.At)
		}
	}
	return v, true
}

// hear reads an answer.
func (v *View) hear(r events.Result, at time.Time) {
	if r.Status != events.Answered {
		return
	}
	users := new(query.Users)
	if err := reconcile.Read(r, users); err != nil {
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
		return
	}
	v.Users, v.At = users, at
}

func decide(v View, now time.Time) reconcile.Decision {
	kept, ok := protection.Keep(v.Claim)
	switch {
	case v.Claim.DeletionTimestamp == nil && finalizer.Has(v.Claim, guard) && v.Use.untold(v.Claim):
		return v.Use.tell(v.Claim, now)
	case ok:
		return kept
	case v.Seen.Need(v.Claim):
		return reconcile.Nothing("the claim is deleted, but a pod uses it")
	case v.Users == nil:
		return v.Unread.Ask(now, "the claim is deleted, and no pod is seen that uses it", reconcile.AskUsers(v.Claim))
	case v.Users.Need(v.Claim) && now.Before(v.At.Add(again)):
		return reconcile.Wake(v.At.Add(again), "the claim is deleted, but a pod uses it that the cache does not have yet")
	case v.Users.Need(v.Claim), now.Sub(v.At) > lasting:
		return reconcile.Do("the pods that use the claim may have changed", reconcile.AskUsers(v.Claim))
	default:
		return protection.Release(v.Claim, "the claim is deleted, and no pod uses it")
	}
}
