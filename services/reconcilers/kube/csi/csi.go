// Package csi knows which volumes belong to CSI drivers: those that name a driver, and those
// of in-tree plugins that drivers have replaced.
package csi

import (
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	translation "k8s.io/csi-translation-lib"
)

// Migrated returns the in-tree plugin of a PersistentVolume and the driver that replaced it;
// ok is false if no driver did.
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

// Plugin is the name of the plugin for all CSI drivers, as in the names of volumes.
const Plugin = "kubernetes.io/csi"

// Volume identifies a volume to its driver.
type Volume struct{ Driver, Handle string }

// VolumeOf returns the volume behind a PersistentVolume, including one that names an in-tree
// plugin which a driver has replaced; ok is false for a volume of no driver.
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

// silently calls a function that would log, with no logger, because only a decision's reason
// explains it.
func silently[Logger any](translate func(Logger, *corev1.PersistentVolume) (*corev1.PersistentVolume, error), pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	var none Logger
	return translate(none, pv)
}

// Inline returns the volume behind an inline volume of a pod, of an in-tree plugin that a
// driver has replaced. migrated is false for a volume of another plugin, ok if it cannot be
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

// silentlyIn is [silently] for an inline volume of a pod in a namespace.
func silentlyIn[Logger any](translate func(Logger, *corev1.Volume, string) (*corev1.PersistentVolume, error), of *corev1.Volume, namespace string) (*corev1.PersistentVolume, error) {
	var none Logger
	return translate(none, of, namespace)
}

// TakenOver reports whether a driver has replaced an in-tree plugin.
func TakenOver(driver string) bool { return translation.New().IsMigratedCSIDriverByName(driver) }

// Name is the name of the volume in the statuses of nodes.
func (v Volume) Name() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(Plugin + "/" + v.Driver + separator + v.Handle)
}

// separator is between the driver and the handle in names.
const separator = "^"

// Named returns the volume with a name in the statuses of nodes; ok is false if it has no
// driver.
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
