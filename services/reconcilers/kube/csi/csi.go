// Package csi knows which volumes are of CSI drivers: those that name a driver, and those of
// in-tree plugins of which drivers have taken over everything.
package csi

import (
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	translation "k8s.io/csi-translation-lib"
)

// Migrated is the in-tree plugin of a PersistentVolume and the driver that has taken over from
// it; ok is false for a volume that no driver has taken over.
//
// Upstream: pkg/volume/csimigration. Every plugin that can be translated is, since 1.32.
func Migrated(pv *corev1.PersistentVolume) (plugin, driver string, ok bool) {
	translator := translation.New()
	plugin, err := translator.GetInTreePluginNameFromSpec(pv, nil)
	if err != nil {
		return "", "", false
	}
	driver, err = translator.GetCSINameFromInTreeName(plugin)
	return plugin, driver, err == nil
}

// Plugin is the name of the plugin that speaks with all drivers, in the names of volumes.
const Plugin = "kubernetes.io/csi"

// Volume is a volume as its driver knows it.
type Volume struct{ Driver, Handle string }

// VolumeOf is the volume behind a PersistentVolume, also of one that names an in-tree plugin
// that a driver has taken over from; ok is false for a volume of no driver.
//
// Upstream: pkg/volume/csimigration, TranslateInTreeSpecToCSI.
func VolumeOf(pv *corev1.PersistentVolume) (v Volume, ok bool) {
	source := pv.Spec.CSI
	if source == nil {
		if _, _, migrated := Migrated(pv); !migrated {
			return Volume{}, false
		}
		translated, err := silently(translation.New().TranslateInTreePVToCSI, pv)
		if err != nil || translated.Spec.CSI == nil {
			return Volume{}, false
		}
		source = translated.Spec.CSI
	}
	return Volume{Driver: source.Driver, Handle: source.VolumeHandle}, true
}

// silently calls what would log: a decision says why it is made, and nothing else does.
func silently[Logger any](translate func(Logger, *corev1.PersistentVolume) (*corev1.PersistentVolume, error), pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	var none Logger
	return translate(none, pv)
}

// Inline is the volume behind one that a pod names itself, of an in-tree plugin that a driver
// has taken over; migrated is false for a volume of no such plugin, ok where it cannot be
// translated.
//
// Upstream: pkg/volume/csimigration, TranslateInTreeSpecToCSI.
func Inline(of *corev1.Volume, namespace string) (v Volume, migrated, ok bool) {
	translator := translation.New()
	if !translator.IsInlineMigratable(of) {
		return Volume{}, false, false
	}
	pv, err := silentlyIn(translator.TranslateInTreeInlineVolumeToCSI, of, namespace)
	if err != nil || pv.Spec.CSI == nil {
		return Volume{}, true, false
	}
	return Volume{Driver: pv.Spec.CSI.Driver, Handle: pv.Spec.CSI.VolumeHandle}, true, true
}

// silentlyIn is [silently] of a volume that a pod of a namespace names.
func silentlyIn[Logger any](translate func(Logger, *corev1.Volume, string) (*corev1.PersistentVolume, error), of *corev1.Volume, namespace string) (*corev1.PersistentVolume, error) {
	var none Logger
	return translate(none, of, namespace)
}

// TakenOver tells whether a driver has taken over from an in-tree plugin.
func TakenOver(driver string) bool { return translation.New().IsMigratedCSIDriverByName(driver) }

// Name is what nodes call the volume in their statuses.
func (v Volume) Name() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(Plugin + "/" + v.Driver + separator + v.Handle)
}

// separator is between driver and handle in names.
const separator = "^"

// Named is the volume of a name that nodes give it; ok is false where it is of no driver.
func Named(name corev1.UniqueVolumeName) (v Volume, ok bool) {
	of, ok := strings.CutPrefix(string(name), Plugin+"/")
	if !ok {
		return Volume{}, false
	}
	v.Driver, v.Handle, ok = strings.Cut(of, separator)
	return v, ok
}

// Attachment is the name of the VolumeAttachment that attaches the volume to a node.
//
// Upstream: pkg/volume/csi, getAttachmentName, which the kubelet has, too.
func (v Volume) Attachment(node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(v.Handle+v.Driver+node)))
}
