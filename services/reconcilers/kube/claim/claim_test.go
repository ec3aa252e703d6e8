package claim

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func data() *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-data", UID: "c"}}
	c.Spec.VolumeName, c.Status.Phase = "disk-1", corev1.ClaimBound
	return c
}

func disk() *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk-1", UID: "v"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "web-data", UID: "c"}
	return pv
}

func TestAClaimAndItsVolume(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim)
		bound  bool
	}{
		"both say so": {func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {}, true},
		"the claim is pending": {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Status.Phase = corev1.ClaimPending
		}, false},
		"the claim names another":       {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "disk-2" }, false},
		"the volume names none":         {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef = nil }, false},
		"the volume names an older one": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.UID = "old" }, false},
		"the volume names another":      {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.Name = "other" }, false},
	} {
		pv, claim := disk(), data()
		c.change(pv, claim)
		world := reconciletest.NewWorld(kinds.PersistentVolumeClaims.Kind).Put(kinds.PersistentVolumeClaims.Kind, claim)
		if of := Of(world, pv); (of != nil) != c.bound {
			t.Errorf("%s: the volume is of %v", what, of)
		}
		if pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Name == claim.Name && Bound(pv, claim) != c.bound {
			t.Errorf("%s: they are bound to each other: %t", what, !c.bound)
		}
	}
	pending := data()
	pending.Status.Phase = corev1.ClaimPending
	if Volume(data()) != "disk-1" || Volume(pending) != "" {
		t.Errorf("the claim is bound to %q, and to %q while it is pending", Volume(data()), Volume(pending))
	}
}

func TestWhichVolumeOfAPodIsAClaim(t *testing.T) {
	named := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"}}}
	own := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "p"}}
	controlled := data()
	controlled.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "p", Controller: new(true)}}
	elsewhere := data()
	elsewhere.Namespace = "other"
	for what, c := range map[string]struct {
		volume corev1.Volume
		claim  *corev1.PersistentVolumeClaim
		used   bool
	}{
		"one that the pod names":                 {named, data(), true},
		"one of that name in another namespace":  {named, elsewhere, false},
		"the pod's own":                          {own, controlled, true},
		"one that has the name of the pod's own": {own, data(), false},
		"none":                                   {corev1.Volume{Name: "data"}, data(), false},
	} {
		if Used(pod, &c.volume, c.claim) != c.used {
			t.Errorf("%s: the claim is used: %t, want %t", what, !c.used, c.used)
		}
	}
}
