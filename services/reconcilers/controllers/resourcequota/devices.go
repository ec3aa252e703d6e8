package resourcequota

import (
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// deviceUsage is the usage of a ResourceClaim. Its devices count by class, and also as
// the extended resources by which pods may request them, except for the part that its
// pod itself uses. Otherwise a claim created for a pod's extended resources would be
// charged twice.
//
// Upstream: pkg/quota/v1/evaluator/core/resource_claims.go.
func (v View) deviceUsage(c *resourcev1.ResourceClaim, now time.Time) corev1.ResourceList {
	used := corev1.ResourceList{}
	for _, request := range c.Spec.Devices.Requests {
		for class, devices := range atMost(request) {
			name := corev1.ResourceName(class + corev1.ResourceClaimsPerClass)
			total := used[name]
			total.Add(*resource.NewQuantity(devices, resource.DecimalSI))
			used[name] = total
		}
	}
	used[count(kinds.ResourceClaims.Name)] = one
	if !v.Gates.On(gate.DRAExtendedResource) {
		return used
	}
	paid := v.paidByPod(c, now)
	for name, amount := range v.asExtended(used) {
		if part, ok := paid[name]; ok {
			amount.Sub(part)
		}
		if amount.Sign() > 0 {
			used[name] = amount
		}
	}
	return used
}

// atMost is how many devices of each class a request may get at most.
func atMost(r resourcev1.DeviceRequest) map[string]int64 {
	devices := map[string]int64{}
	if r.Exactly != nil && len(r.FirstAvailable) == 0 {
		devices[r.Exactly.DeviceClassName] = number(r.Exactly.AllocationMode, r.Exactly.Count)
	}
	for _, option := range r.FirstAvailable { // one of them will be chosen
		if n := number(option.AllocationMode, option.Count); n > devices[option.DeviceClassName] {
			devices[option.DeviceClassName] = n
		}
	}
	return devices
}

func number(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return count
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize // the number is not known yet
	default:
		return 0 // of a newer API server
	}
}

// asExtended is the usage of device classes in terms of their extended resources.
func (v View) asExtended(used corev1.ResourceList) corev1.ResourceList {
	also := corev1.ResourceList{}
	for name, amount := range maps.Clone(used) {
		class, ok := strings.CutSuffix(string(name), corev1.ResourceClaimsPerClass)
		if !ok || class == "" {
			continue
		}
		also[corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass+class)] = amount.DeepCopy()
		for _, c := range v.Classes {
			if c.Name == class && alias(c) != "" {
				also[requested(corev1.ResourceName(alias(c)))] = amount.DeepCopy()
			}
		}
	}
	return also
}

// paidByPod is the usage of the pod for which a claim was created; nil for any other
// claim. Any user can write an owner and an annotation, so the pod must name this
// claim in its status, or no claim at all, and then only the oldest claim counts.
func (v View) paidByPod(c *resourcev1.ResourceClaim, now time.Time) corev1.ResourceList {
	owner := podOf(c)
	if owner == nil {
		return nil
	}
	for _, p := range v.Pods {
		if p.Name != owner.Name || p.UID != owner.UID {
			continue
		}
		status := p.Status.ExtendedResourceClaimStatus
		if status != nil && status.ResourceClaimName != c.Name || status == nil && !v.oldest(c, owner) {
			return nil
		}
		return v.podUsage(p, now)
	}
	return nil
}

// podOf is the pod for whose extended resources a claim says that it was created.
func podOf(c *resourcev1.ResourceClaim) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(c)
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || owner == nil || owner.Kind != "Pod" || owner.APIVersion != "v1" {
		return nil
	}
	return owner
}

// oldest reports whether a claim is the first of those that say that they were created
// for a pod.
func (v View) oldest(c *resourcev1.ResourceClaim, owner *metav1.OwnerReference) bool {
	for _, other := range v.Devices {
		if same := podOf(other); same == nil || same.UID != owner.UID {
			continue
		}
		switch order := other.CreationTimestamp.Compare(c.CreationTimestamp.Time); {
		case order < 0, order == 0 && other.Name < c.Name:
			return false
		}
	}
	return true
}
