package storage

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Rules about claims and their volumes: V1 to V3.

func classNamed(c *corev1.PersistentVolumeClaim) string {
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

// fits reports whether a volume suits a claim by its size, modes and class.
func fits(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	lacks := func(m corev1.PersistentVolumeAccessMode) bool { return !slices.Contains(pv.Spec.AccessModes, m) }
	return pv.DeletionTimestamp == nil && SizeIn(pv.Spec.Capacity) >= SizeIn(c.Spec.Resources.Requests) &&
		!slices.ContainsFunc(c.Spec.AccessModes, lacks) && pv.Spec.StorageClassName == classNamed(c)
}

func free(pv *corev1.PersistentVolume) bool {
	return pv.Spec.ClaimRef == nil && pv.Status.Phase == corev1.VolumeAvailable
}

// reservedFor reports whether a volume is reserved for a claim, or for one with its name.
func reservedFor(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && ref.Namespace == c.Namespace && ref.Name == c.Name && (ref.UID == "" || ref.UID == c.UID)
}

// holder is the claim to which a volume says it is bound, if that claim exists.
func holder(w *cluster.Cluster, pv *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return nil
	}
	c, _ := w.API.Get(ClaimRefOf(ref.Name)).(*corev1.PersistentVolumeClaim)
	if c == nil || c.UID != ref.UID {
		return nil
	}
	return c
}

// claimedStill checks a volume whose data are about to be deleted: its claim is gone, or has
// another volume.
func claimedStill(g *cluster.Guard, pv *corev1.PersistentVolume, what string) {
	if c := holder(g.World, pv); c != nil && (c.Spec.VolumeName == "" || c.Spec.VolumeName == pv.Name) {
		g.Breaks("V2", "volume %s: %s, and the claim %s (%s) has it", pv.Name, what, c.Name, c.UID)
	}
}

// Stored checks the changes of claims and volumes.
func Stored(g *cluster.Guard, old, now metav1.Object) {
	if !Stores(g.World) || g.Record.Restoring {
		return
	}
	switch o := now.(type) {
	case *corev1.PersistentVolume:
		was, _ := old.(*corev1.PersistentVolume)
		volumeBound(g, was, o)
	case *corev1.PersistentVolumeClaim:
		was, _ := old.(*corev1.PersistentVolumeClaim)
		claimBound(g, was, o)
	}
}

// volumeBound checks a changed volume: no claim has two volumes, and none loses its volume.
func volumeBound(g *cluster.Guard, was, pv *corev1.PersistentVolume) {
	if ref := pv.Spec.ClaimRef; ref != nil && pv.Status.Phase == corev1.VolumeBound {
		for _, obj := range g.World.API.List(kinds.PersistentVolumes.Name) {
			other := obj.(*corev1.PersistentVolume)
			if other.Name != pv.Name && other.Status.Phase == corev1.VolumeBound && other.Spec.ClaimRef != nil && other.Spec.ClaimRef.UID == ref.UID {
				g.Breaks("V1", "the claim %s (%s) has the volumes %s and %s", ref.Name, ref.UID, pv.Name, other.Name)
			}
		}
	}
	if was == nil || g.Turns.Doing == nil {
		return
	}
	before, after := was.Spec.ClaimRef, pv.Spec.ClaimRef
	if holder := holder(g.World, was); holder != nil && (after == nil || after.UID != before.UID) && (holder.Spec.VolumeName == was.Name || after != nil && after.UID != "") {
		g.Breaks("V1", "volume %s is taken from the claim %s (%s)", pv.Name, holder.Name, holder.UID)
	}
	if after != nil && after.UID != "" && (before == nil || before.UID != after.UID) {
		given(g, was, after)
	}
	if pv.Status.Phase == corev1.VolumeReleased && was.Status.Phase != corev1.VolumeReleased {
		claimedStill(g, pv, "it is released")
	}
}

// given checks a volume that is being bound to a claim: it was free, or reserved for the claim,
// and suits it.
func given(g *cluster.Guard, was *corev1.PersistentVolume, to *corev1.ObjectReference) {
	c, ok := g.World.API.Get(ClaimRefOf(to.Name)).(*corev1.PersistentVolumeClaim)
	if !ok || c.UID != to.UID {
		g.Spare(cluster.ClaimGone)
		return
	}
	if was.Spec.ClaimRef != nil && !reservedFor(was, c) {
		g.Breaks("V1", "volume %s is for %s, and given to %s", was.Name, was.Spec.ClaimRef.Name, c.Name)
	}
	if fits(was, c) || was.Spec.ClaimRef != nil {
		return
	}
	if _, completed := c.Annotations["pv.kubernetes.io/bind-completed"]; completed && c.Spec.VolumeName == was.Name {
		g.Spare(cluster.CameAgain)
	} else {
		g.Breaks("V1", "volume %s of %s, class %q, is given to the claim %s of class %q", was.Name, was.Spec.Capacity.Storage(), was.Spec.StorageClassName, c.Name, classNamed(c))
	}
}

