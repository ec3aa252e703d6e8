// Package pvprotection protects PersistentVolumes that are bound to a claim, by a
// finalizer: every volume gets it, and the controller removes it from a deleted
// volume that is not bound.
package pvprotection

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// guard is the finalizer. The API server's admission adds it to new volumes; the
// controller adds it to older ones.
const guard = "kubernetes.io/pv-protection"

// protection puts the finalizer on a volume, and removes it.
var protection = finalizer.Protection{Kind: kinds.PersistentVolumes.Kind, Finalizer: guard, Noun: "volume"}

// Controller is the volume protection controller.
var Controller = reconcile.Controller[View]{
	Name:     "persistentvolume-protection-controller",
	Aliases:  []string{"pv-protection"},
	Identity: "pv-protection-controller",
	Queue:    "pvprotection",
	Owns:     &kinds.PersistentVolumes.Kind,
	Inputs:   []reconcile.Input{reconcile.Own(kinds.PersistentVolumes.Kind)},
	Writes: reconcile.Writes{
		{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumes.Name, On: reconcile.Itself, Changes: []string{".metadata.finalizers"}},
	},
	Observe: observe,
	Decide:  decide,
}

// View is what the turn of one volume can see.
type View struct {
	Volume *corev1.PersistentVolume `json:"volume"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	volume, ok := reconcile.Get(s, kinds.PersistentVolumes, "", k.Name)
	return View{Volume: volume}, ok
}

func decide(v View, _ time.Time) reconcile.Decision {
	kept, ok := protection.Keep(v.Volume)
	switch {
	case ok:
		return kept
	case v.Volume.Status.Phase == corev1.VolumeBound:
		return reconcile.Nothing("the volume is deleted, but a claim is bound to it")
	default:
		return protection.Release(v.Volume, "the volume is deleted, and no claim is bound to it")
	}
}
