package main

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const provisioner = "millrace.io/simulated"

// claim makes a volume for a claim that waits for the fake provisioner.
func (f *fakelet) claim(c *corev1.PersistentVolumeClaim) {
	by := c.Annotations["volume.kubernetes.io/storage-provisioner"]
	if by == "" {
		by = c.Annotations["volume.beta.kubernetes.io/storage-provisioner"]
	}
	if by != provisioner || c.Spec.VolumeName != "" || c.DeletionTimestamp != nil {
		return
	}
	mode := corev1.PersistentVolumeFilesystem
	if c.Spec.VolumeMode != nil {
		mode = *c.Spec.VolumeMode
	}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(c.UID), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]}, AccessModes: c.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, VolumeMode: &mode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "simulated.millrace.io", VolumeHandle: string(c.UID)}},
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
		},
	}
	if c.Spec.StorageClassName != nil {
		pv.Spec.StorageClassName = *c.Spec.StorageClassName
	}
	go func() {
		_, _ = f.c.CoreV1().PersistentVolumes().Create(context.Background(), pv, metav1.CreateOptions{})
	}()
}

// volume deletes a released volume of ours.
func (f *fakelet) volume(v *corev1.PersistentVolume) {
	if v.Annotations["pv.kubernetes.io/provisioned-by"] == provisioner && v.Status.Phase == corev1.VolumeReleased && v.DeletionTimestamp == nil {
		go func() {
			_ = f.c.CoreV1().PersistentVolumes().Delete(context.Background(), v.Name, metav1.DeleteOptions{})
			patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": nil}})
			_, _ = f.c.CoreV1().PersistentVolumes().Patch(context.Background(), v.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}()
	}
}

// consume notes what a resource-consumer pod is told to consume: its controller pod (label
