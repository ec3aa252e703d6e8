package system

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// boundVolume creates a volume of a driver, and the claim "data" that is bound to it. The handle of the
// volume is its name.
func (s *site) boundVolume(t *testing.T, namespace, volume, driver string, mode corev1.PersistentVolumeAccessMode) {
	t.Helper()
	claims, volumes := s.kube.CoreV1().PersistentVolumeClaims(namespace), s.kube.CoreV1().PersistentVolumes()
	size, none := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, ""
	modes := []corev1.PersistentVolumeAccessMode{mode}
	claim, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: &none, VolumeName: volume, Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}, metav1.CreateOptions{})
	must(t, err)
	_, err = volumes.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: "data", UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: volume}},
	}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, volumes.Delete(context.WithoutCancel(t.Context()), volume, metav1.DeleteOptions{})) })
	claim.Status.Phase, claim.Status.Capacity, claim.Status.AccessModes = corev1.ClaimBound, size, modes
	body, err := json.Marshal(map[string]any{"status": claim.Status})
	must(t, err)
	// A patch, because persistentvolume-binder may have written to the claim already.
	_, err = claims.Patch(t.Context(), claim.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	must(t, err)
}

// ofClaim is the volume "data" of a pod, which uses the claim of that name.
func ofClaim() []corev1.Volume {
	return []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
}

// createPod creates a pod as soon as its namespace admits it.
func (s *site) createPod(t *testing.T, namespace, name string, spec corev1.PodSpec) {
	t.Helper()
	within(t, patience, "the pod can be created", func() string {
		_, err := s.kube.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		return made(err)
	})
}

// eventsOf are the Events with a reason about an object.
func (s *site) eventsOf(t *testing.T, namespace, name, reason string) ([]corev1.Event, error) {
	t.Helper()
	told, err := s.kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + name})
	if err != nil {
		return nil, err
	}
	return told.Items, nil
}
