// Package ephemeralvolume creates the PersistentVolumeClaims of pods' ephemeral volumes.
// Such a claim is named after the pod and the volume, is created from a template in the
// pod, and is deleted with the pod.
//
// The controller never takes over a claim of that name that another object owns: the pod
// waits until that claim is deleted, and an Event reports it.
package ephemeralvolume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the ephemeral volume controller. A key is a pod.
var Controller = reconcile.Controller[View]{
	Name:    "ephemeral-volume-controller",
	Aliases: []string{"ephemeral-volume"},
	Source:  "ephemeral_volume",
	Queue:   "ephemeral_volume",
	Owns:    &kinds.Pods.Kind,
	Inputs: []reconcile.Input{
		{Kind: kinds.Pods.Kind, Keys: keysOfPod},
		{Kind: kinds.PersistentVolumeClaims.Kind, Keys: keysOfClaim},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbCreate, Kind: kinds.PersistentVolumeClaims.Name, On: reconcile.Beside, Name: reconcile.After, Child: true, Fields: template.Made,
			Copies: []reconcile.Copy{{To: ".spec", From: ".spec.volumes[*].ephemeral.volumeClaimTemplate.spec"}}},
	},
	Events: reconcile.EventPromises{
		{Kind: kinds.Pods.Kind, On: reconcile.Itself, Reasons: []string{"FailedBinding"}},
	},
	Metrics:     metrics,
	StatusBlind: true,
	Remembers:   true,
	Observe:     observe,
	Decide:      decide,
}

// View is the input of the turn of one pod.
type View struct {
	Pod *corev1.Pod `json:"pod"`
	// Claims are the claims with the names of the pod's ephemeral volumes.
	Claims []*corev1.PersistentVolumeClaim `json:"claims,omitempty"`
	// Told has the names of the Events of the last report.
	Told []string `json:"told,omitempty"`
}

// keysOfPod maps a pod with ephemeral volumes to itself.
func keysOfPod(_ reconcile.Snapshot, _, now reconcile.Object) []events.Key {
	if p, ok := now.Object.(*corev1.Pod); ok && p.DeletionTimestamp == nil && len(wanted(p)) > 0 {
		return []events.Key{keyOf(p)}
	}
	return nil
}

func keyOf(p *corev1.Pod) events.Key { return events.Key{Namespace: p.Namespace, Name: p.Name} }

// keysOfClaim maps a claim to the pods that want one of its name. If one of them already
// owns the claim, it maps to that pod alone, and only if another claim of the pod is not its own.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	claim := now
	if claim.None() {
		claim = was
	} else if ref, ok := owner.Of(claim); ok {
		if p, there := reconcile.Get(s, kinds.Pods, claim.GetNamespace(), ref.Name); there && owner.Controls(p, claim) {
			if v, _ := observe(s, keyOf(p)); v.conflicts() {
				return []events.Key{keyOf(p)}
			}
			return nil
		}
	}
	var keys []events.Key
	for _, p := range reconcile.List(s, kinds.Pods, claim.GetNamespace()) {
		for _, v := range wanted(p) {
			if nameOf(p, v) == claim.GetName() {
				keys = append(keys, keyOf(p))
				break
			}
		}
	}
	return keys
}

// wanted returns the ephemeral volumes of a pod.
func wanted(p *corev1.Pod) []*corev1.Volume {
	var own []*corev1.Volume
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			own = append(own, v)
		}
	}
	return own
}

// nameOf returns the name of the claim of a volume.
func nameOf(p *corev1.Pod, v *corev1.Volume) string { return p.Name + "-" + v.Name }

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	p, ok := reconcile.Get(s, kinds.Pods, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Pod: p}
	for _, volume := range wanted(p) {
		if claim, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, k.Namespace, nameOf(p, volume)); ok {
			v.Claims = append(v.Claims, claim)
		}
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, p); ok {
		for _, r := range last.Results {
			if r.OK() && r.Ref.Kind == kinds.Events.Name {
				v.Told = append(v.Told, r.Ref.Name)
			}
		}
	}
	return v, true
}

// conflicts reports whether another object owns a claim that the pod wants.
func (v View) conflicts() bool {
	return slices.ContainsFunc(v.Claims, func(c *corev1.PersistentVolumeClaim) bool { return !owner.Controls(v.Pod, c) })
}

// claim returns the claim of a name, nil if there is none.
func (v View) claim(name string) *corev1.PersistentVolumeClaim {
	for _, c := range v.Claims {
		if c.Name == name {
			return c
		}
	}
	return nil
}
