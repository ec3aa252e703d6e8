package resourceclaim

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/device"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// names reports whether a pod names a claim.
func names(p *corev1.Pod, claim string) bool {
	for i := range p.Spec.ResourceClaims {
		if _, name := device.ClaimOf(p, &p.Spec.ResourceClaims[i]); name == claim {
			return true
		}
	}
	return false
}

// finder finds a claim of a namespace by its name; nil if there is none.
type finder func(name string) *resourcev1.ResourceClaim

func lookup(s reconcile.Snapshot, namespace string) finder {
	return func(name string) *resourcev1.ResourceClaim {
		claim, _ := reconcile.Get(s, kinds.ResourceClaims, namespace, name)
		return claim
	}
}

// done reports whether certainly no container of a pod runs or will ever run.
//
// Upstream: isPodDone.
func done(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil && p.Spec.NodeName == ""
}

// lacks reports whether a claim of a pod must be created, or its name written into the pod's
// status. A claim that has the recorded name but is not the pod's causes no turn by itself.
//
// Upstream: podNeedsWork. A pod that has ended needs no claims there, either, but may get them
// made after a restart, to be deleted again.
func lacks(p *corev1.Pod, of finder) bool {
	if p.DeletionTimestamp != nil || done(p) {
		return false
	}
	for i := range p.Spec.ResourceClaims {
		switch what, name := device.ClaimOf(p, &p.Spec.ResourceClaims[i]); what {
		case device.Unsupported, device.Unnamed:
			return true
		case device.Made:
			if of(name) == nil {
				return true
			}
		default:
		}
	}
	return false
}

// reserves reports whether a claim is to be reserved for a pod: the pod has a node but no
// reservation, so the scheduler did not place it. The pod must have all its claims from
// templates first, and all claims that it names before this one.
//
// Upstream: syncPod. A pod that has ended is given reservations there, which are taken back.
func reserves(p *corev1.Pod, claim *resourcev1.ResourceClaim, of finder) bool {
	if p.DeletionTimestamp != nil || done(p) || p.Spec.NodeName == "" || claim.DeletionTimestamp != nil ||
		claim.Status.Allocation == nil || device.Reserved(claim, p) {
		return false
	}
	found := false
	for i := range p.Spec.ResourceClaims {
		what, name := device.ClaimOf(p, &p.Spec.ResourceClaims[i])
		other := of(name)
		switch {
		case what == device.Unneeded:
			continue
		case what == device.Unsupported, what == device.Unnamed, what == device.Made && (other == nil || !owner.Controls(p, other)):
			return false
		case other == nil && !found:
			return false
		}
		found = found || name == claim.Name
	}
	return found
}

// ownerOf is the pod for which a claim was created.
//
// Upstream: owningPod.
func ownerOf(claim *resourcev1.ResourceClaim) (pod metav1.OwnerReference, ok bool) {
	ref, ok := owner.Of(claim)
	if !ok || ref.APIVersion != "v1" || ref.Kind != "Pod" {
		return metav1.OwnerReference{}, false
	}
	return ref, true
}

// byAdmin reports whether a spec asks for admin access to devices in use.
func byAdmin(spec resourcev1.ResourceClaimSpec) bool {
	for _, r := range spec.Devices.Requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return true
		}
	}
	return false
}

// prioritized reports whether a spec has a list of alternative devices, in order of preference.
func prioritized(spec resourcev1.ResourceClaimSpec) bool {
	for _, r := range spec.Devices.Requests {
		if len(r.FirstAvailable) > 0 {
			return true
		}
	}
	return false
}
