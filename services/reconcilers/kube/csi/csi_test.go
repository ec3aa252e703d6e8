package csi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMigrated(t *testing.T) {
	for driver, c := range map[string]struct {
		plugin string
		source corev1.PersistentVolumeSource
	}{
		"ebs.csi.aws.com":       {"kubernetes.io/aws-ebs", corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "v"}}},
		"pd.csi.storage.gke.io": {"kubernetes.io/gce-pd", corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "v"}}},
		"pxd.portworx.com":      {"kubernetes.io/portworx-volume", corev1.PersistentVolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "v"}}},
	} {
		plugin, of, ok := Migrated(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: c.source}})
		if !ok || plugin != c.plugin || of != driver {
			t.Errorf("a volume of %s is of %s, %s, %v", driver, plugin, of, ok)
		}
	}
	for name, source := range map[string]corev1.PersistentVolumeSource{
		"a driver": {CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "v"}},
		"NFS":      {NFS: &corev1.NFSVolumeSource{}},
		"nothing":  {},
	} {
		if plugin, driver, ok := Migrated(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}); ok {
			t.Errorf("a volume of %s is of %s, which %s has taken over", name, plugin, driver)
		}
	}
}
