package apiserver

import (
	"bytes"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keepManaged restores the fields that writers may not change: identity and deletion.
func keepManaged(next, old metav1.Object) {
	next.SetUID(old.GetUID())
	next.SetResourceVersion(old.GetResourceVersion())
	next.SetGeneration(old.GetGeneration())
	next.SetCreationTimestamp(old.GetCreationTimestamp())
	next.SetDeletionTimestamp(old.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
}

// restoreSpec undoes what a write to the status subresource may not change.
// Upstream: the status strategies of apps reset spec and labels, not
// annotations.
func restoreSpec(next, old metav1.Object) {
	next.SetLabels(old.GetLabels())
	next.SetOwnerReferences(old.GetOwnerReferences())
	next.SetFinalizers(old.GetFinalizers())
	switch n := next.(type) {
	case *appsv1.Deployment:
		n.Spec = old.(*appsv1.Deployment).Spec
	case *appsv1.ReplicaSet:
		n.Spec = old.(*appsv1.ReplicaSet).Spec
	case *corev1.Pod:
		n.Spec = old.(*corev1.Pod).Spec
	case *policyv1.PodDisruptionBudget:
		n.Spec = old.(*policyv1.PodDisruptionBudget).Spec
	case *corev1.Namespace:
		n.Spec = old.(*corev1.Namespace).Spec
	default:
		keepPart(next, old, "Spec")
	}
}

// restoreStatus undoes changes to the status by a write to the object itself.
func restoreStatus(next, old metav1.Object) {
	switch n := next.(type) {
	case *appsv1.Deployment:
		n.Status = old.(*appsv1.Deployment).Status
	case *appsv1.ReplicaSet:
		n.Status = old.(*appsv1.ReplicaSet).Status
	case *corev1.Pod:
		n.Status = old.(*corev1.Pod).Status
	case *policyv1.PodDisruptionBudget:
		n.Status = old.(*policyv1.PodDisruptionBudget).Status
	case *corev1.Namespace:
		n.Status, n.Spec = old.(*corev1.Namespace).Status, old.(*corev1.Namespace).Spec
	default:
		keepPart(next, old, "Status")
	}
}

// wire is implemented by API objects and their parts: their encoding is deterministic, so
// comparing it is the fastest comparison.
type wire interface{ Marshal() ([]byte, error) }

// Same reports whether two objects, or parts of objects, have the same encoding.
func Same(a, b wire) bool {
	x, errX := a.Marshal()
	y, errY := b.Marshal()
	if errX != nil || errY != nil {
		panic(fmt.Sprintf("an API object cannot be written down: %v, %v", errX, errY))
	}
	return bytes.Equal(x, y)
}

func equal(a, b metav1.Object) bool { return Same(a.(wire), b.(wire)) }

// equalSpec reports whether the generation stays the same.
func equalSpec(a, b metav1.Object) bool {
	switch x := a.(type) {
	case *appsv1.Deployment:
		return Same(&x.Spec, &b.(*appsv1.Deployment).Spec)
	case *appsv1.ReplicaSet:
		return Same(&x.Spec, &b.(*appsv1.ReplicaSet).Spec)
	case *corev1.Pod:
		return Same(&x.Spec, &b.(*corev1.Pod).Spec)
	case *policyv1.PodDisruptionBudget:
		return Same(&x.Spec, &b.(*policyv1.PodDisruptionBudget).Spec)
	case *corev1.Namespace, *corev1.ServiceAccount, *corev1.ConfigMap:
		return true
	default:
		return samePart(a, b, "Spec")
	}
}
