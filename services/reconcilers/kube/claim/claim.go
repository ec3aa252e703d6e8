// Package claim knows which volume a PersistentVolumeClaim is bound to, and which pods use it.
package claim

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Volume is the name of the volume to which a claim is bound; empty if there is none.
func Volume(claim *corev1.PersistentVolumeClaim) string {
	if claim.Status.Phase != corev1.ClaimBound {
		return ""
	}
	return claim.Spec.VolumeName
}

// Bound reports whether a volume and a claim are bound to each other.
func Bound(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return Volume(claim) == pv.Name && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == claim.UID
}

// Of returns the claim to which a volume is bound; nil if there is none.
func Of(s reconcile.Snapshot, pv *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	claim, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, ref.Namespace, ref.Name)
	if !ok || !Bound(pv, claim) {
		return nil
	}
	return claim
}

// Used reports whether a volume of a pod is a claim. The claim of an ephemeral volume must be
// controlled by the pod.
func Used(p *corev1.Pod, of *corev1.Volume, claim *corev1.PersistentVolumeClaim) bool {
	name, own := query.ClaimOf(p, of)
	return name == claim.Name && p.Namespace == claim.Namespace && (!own || owner.Controls(p, claim))
}
