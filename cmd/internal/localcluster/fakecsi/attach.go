package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// attachmentsOf are the VolumeAttachments of a volume.
func (d *driver) attachmentsOf(ctx context.Context, volume string) (of []storagev1.VolumeAttachment, err error) {
	all, err := d.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, a := range all.Items {
		if name := a.Spec.Source.PersistentVolumeName; a.Spec.Attacher == driverName && name != nil && *name == volume {
			of = append(of, a)
		}
	}
	return of, nil
}

// attachment attaches or detaches a volume, or records why it cannot be attached.
func (d *driver) attachment(ctx context.Context, a *storagev1.VolumeAttachment) error {
	switch {
	case a.Spec.Attacher != driverName:
		return nil
	case a.DeletionTimestamp != nil:
		return d.detach(ctx, a)
	case a.Status.Attached:
		return nil
	}
	err := d.attach(ctx, a)
	var refused refusedError
	if errors.As(err, &refused) {
		return errors.Join(err, d.refuse(ctx, a, refused))
	}
	return err
}

// refusedError is why a volume cannot be attached, as written to the attachment's status.
type refusedError string

func (r refusedError) Error() string { return string(r) }

// attach adds the finalizers to the volume and the attachment, and then reports it as attached.
func (d *driver) attach(ctx context.Context, a *storagev1.VolumeAttachment) error {
	name := a.Spec.Source.PersistentVolumeName
	if name == nil {
		return refusedError("the attachment names no PersistentVolume")
	}
	v, err := d.client.CoreV1().PersistentVolumes().Get(ctx, *name, metav1.GetOptions{})
	if err != nil {
		return refusedError(err.Error())
	}
	all, err := d.attachmentsOf(ctx, v.Name)
	if err != nil {
		return err
	}
	if err := attachable(v, a.Spec.NodeName, all); err != nil {
		return err
	}
	if !slices.Contains(v.Finalizers, attacherFinalizer) {
		patch := merge(v, map[string]any{"finalizers": append(v.Finalizers, attacherFinalizer)}, nil)
		if _, err := d.client.CoreV1().PersistentVolumes().Patch(ctx, v.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	if !slices.Contains(a.Finalizers, attacherFinalizer) {
		if a, err = d.patch(ctx, a, map[string]any{"finalizers": append(a.Finalizers, attacherFinalizer)}, nil); err != nil {
			return err
		}
	}
	_, err = d.patch(ctx, a, nil, map[string]any{"attached": true, "attachError": nil})
	return err
}

// attachable is why a volume with these attachments cannot be attached to a node. An attachment
// that the attacher has begun with has its finalizer.
func attachable(v *corev1.PersistentVolume, node string, attachments []storagev1.VolumeAttachment) error {
	other := slices.IndexFunc(attachments, func(a storagev1.VolumeAttachment) bool {
		return a.Spec.NodeName != node && slices.Contains(a.Finalizers, attacherFinalizer)
	})
	shared := slices.ContainsFunc(v.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m == corev1.ReadWriteMany || m == corev1.ReadOnlyMany
	})
	switch {
	case !ours(v):
		return refusedError(fmt.Sprintf("PersistentVolume %s is not of driver %s", v.Name, driverName))
	case v.DeletionTimestamp != nil:
		return refusedError(fmt.Sprintf("PersistentVolume %s is being deleted", v.Name))
	case other >= 0 && !shared:
		return refusedError(fmt.Sprintf("PersistentVolume %s is attached to node %s", v.Name, attachments[other].Spec.NodeName))
	}
	return nil
}

// refuse records why a volume could not be attached, unless the status has it already.
func (d *driver) refuse(ctx context.Context, a *storagev1.VolumeAttachment, why refusedError) error {
	if said := a.Status.AttachError; said != nil && said.Message == string(why) {
		return nil
	}
	_, err := d.patch(ctx, a, nil, map[string]any{"attachError": map[string]any{"message": string(why), "time": time.Now().UTC().Format(time.RFC3339)}})
	return err
}

// detach reports the volume as detached, and removes the finalizer of the attachment.
func (d *driver) detach(ctx context.Context, a *storagev1.VolumeAttachment) (err error) {
	if !slices.Contains(a.Finalizers, attacherFinalizer) {
		return nil
	}
	if a.Status.Attached {
		if a, err = d.patch(ctx, a, nil, map[string]any{"attached": false, "detachError": nil}); err != nil {
			return err
		}
	}
	left := slices.DeleteFunc(slices.Clone(a.Finalizers), func(f string) bool { return f == attacherFinalizer })
	_, err = d.patch(ctx, a, map[string]any{"finalizers": left}, nil)
	return err
}

// patch patches the metadata or the status of an attachment, and returns the result.
func (d *driver) patch(ctx context.Context, a *storagev1.VolumeAttachment, metadata, status map[string]any) (*storagev1.VolumeAttachment, error) {
	if status == nil {
		return d.client.StorageV1().VolumeAttachments().Patch(ctx, a.Name, types.MergePatchType, merge(a, metadata, nil), metav1.PatchOptions{})
	}
	return d.client.StorageV1().VolumeAttachments().Patch(ctx, a.Name, types.MergePatchType, merge(a, nil, map[string]any{"status": status}), metav1.PatchOptions{}, "status")
}
