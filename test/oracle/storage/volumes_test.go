package storage_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/storage"
)

func TestRefusedEphemeralVolumesAreAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, storage.EphemeralVolumeAtRest, ephemeralWorld, oracletest.Creates)
}

func TestRefusedClassesAreProtectedAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, storage.ClassProtectionAtRest, classWorld, oracletest.Updates)
}

func TestEphemeralVolumesAreAsUpstreams(t *testing.T) {
	oracletest.Agree(t, storage.EphemeralVolume, events.Key{Namespace: oracletest.Namespace, Name: oracletest.Owner}, ephemeralWorld)
}

// ephemeralWorld is a pod with ephemeral volumes, and claims with their names.
func ephemeralWorld(t *rapid.T) []runtime.Object {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "pod", ResourceVersion: "10"}}
	if oracletest.Chance(t, 8, "deleted") {
		p.DeletionTimestamp, p.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "when")), []string{"example.com/hold"}
	}
	world := []runtime.Object{p}
	for i := range rapid.IntRange(0, 4).Draw(t, "volumes") {
		v := corev1.Volume{Name: fmt.Sprint("v", i)}
		if oracletest.Chance(t, 4, "plain") {
			v.EmptyDir = &corev1.EmptyDirVolumeSource{}
		} else {
			v.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": v.Name}, Annotations: map[string]string{"a": "b"}},
				Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: oracletest.Ptr("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
			}}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
		if oracletest.Chance(t, 2, "no claim") {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner + "-" + v.Name, Namespace: oracletest.Namespace, UID: types.UID("claim-" + v.Name)}}
		if uid := rapid.SampledFrom([]types.UID{"pod", "pod", "pod", "another", ""}).Draw(t, "claim of"); uid != "" {
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: oracletest.Owner, UID: uid, Controller: oracletest.Ptr(!oracletest.Chance(t, 8, "no controller"))}}
		}
		world = append(world, claim)
	}
	return world
}

func TestClassesAreProtectedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, storage.ClassProtection, events.Key{Name: oracletest.Owner}, classWorld)
}

// classWorld is a class, and volumes and claims that name it or another one.
func classWorld(t *rapid.T) []runtime.Object {
	class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, UID: "class", ResourceVersion: "10"}, DriverName: "d", Parameters: map[string]string{"a": "b"}}
	class.Finalizers = rapid.SampledFrom([][]string{nil, {"kubernetes.io/vac-protection"}, {"x", "kubernetes.io/vac-protection"}, {"x"}}).Draw(t, "finalizers")
	if len(class.Finalizers) > 0 && rapid.Bool().Draw(t, "deleted") {
		class.DeletionTimestamp = oracletest.Ptr(oracletest.Ago(t, 60, "when"))
	}
	world := []runtime.Object{class}
	named := func(what string) *string {
		return rapid.SampledFrom([]*string{nil, nil, oracletest.Ptr("other"), oracletest.Ptr(oracletest.Owner)}).Draw(t, what)
	}
	if rapid.Bool().Draw(t, "volume") {
		world = append(world, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{VolumeAttributesClassName: named("volume's class")}})
	}
	if rapid.Bool().Draw(t, "claim") {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: oracletest.Namespace}, Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: named("wanted")}}
		c.Status.CurrentVolumeAttributesClassName = named("current")
		if target := named("target"); target != nil {
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: *target}
		}
		world = append(world, c)
	}
	return world
}
