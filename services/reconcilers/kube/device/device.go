// Package device relates pods to their ResourceClaims.
package device

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Standing is the state of the claim of a pod's entry.
type Standing string

// The standings.
const (
	// Unsupported entries name neither a claim nor a template: they come from a newer API.
	Unsupported Standing = "unsupported"
	// Unneeded: the pod's status says that the entry needs no claim.
	Unneeded Standing = "unneeded"
	// Unnamed: the entry names a template, and the status has no name of a claim yet.
	Unnamed Standing = "unnamed"
	// Made: the entry names a template, and the status has the name. The pod must own that
	// claim.
	Made Standing = "made"
	// Given: the entry names a claim that exists independently of the pod.
	Given Standing = "given"
)

// ClaimOf returns the state of an entry, and the name of its claim if that is known.
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

// IsPod reports whether a reservation is for a pod, and not for a consumer of an unknown kind.
func IsPod(by resourcev1.ResourceClaimConsumerReference) bool {
	return by.APIGroup == "" && by.Resource == "pods"
}

// Reserved reports whether a claim is reserved for a pod.
func Reserved(claim *resourcev1.ResourceClaim, p *corev1.Pod) bool {
	for _, by := range claim.Status.ReservedFor {
		if by.UID == p.UID {
			return true
		}
	}
	return false
}

// Tolerates reports whether a toleration tolerates a taint. The caller decides which effects
// count.
//
// Upstream: k8s.io/dynamic-resource-allocation/resourceclaim, ToleratesTaint.
func Tolerates(by resourcev1.DeviceToleration, t resourcev1.DeviceTaint) bool {
	switch {
	case by.Effect != "" && by.Effect != t.Effect, by.Key != "" && by.Key != t.Key:
		return false
	case by.Operator == resourcev1.DeviceTolerationOpExists:
		return true
	default: // an operator of a newer API matches nothing
		return (by.Operator == "" || by.Operator == resourcev1.DeviceTolerationOpEqual) && by.Value == t.Value
	}
}
