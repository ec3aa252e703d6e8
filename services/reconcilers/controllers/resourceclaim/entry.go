package resourceclaim

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// standing is what a pod says of the claim of one of its entries.
type standing string

const (
	// unsupported entries name neither a claim nor a template: they are of a newer API.
	unsupported standing = "unsupported"
	// unneeded is a claim of which the status says that the pod does without.
	unneeded standing = "unneeded"
	// unnamed is one of a template of which the status does not say what it is called.
	unnamed standing = "unnamed"
	// made is one of a template, given the claim's name by somebody else than the pod itself.
	made standing = "made"
	// given is one that exists without the pod.
	given standing = "given"
)

// claimOf is what a pod says of an entry, and the name of its claim where that is known.
//
// Upstream: k8s.io/dynamic-resource-allocation/resourceclaim, Name.
func claimOf(p *corev1.Pod, e *corev1.PodResourceClaim) (standing, string) {
	switch {
	case e.ResourceClaimName != nil:
		return given, *e.ResourceClaimName
	case e.ResourceClaimTemplateName == nil:
		return unsupported, ""
	}
	for _, said := range p.Status.ResourceClaimStatuses {
		switch {
		case said.Name != e.Name:
		case said.ResourceClaimName == nil:
			return unneeded, ""
		case *said.ResourceClaimName == "":
			return unnamed, ""
		default:
			return made, *said.ResourceClaimName
		}
	}
	return unnamed, ""
}

// names tells whether a pod names a claim.
func names(p *corev1.Pod, claim string) bool {
	for i := range p.Spec.ResourceClaims {
		if _, name := claimOf(p, &p.Spec.ResourceClaims[i]); name == claim {
			return true
		}
	}
	return false
}

// finder finds a claim of a namespace by its name; nil where there is none.
type finder func(name string) *resourcev1.ResourceClaim

func lookup(s reconcile.Snapshot, namespace string) finder {
	return func(name string) *resourcev1.ResourceClaim {
		claim, _ := reconcile.Get(s, kinds.ResourceClaims, namespace, name)
		return claim
	}
}

// done tells whether it is certain that no container of a pod runs, or ever will.
//
// Upstream: isPodDone.
func done(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil && p.Spec.NodeName == ""
}

// lacks tells whether a claim of a pod is to be made, or its name to be said. A claim of the
// recorded name that is not the pod's is left alone until there is something else to do for it.
//
// Upstream: podNeedsWork. A pod that has ended needs no claims there, either, but may get them
// made after a restart, to be deleted again.
func lacks(p *corev1.Pod, of finder) bool {
	if p.DeletionTimestamp != nil || done(p) {
		return false
	}
	for i := range p.Spec.ResourceClaims {
		switch what, name := claimOf(p, &p.Spec.ResourceClaims[i]); what {
		case unsupported, unnamed:
			return true
		case made:
			if of(name) == nil {
				return true
			}
		default:
		}
	}
	return false
}

// reserves tells whether a claim is to be reserved for a pod: one that has a node although the
// claim is not reserved for it, so that it did not come there by the scheduler. It needs all
// the claims that it asks for by templates first, and those that it names before this one.
//
// Upstream: syncPod. A pod that has ended is given reservations there, which are taken back.
func reserves(p *corev1.Pod, claim *resourcev1.ResourceClaim, of finder) bool {
	if p.DeletionTimestamp != nil || done(p) || p.Spec.NodeName == "" || claim.DeletionTimestamp != nil ||
		claim.Status.Allocation == nil || reserved(claim, p) {
		return false
	}
	found := false
	for i := range p.Spec.ResourceClaims {
		what, name := claimOf(p, &p.Spec.ResourceClaims[i])
		other := of(name)
		switch {
		case what == unneeded:
			continue
		case what == unsupported, what == unnamed, what == made && (other == nil || !owner.Controls(p, other)):
			return false
		case other == nil && !found:
			return false
		}
		found = found || name == claim.Name
	}
	return found
}

// reserved tells whether a claim is reserved for a pod.
func reserved(claim *resourcev1.ResourceClaim, p *corev1.Pod) bool {
	for _, by := range claim.Status.ReservedFor {
		if by.UID == p.UID {
			return true
		}
	}
	return false
}

// ownerOf is the pod that a claim was made for.
//
// Upstream: owningPod.
func ownerOf(claim *resourcev1.ResourceClaim) (pod metav1.OwnerReference, ok bool) {
	ref, ok := owner.Of(claim)
	if !ok || ref.APIVersion != "v1" || ref.Kind != "Pod" {
		return metav1.OwnerReference{}, false
	}
	return ref, true
}

// byAdmin tells whether a spec asks for devices that others have, which only administrators may.
func byAdmin(spec resourcev1.ResourceClaimSpec) bool {
	for _, r := range spec.Devices.Requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return true
		}
	}
	return false
}

// prioritized tells whether a spec has a list of devices of which the first will do.
func prioritized(spec resourcev1.ResourceClaimSpec) bool {
	for _, r := range spec.Devices.Requests {
		if len(r.FirstAvailable) > 0 {
			return true
		}
	}
	return false
}
