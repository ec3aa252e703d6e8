package storage_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/storage"
)

func TestVolumesAreExpandedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, storage.VolumeExpander, oracletest.Key, expansionWorld)
}

// expansionWorld is a claim with a requested size, and a volume that may be its own.
func expansionWorld(t *rapid.T) []runtime.Object {
	size := func(what string) corev1.ResourceList {
		text := rapid.SampledFrom([]string{"", "5Gi", "5120Mi", "10Gi", "0"}).Draw(t, what)
		if text == "" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: oracletest.Owner, UID: "claim", ResourceVersion: "10"}}
	claim.Spec.VolumeName = rapid.SampledFrom([]string{"pv", "pv", "pv", "pv", ""}).Draw(t, "names")
	claim.Spec.Resources.Requests, claim.Status.Capacity = size("asked"), size("had")
	claim.Status.Phase = rapid.SampledFrom([]corev1.PersistentVolumeClaimPhase{corev1.ClaimBound, corev1.ClaimBound, corev1.ClaimBound, corev1.ClaimPending, corev1.ClaimLost}).Draw(t, "phase")
	if name := rapid.SampledFrom([]string{"", "", "ebs.csi.aws.com", "another"}).Draw(t, "resizer"); name != "" {
		claim.Annotations = map[string]string{"volume.kubernetes.io/storage-resizer": name, "example.com/other": "x"}
	}
	if oracletest.Chance(t, 8, "deleted") {
		claim.DeletionTimestamp, claim.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "when")), []string{"kubernetes.io/pvc-protection"}
	}
	world := []runtime.Object{claim}
	if oracletest.Chance(t, 8, "no volume") {
		return world
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv", ResourceVersion: "9"}}
	pv.Spec.PersistentVolumeSource = rapid.SampledFrom([]corev1.PersistentVolumeSource{
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "h"}},
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "h"}},
		{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "v"}},
		{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "v"}},
		{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "v"}},
		{AzureFile: &corev1.AzureFilePersistentVolumeSource{ShareName: "v"}},
		{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "v"}},
		{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "v"}},
		{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "v"}},
		{NFS: &corev1.NFSVolumeSource{Server: "s"}},
		{ISCSI: &corev1.ISCSIPersistentVolumeSource{}},
		{},
	}).Draw(t, "source")
	if !oracletest.Chance(t, 8, "free") {
		pv.Spec.ClaimRef = &corev1.ObjectReference{
			Namespace: rapid.SampledFrom([]string{oracletest.Namespace, oracletest.Namespace, oracletest.Namespace, "other"}).Draw(t, "namespace"), Name: oracletest.Owner,
			UID: rapid.SampledFrom([]types.UID{"claim", "claim", "claim", "claim", "earlier", ""}).Draw(t, "bound to"),
		}
	}
	if oracletest.Chance(t, 4, "on the way") {
		pv.Annotations = map[string]string{"volume.alpha.kubernetes.io/pre-resize-capacity": "4Gi"}
	}
	return append(world, pv)
}
