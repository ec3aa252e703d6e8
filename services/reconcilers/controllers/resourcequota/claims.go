package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Upstream: pkg/quota/v1/evaluator/core/persistent_volume_claims.go.
func claimUsage(c *corev1.PersistentVolumeClaim) corev1.ResourceList {
	used := corev1.ResourceList{count(kinds.PersistentVolumeClaims.Name): one, corev1.ResourcePersistentVolumeClaims: one}
	amount := storage(c)
	if amount != nil {
		used[corev1.ResourceRequestsStorage] = *amount
	}
	if class := storageClass(c); class != "" {
		of := func(what corev1.ResourceName) corev1.ResourceName {
			return corev1.ResourceName(class+perStorageClass) + what
		}
		used[of(corev1.ResourcePersistentVolumeClaims)] = one
		if amount != nil {
			used[of(corev1.ResourceRequestsStorage)] = *amount
		}
	}
	return used
}

func storageClass(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return ptr.Deref(c.Spec.StorageClassName, "")
}

// storage is how much a claim requests, in whole bytes, or has been allocated if that
// is more, because a reduced request does not undo an expansion. nil if the claim
// requests none.
func storage(c *corev1.PersistentVolumeClaim) *resource.Quantity {
	amount, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return nil
	}
	amount = wholeBytes(amount)
	if given, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && given.Cmp(amount) > 0 {
		amount = wholeBytes(given)
	}
	return &amount
}

// wholeBytes rounds up, because a quota may not hold a fraction.
func wholeBytes(amount resource.Quantity) resource.Quantity {
	rounded := amount.DeepCopy()
	rounded.RoundUp(0)
	return rounded
}

// attributes are the VolumeAttributesClasses that a claim requests, has, or is
// changing to.
func attributes(c *corev1.PersistentVolumeClaim) []string {
	target := ""
	if under := c.Status.ModifyVolumeStatus; under != nil {
		target = under.TargetVolumeAttributesClassName
	}
	return classesOf(ptr.Deref(c.Spec.VolumeAttributesClassName, ""), ptr.Deref(c.Status.CurrentVolumeAttributesClassName, ""), target)
}

// claimInScope reports whether a claim counts in one scope of a quota.
func claimInScope(c *corev1.PersistentVolumeClaim, scope corev1.ScopedResourceSelectorRequirement) bool {
	return scope.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass && selects(scope, attributes(c))
}