// claimBound checks a changed claim: no volume has two claims, and no claim is lost while its
// volume exists for it.
func claimBound(g *cluster.Guard, was, c *corev1.PersistentVolumeClaim) {
	if c.Status.Phase == corev1.ClaimBound {
		for _, obj := range g.World.API.List(kinds.PersistentVolumeClaims.Name) {
			other := obj.(*corev1.PersistentVolumeClaim)
			if other.UID != c.UID && other.Status.Phase == corev1.ClaimBound && other.Spec.VolumeName == c.Spec.VolumeName {
				g.Breaks("V1", "the volume %s has the claims %s and %s", c.Spec.VolumeName, c.Name, other.Name)
			}
		}
	}
	if was == nil || g.Turns.Doing == nil {
		return
	}
	if was.Spec.VolumeName != "" && was.Spec.VolumeName != c.Spec.VolumeName {
		g.Breaks("V1", "claim %s has %s instead of %s", c.Name, c.Spec.VolumeName, was.Spec.VolumeName)
	}
	pv, there := g.World.API.Get(VolumeRef(c.Spec.VolumeName)).(*corev1.PersistentVolume)
	if c.Status.Phase == corev1.ClaimLost && was.Status.Phase != corev1.ClaimLost && there && (pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == c.UID) {
		g.Breaks("V2", "claim %s is called lost, and its volume %s is there", c.Name, pv.Name)
	}
	if c.Status.Phase == corev1.ClaimBound && was.Status.Phase != corev1.ClaimBound && (!there || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != c.UID) {
		g.Breaks("V1", "claim %s is called bound, and %s does not have it", c.Name, c.Spec.VolumeName)
	}
}

// Bound reports whether each claim that can have a volume has one, of the size that it asks for,
// and each volume's status is right.
func Bound(w *cluster.Cluster) error {
	if !Stores(w) {
		return nil
	}
	for _, obj := range w.API.List(kinds.PersistentVolumeClaims.Name) {
		c := obj.(*corev1.PersistentVolumeClaim)
		if c.Status.Phase == corev1.ClaimPending && c.DeletionTimestamp == nil {
			if why := bindable(w, c); why != "" {
				return fmt.Errorf("claim %s is not bound, and %s", c.Name, why)
			}
		}
		if pv := volumeBehind(w, c.Name); c.Status.Phase == corev1.ClaimBound && (pv == nil || pv.Status.Phase != corev1.VolumeBound) {
			return fmt.Errorf("claim %s says that it has %s, which does not", c.Name, c.Spec.VolumeName)
		} else if pv != nil && SizeIn(c.Status.Capacity) < SizeIn(c.Spec.Resources.Requests) {
			return fmt.Errorf("claim %s has %v, and asks for %v", c.Name, c.Status.Capacity, c.Spec.Resources.Requests)
		}
	}
	for _, obj := range w.API.List(kinds.PersistentVolumes.Name) {
		pv, want := obj.(*corev1.PersistentVolume), corev1.VolumeAvailable
		holder := holder(w, pv)
		switch {
		case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == "":
		case holder == nil:
			want = corev1.VolumeReleased
		case holder.Spec.VolumeName == pv.Name:
			want = corev1.VolumeBound
		default:
			return fmt.Errorf("volume %s is for the claim %s, which has %q", pv.Name, holder.Name, holder.Spec.VolumeName)
		}
		if pv.Status.Phase != want {
			return fmt.Errorf("volume %s is %s, and should be %s", pv.Name, pv.Status.Phase, want)
		}
		if want == corev1.VolumeReleased && !ByHand(pv) && len(attachmentsOf(w, pv.Name)) == 0 {
			return fmt.Errorf("volume %s is released, and was not deleted", pv.Name)
		}
	}
	return attachedAsWanted(w)
}

// bindable is the reason why a claim should have a volume; empty if it cannot have one yet.
func bindable(w *cluster.Cluster, c *corev1.PersistentVolumeClaim) string {
	if name := c.Spec.VolumeName; name != "" {
		pv, ok := w.API.Get(VolumeRef(name)).(*corev1.PersistentVolume)
		if ok && (free(pv) && fits(pv, c) || reservedFor(pv, c)) {
			return "the volume that it names can be its own"
		}
		return ""
	}
	class, known := classes[classNamed(c)]
	_, isDefault := w.API.Get(events.Ref{Kind: kinds.StorageClasses.Name, Name: "fast"}).GetAnnotations()[isDefault]
	switch {
	case known && (!class.late || c.Annotations[selected] != ""):
		return "a provisioner makes volumes of its class"
	case c.Spec.StorageClassName == nil && isDefault:
		return "there is a default class"
	}
	if pv := anyVolume(w, func(pv *corev1.PersistentVolume) bool {
		return fits(pv, c) && (free(pv) && !class.late || reservedFor(pv, c))
	}); pv != nil {
		return pv.Name + " fits"
	}
	return ""
}
