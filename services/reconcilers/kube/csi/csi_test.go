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

// The names are those that kubelets and attachers of drivers know.
func TestNames(t *testing.T) {
	ebs := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1/vol-1"},
	}}}
	own := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "a^b"},
	}}}
	for name, pv := range map[corev1.UniqueVolumeName]*corev1.PersistentVolume{
		"kubernetes.io/csi/ebs.csi.aws.com^vol-1": ebs,
		"kubernetes.io/csi/d^a^b":                 own,
	} {
		v, ok := VolumeOf(pv)
		if !ok || v.Name() != name {
			t.Errorf("the volume is called %s, %v, want %s", v.Name(), ok, name)
		}
		if back, ok := Named(name); !ok || back != v {
			t.Errorf("%s is read as %+v, %v", name, back, ok)
		}
	}
	if v, ok := VolumeOf(&corev1.PersistentVolume{}); ok {
		t.Errorf("a volume of nothing is %+v", v)
	}
	unreadable := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://"},
	}}}
	if v, ok := VolumeOf(unreadable); ok || v != (Volume{}) {
		t.Errorf("a volume whose name cannot be read is %+v", v)
	}
	for _, name := range []corev1.UniqueVolumeName{"kubernetes.io/iscsi/d^h", "kubernetes.io/csi/d", ""} {
		if v, ok := Named(name); ok {
			t.Errorf("%q is read as %+v", name, v)
		}
	}
	const want = "csi-fdef298eb16db6fa42906ef1ff09a93a7f3028f8290cc9d71628ff91c237bfa7"
	if got := (Volume{Driver: "driver", Handle: "handle"}).Attachment("node"); got != want {
		t.Errorf("the attachment is called %s, want %s", got, want)
	}
}

// What pods name without a claim has the name that it has with one.
func TestInline(t *testing.T) {
	ebs := func(id string) corev1.VolumeSource {
		return corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id}}
	}
	for what, c := range map[string]struct {
		source       corev1.VolumeSource
		want         Volume
		migrated, ok bool
	}{
		"EBS":        {ebs("aws://us-east-1/vol-1"), Volume{"ebs.csi.aws.com", "vol-1"}, true, true},
		"unreadable": {ebs("aws://"), Volume{}, true, false},
		"a driver":   {corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}, Volume{}, false, false},
		"nothing":    {corev1.VolumeSource{}, Volume{}, false, false},
	} {
		if v, migrated, ok := Inline(&corev1.Volume{Name: "v", VolumeSource: c.source}, "shop"); v != c.want || migrated != c.migrated || ok != c.ok {
			t.Errorf("%s: the volume is %+v, migrated: %v, %v", what, v, migrated, ok)
		}
	}
	if !TakenOver("ebs.csi.aws.com") || TakenOver("d.example.com") {
		t.Error("TakenOver is wrong about the driver of EBS, or about an unknown one")
	}
}
