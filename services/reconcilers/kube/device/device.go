// Package device knows how pods and their claims to devices find each other.
package device

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Standing is what a pod says of the claim of one of its entries.
type Standing string

// The standings.
const (
	// Unsupported entries name neither a claim nor a template: they are of a newer API.
	Unsupported Standing = "unsupported"
	// Unneeded is a claim of which the status says that the pod does without.
	Unneeded Standing = "unneeded"
	// Unnamed is one of a template of which the status does not say what it is called.
	Unnamed Standing = "unnamed"
	// Made is one of a template of which the status does. It must be the pod's.
	Made Standing = "made"
	// Given is one that exists without the pod.
	Given Standing = "given"
)

// ClaimOf is what a pod says of an entry, and the name of its claim where that is known.
//
// Upstream: k8s.io/dynamic-resource-allocation/resourceclaim, Name.
func ClaimOf(p *corev1.Pod, e *corev1.PodResourceClaim) (Standing, string) {
	switch {
	case e.ResourceClaimName != nil:
		return Given, *e.ResourceClaimName
	case e.ResourceClaimTemplateName == nil:
		return Unsupported, ""
	}
	for _, said := range p.Status.ResourceClaimStatuses {
		switch {
		case said.Name != e.Name:
		case said.ResourceClaimName == nil:
			return Unneeded, ""
		case *said.ResourceClaimName == "":
			return Unnamed, ""
		default:
			return Made, *said.ResourceClaimName
		}
	}
	return Unnamed, ""
}

// IsPod tells whether a claim is reserved for a pod, and not for something that is not known
// here.
func IsPod(by resourcev1.ResourceClaimConsumerReference) bool {
	return by.APIGroup == "" && by.Resource == "pods"
}

// Reserved tells whether a claim is reserved for a pod.
func Reserved(claim *resourcev1.ResourceClaim, p *corev1.Pod) bool {
	for _, by := range claim.Status.ReservedFor {
		if by.UID == p.UID {
			return true
		}
	}
	return false
}

// Tolerates tells whether a toleration is of a taint. Which effects count is for others to say.
//
// Upstream: k8s.io/dynamic-resource-allocation/resourceclaim, ToleratesTaint.
func Tolerates(by resourcev1.DeviceToleration, t resourcev1.DeviceTaint) bool {
	switch {
	case by.Effect != "" && by.Effect != t.Effect, by.Key != "" && by.Key != t.Key:
		return false
	case by.Operator == resourcev1.DeviceTolerationOpExists:
		return true
	default: // a newer operator is of none
		return (by.Operator == "" || by.Operator == resourcev1.DeviceTolerationOpEqual) && by.Value == t.Value
	}
}
