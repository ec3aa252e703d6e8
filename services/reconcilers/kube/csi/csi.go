// Package csi knows which volumes are of CSI drivers: those that name a driver, and those of
// in-tree plugins of which drivers have taken over everything.
package csi

import (
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
