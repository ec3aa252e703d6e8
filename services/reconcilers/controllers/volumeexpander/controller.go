// Package volumeexpander reports which component expands a volume whose claim requests more
// than it has. It expands no volume itself: the resizer of the CSI driver does, which
// recognizes its own volumes, unless they still name an in-tree plugin that the driver has
// replaced. The claims of those get an annotation that names the driver.
package volumeexpander

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// resizer is the annotation that names the driver whose resizer expands the volume.
	resizer = "volume.kubernetes.io/storage-resizer"
	// before is an annotation of a volume with the capacity from before the kubelet began to
	// expand its file system.
	before = "volume.alpha.kubernetes.io/pre-resize-capacity"
	// external is the reason of the Events.
	external = "ExternalExpanding"
)

// Controller reports which component expands a volume. A key is a claim.
var Controller = reconcile.Controller[View]{
	Name:     "persistentvolume-expander-controller",
	Aliases:  []string{"persistentvolume-expander"},
	Identity: "expand-controller",
	Source:   "volume_expand",
	Queue:    "volume_expand",
	Owns:     &kinds.PersistentVolumeClaims.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.PersistentVolumeClaims.Kind),
		{Kind: kinds.PersistentVolumes.Kind, Keys: claimOf},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbPatch, Kind: kinds.PersistentVolumeClaims.Name, Subresource: "status", On: reconcile.Itself, Unchanged: true,
			Fields: []string{".metadata.annotations['" + resizer + "']"}},
	},
	Events: reconcile.EventPromises{
		{Kind: kinds.PersistentVolumeClaims.Kind, On: reconcile.Itself, Reasons: []string{external}},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// View is what the turn of one claim can see.
type View struct {
	Claim *corev1.PersistentVolumeClaim `json:"claim"`
	// Volume is the volume that the claim names; nil while it is not seen.
	Volume *corev1.PersistentVolume `json:"volume,omitempty"`
	// Told are the names of the Events of the last report.
	Told []string `json:"told,omitempty"`
}

// claimOf maps a volume to the claim to which it is bound.
func claimOf(_ reconcile.Snapshot, _, now reconcile.Object) []events.Key {
	if pv, ok := now.Object.(*corev1.PersistentVolume); ok && pv.Spec.ClaimRef != nil {
		return []events.Key{{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}}
	}
	return nil
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	claim, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Claim: claim}
	v.Volume, _ = reconcile.Get(s, kinds.PersistentVolumes, "", claim.Spec.VolumeName)
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, claim); ok {
		for _, r := range last.Results {
			if r.OK() && r.Ref.Kind == kinds.Events.Name {
				v.Told = append(v.Told, r.Ref.Name)
			}
		}
	}
	return v, true
}
