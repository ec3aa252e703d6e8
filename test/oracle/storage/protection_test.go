package storage_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/storage"
)

func TestClaimsAreProtectedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, storage.ClaimProtection, oracletest.Key, claimWorld)
}

func TestVolumesAreProtectedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, storage.VolumeProtection, oracletest.ClusterKey, volumeWorld)
}

// guarded gives an object some finalizers, and may mark one with finalizers as deleted.
func guarded(t *rapid.T, obj metav1.Object, guard string) {
	obj.SetFinalizers(rapid.SampledFrom([][]string{nil, {guard}, {"x", guard}, {"x"}}).Draw(t, "finalizers"))
	if len(obj.GetFinalizers()) > 0 && rapid.Bool().Draw(t, "deleted") {
		at := metav1.NewTime(objects.Now.Add(-60e9).Truncate(1e9))
		obj.SetDeletionTimestamp(&at)
	}
}

// claimWorld is a claim, and pods that use it or another one.
func claimWorld(t *rapid.T) []runtime.Object {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "claim", ResourceVersion: "10"}}
	guarded(t, claim, "kubernetes.io/pvc-protection")
	world := []runtime.Object{claim}
	for i := range rapid.IntRange(0, 3).Draw(t, "pods") {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: oracletest.Namespace, UID: types.UID(fmt.Sprint("pod", i))}}
		p.Namespace = rapid.SampledFrom([]string{oracletest.Namespace, oracletest.Namespace, oracletest.Namespace, "other"}).Draw(t, "namespace")
		p.Spec.NodeName = rapid.SampledFrom([]string{"", "n1", "n1"}).Draw(t, "node")
		p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Succeeded", "Failed"}).Draw(t, "phase")
		v := corev1.Volume{Name: "v"}
		switch rapid.IntRange(0, 3).Draw(t, "volume") {
		case 0:
			v.EmptyDir = &corev1.EmptyDirVolumeSource{}
		case 1:
			v.Ephemeral = &corev1.EphemeralVolumeSource{}
			p.Name = "web-of" // otherwise the claim would be another one
		default:
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: rapid.SampledFrom([]string{oracletest.Owner, oracletest.Owner, "another"}).Draw(t, "claim")}
		}
		if p.Name = fmt.Sprint(p.Name, i); oracletest.Chance(t, 4, "shut down") {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "when")), oracletest.Ptr(int64(0)), []string{"x"}
		}
		p.Spec.Volumes = []corev1.Volume{v}
		world = append(world, p)
	}
	return world
}

func volumeWorld(t *rapid.T) []runtime.Object {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, UID: "pv", ResourceVersion: "10"}}
	guarded(t, pv, "kubernetes.io/pv-protection")
	pv.Status.Phase = rapid.SampledFrom([]corev1.PersistentVolumePhase{"", "Pending", "Available", "Bound", "Released", "Failed"}).Draw(t, "phase")
	return []runtime.Object{pv}
}
