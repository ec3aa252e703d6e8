package main

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// resize expands a claim and its volume. It first records the target size in the claim's status, so
// that a request for another size in between does not get lost; then it patches the volume, and
// then the claim. It needs no expansion on the node, because the driver has no file system.
func (d *driver) resize(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.Status.Phase != corev1.ClaimBound || !wants(c) {
		return nil
	}
	v, err := d.client.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ref := v.Spec.ClaimRef; !ours(v) || ref == nil || ref.UID != c.UID {
		return nil
	}
	size, begun := target(c)
	if !begun {
		if c, err = d.client.CoreV1().PersistentVolumeClaims(c.Namespace).UpdateStatus(ctx, resizing(c, size), metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if has := v.Spec.Capacity[corev1.ResourceStorage]; has.Cmp(size) < 0 {
		patch := merge(v, nil, map[string]any{"spec": map[string]any{"capacity": map[string]any{"storage": size.String()}}})
		if _, err := d.client.CoreV1().PersistentVolumes().Patch(ctx, v.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	_, err = d.client.CoreV1().PersistentVolumeClaims(c.Namespace).UpdateStatus(ctx, resized(c, size), metav1.UpdateOptions{})
	return err
}

// wants is whether a claim requests more than its capacity.
func wants(c *corev1.PersistentVolumeClaim) bool {
	wish, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	return wish.Cmp(has) > 0
}

// target is the size to expand a claim to. begun is true if the claim's status has it already: a
// resize that has begun is finished, even if the claim requests another size by now.
func target(c *corev1.PersistentVolumeClaim) (size resource.Quantity, begun bool) {
	if c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimControllerResizeInProgress {
		if size, begun = c.Status.AllocatedResources[corev1.ResourceStorage]; begun {
			return size, true
		}
	}
	return c.Spec.Resources.Requests[corev1.ResourceStorage], false
}

// resizing is a claim whose status has the target size.
func resizing(c *corev1.PersistentVolumeClaim, size resource.Quantity) *corev1.PersistentVolumeClaim {
	next := c.DeepCopy()
	next.Status.Conditions = append(unresized(next.Status.Conditions), corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
	})
	if next.Status.AllocatedResources == nil {
		next.Status.AllocatedResources = corev1.ResourceList{}
	}
	next.Status.AllocatedResources[corev1.ResourceStorage] = size
	if next.Status.AllocatedResourceStatuses == nil {
		next.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	next.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimControllerResizeInProgress
	return next
}

// resized is a claim with its new capacity.
func resized(c *corev1.PersistentVolumeClaim, size resource.Quantity) *corev1.PersistentVolumeClaim {
	next := c.DeepCopy()
	next.Status.Conditions = unresized(next.Status.Conditions)
	delete(next.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
	if next.Status.Capacity == nil {
		next.Status.Capacity = corev1.ResourceList{}
	}
	next.Status.Capacity[corev1.ResourceStorage] = size
	return next
}

// unresized are the conditions without those of a resize.
func unresized(conditions []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		switch c.Type {
		case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
			corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
			return true
		}
		return false
	})
}
