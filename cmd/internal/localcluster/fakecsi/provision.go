package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// asked is whether the volume binder has asked this driver to provision a claim's volume.
func asked(c *corev1.PersistentVolumeClaim) bool {
	by, named := c.Annotations[provisioner]
	if !named {
		by = c.Annotations[betaProvisioner]
	}
	return by == driverName
}

// provision creates the volume of a claim; it is idempotent.
func (d *driver) provision(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if !asked(c) || c.DeletionTimestamp != nil {
		return nil
	}
	class, err := d.client.StorageV1().StorageClasses().Get(ctx, classOf(c), metav1.GetOptions{})
	if err != nil { // not wrapped: sync must retry, and not take a missing class for a missing claim
		return fmt.Errorf("read the class %q: %v", classOf(c), err)
	}
	switch waits, err := refusal(c, class); {
	case waits:
		return nil
	case err != nil:
		log.Printf("no volume for claim %s/%s: %v", c.Namespace, c.Name, err)
		return nil
	}
	_, err = d.client.CoreV1().PersistentVolumes().Create(ctx, volumeFor(c, class), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func classOf(c *corev1.PersistentVolumeClaim) string {
	if name, there := c.Annotations[corev1.BetaStorageClassAnnotation]; there {
		return name
	}
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

// refusal is why a claim gets no volume of a class. waits is true if it gets one later, once the
// scheduler has selected a node for its pod.
func refusal(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (waits bool, err error) {
	late := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	switch {
	case class.Provisioner != driverName:
		return false, fmt.Errorf("its class is of %s", class.Provisioner)
	case late && c.Annotations[selectedNode] == "":
		return true, nil
	case c.Spec.Selector != nil:
		return false, errors.New("a selector is not supported")
	case c.Spec.DataSource != nil || c.Spec.DataSourceRef != nil:
		return false, errors.New("a data source is not supported")
	}
	return false, nil
}

// volumeFor is the volume of a claim. Each node can reach it, so it has no node affinity.
func volumeFor(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(c.UID), Annotations: map[string]string{provisionedBy: driverName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes: c.Spec.AccessModes, VolumeMode: c.Spec.VolumeMode, MountOptions: class.MountOptions,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: class.Name,
			VolumeAttributesClassName: c.Spec.VolumeAttributesClassName,
			PersistentVolumeSource:    corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: string(c.UID)}},
			ClaimRef:                  &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
		},
	}
	if c.Spec.VolumeMode == nil || *c.Spec.VolumeMode == corev1.PersistentVolumeFilesystem {
		v.Spec.CSI.FSType = "ext4"
	}
	if class.ReclaimPolicy != nil {
		v.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		v.Finalizers = []string{provisionerFinalizer}
	}
	return v
}

// volume keeps the finalizers of a volume correct, and deletes it once its claim is gone and it is
// attached to no node.
func (d *driver) volume(ctx context.Context, v *corev1.PersistentVolume) error {
	if !ours(v) {
		return nil
	}
	attachments, err := d.attachmentsOf(ctx, v.Name)
	if err != nil {
		return err
	}
	attached := len(attachments) > 0
	if want := finalizersOf(v, attached); !slices.Equal(want, v.Finalizers) {
		_, err := d.client.CoreV1().PersistentVolumes().Patch(ctx, v.Name, types.MergePatchType, merge(v, map[string]any{"finalizers": want}, nil), metav1.PatchOptions{})
		return err
	}
	if v.DeletionTimestamp != nil || !unused(v) || attached {
		return nil
	}
	return d.client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID}})
}

// unused is whether this driver created a volume, its reclaim policy is Delete, and its claim is gone.
func unused(v *corev1.PersistentVolume) bool {
	return v.Annotations[provisionedBy] == driverName && v.Status.Phase == corev1.VolumeReleased && deletes(v)
}

func deletes(v *corev1.PersistentVolume) bool {
	return v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// finalizersOf are the desired finalizers of a volume. The provisioner's holds a volume until its
// disk is deleted, which happens after the deletion of the volume is requested; a volume whose disk
// is kept has none. The attacher's is set when the volume is attached, and holds it until it is
// detached.
func finalizersOf(v *corev1.PersistentVolume, attached bool) []string {
	made, going := v.Annotations[provisionedBy] == driverName, v.DeletionTimestamp != nil
	want := slices.Clone(v.Finalizers)
	drop := func(name string) {
		want = slices.DeleteFunc(want, func(f string) bool { return f == name })
	}
	switch {
	case made && !deletes(v), made && going && unused(v) && !attached:
		drop(provisionerFinalizer)
	case made && !going && !slices.Contains(want, provisionerFinalizer):
		want = append(want, provisionerFinalizer)
	}
	if going && !attached {
		drop(attacherFinalizer)
	}
	return want
}
