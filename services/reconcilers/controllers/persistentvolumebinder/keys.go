package persistentvolumebinder

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/keys"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func (v View) own() metav1.Object {
	switch {
	case v.Volume != nil:
		return v.Volume
	case v.Claim != nil:
		return v.Claim
	default:
		return nil
	}
}

func keyOfClaim(namespace, name string) events.Key {
	return events.Key{Namespace: namespace, Name: name}
}

func keyOfVolume(name string) events.Key {
	return events.Key{Kind: kinds.PersistentVolumes.Name, Name: name}
}

// keysOfClaim maps a claim to itself and to the volume that it names. If the volume's name is
// new, it also maps to all volumes that name the claim.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var all keys.Set
	before, _ := was.Object.(*corev1.PersistentVolumeClaim)
	after, _ := now.Object.(*corev1.PersistentVolumeClaim)
	for _, claim := range []*corev1.PersistentVolumeClaim{after, before} {
		if claim == nil {
			continue
		}
		all.Add(keyOfClaim(claim.Namespace, claim.Name))
		if claim.Spec.VolumeName != "" {
			all.Add(keyOfVolume(claim.Spec.VolumeName))
		}
	}
	if before != nil && after != nil && before.UID == after.UID && before.Spec.VolumeName == after.Spec.VolumeName {
		return all.All()
	}
	for _, volume := range reconcile.List(s, kinds.PersistentVolumes, "") {
		ref := volume.Spec.ClaimRef
		if ref != nil && ref.UID != "" && all.Has(keyOfClaim(ref.Namespace, ref.Name)) {
			all.Add(keyOfVolume(volume.Name))
		}
	}
	return all.All()
}

// keysOfVolume maps a volume to itself and to the claims in its claimRef. If the claimRef is
// new, it also maps to the claims that name the volume, and while the volume is free to the
// claims that may have it.
func keysOfVolume(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var all keys.Set
	var holders [2]corev1.ObjectReference
	for i, obj := range []reconcile.Object{now, was} {
		volume, there := obj.Object.(*corev1.PersistentVolume)
		if !there {
			continue
		}
		all.Add(keyOfVolume(volume.Name))
		if ref := volume.Spec.ClaimRef; ref != nil {
			all.Add(keyOfClaim(ref.Namespace, ref.Name))
			holders[i] = *ref
		}
	}
	volume, there := now.Object.(*corev1.PersistentVolume)
	free := there && volume.Spec.ClaimRef == nil && volume.Status.Phase == corev1.VolumeAvailable && volume.DeletionTimestamp == nil
	if there && !free && !was.None() && holders[0] == holders[1] {
		return all.All()
	}
	name := keys.Newest(was, now).GetName()
	for _, claim := range reconcile.List(s, kinds.PersistentVolumeClaims, "") {
		if claim.Spec.VolumeName == name || free && claim.Spec.VolumeName == "" && classOf(claim) == classOfVolume(volume) {
			all.Add(keyOfClaim(claim.Namespace, claim.Name))
		}
	}
	return all.All()
}

// keysOfClass maps a class to the claims without a volume that have this class or none.
func keysOfClass(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	class, there := now.Object.(*storagev1.StorageClass)
	if !there {
		if class, there = was.Object.(*storagev1.StorageClass); !there {
			return nil
		}
	}
	var all keys.Set
	for _, claim := range reconcile.List(s, kinds.PersistentVolumeClaims, "") {
		if claim.Spec.VolumeName == "" && (classOf(claim) == class.Name || !hasClass(claim)) {
			all.Add(keyOfClaim(claim.Namespace, claim.Name))
		}
	}
	return all.All()
}

// keysOfPod maps a pod to its claims without a volume when it begins or ceases to wait for a
// node, because the claims report the pods that they wait for.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*corev1.Pod)
	after, _ := now.Object.(*corev1.Pod)
	waited, waits := before != nil && waits(before), after != nil && waits(after)
	if waited == waits {
		return nil
	}
	if after == nil {
		after = before
	}
	var all keys.Set
	for _, name := range claimsOf(after) {
		if claim, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, after.Namespace, name); ok && claim.Spec.VolumeName == "" {
			all.Add(keyOfClaim(after.Namespace, name))
		}
	}
	return all.All()
}
