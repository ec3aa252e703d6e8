package persistentvolumebinder

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
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

// turns are keys, each once.
type turns []events.Key

func (t *turns) add(keys ...events.Key) {
	for _, key := range keys {
		if !slices.Contains(*t, key) {
			*t = append(*t, key)
		}
	}
}

// keysOfClaim maps a claim to itself, to the volume that it names, and where that is new to all
// volumes that say they are bound to it.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys turns
	before, _ := was.Object.(*corev1.PersistentVolumeClaim)
	after, _ := now.Object.(*corev1.PersistentVolumeClaim)
	for _, claim := range []*corev1.PersistentVolumeClaim{after, before} {
		if claim == nil {
			continue
		}
		keys.add(keyOfClaim(claim.Namespace, claim.Name))
		if claim.Spec.VolumeName != "" {
			keys.add(keyOfVolume(claim.Spec.VolumeName))
		}
	}
	if before != nil && after != nil && before.UID == after.UID && before.Spec.VolumeName == after.Spec.VolumeName {
		return keys
	}
	for _, volume := range reconcile.List(s, kinds.PersistentVolumes, "") {
		ref := volume.Spec.ClaimRef
		if ref != nil && ref.UID != "" && slices.Contains(keys, keyOfClaim(ref.Namespace, ref.Name)) {
			keys.add(keyOfVolume(volume.Name))
		}
	}
	return keys
}

// keysOfVolume maps a volume to itself, to the claims that it says it is bound to, to those that
// name it where that is another one, and while it is free to those that may have it.
func keysOfVolume(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys turns
	var holders [2]corev1.ObjectReference
	for i, obj := range []reconcile.Object{now, was} {
		volume, there := obj.Object.(*corev1.PersistentVolume)
		if !there {
			continue
		}
		keys.add(keyOfVolume(volume.Name))
		if ref := volume.Spec.ClaimRef; ref != nil {
			keys.add(keyOfClaim(ref.Namespace, ref.Name))
			holders[i] = *ref
		}
	}
	volume, there := now.Object.(*corev1.PersistentVolume)
	free := there && volume.Spec.ClaimRef == nil && volume.Status.Phase == corev1.VolumeAvailable && volume.DeletionTimestamp == nil
	if there && !free && !was.None() && holders[0] == holders[1] {
		return keys
	}
	for _, claim := range reconcile.List(s, kinds.PersistentVolumeClaims, "") {
		if claim.Spec.VolumeName == keys[0].Name || free && claim.Spec.VolumeName == "" && classOf(claim) == classOfVolume(volume) {
			keys.add(keyOfClaim(claim.Namespace, claim.Name))
		}
	}
	return keys
}

// keysOfClass maps a class to the claims without a volume that are of it, or of none.
func keysOfClass(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	class, there := now.Object.(*storagev1.StorageClass)
	if !there {
		if class, there = was.Object.(*storagev1.StorageClass); !there {
			return nil
		}
	}
	var keys turns
	for _, claim := range reconcile.List(s, kinds.PersistentVolumeClaims, "") {
		if claim.Spec.VolumeName == "" && (classOf(claim) == class.Name || !hasClass(claim)) {
			keys.add(keyOfClaim(claim.Namespace, claim.Name))
		}
	}
	return keys
}

// keysOfPod maps a pod to its claims without a volume, when it begins or ceases to wait for a
// node. They say for which pods they wait.
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
	var keys turns
	for _, name := range claimsOf(after) {
		if claim, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, after.Namespace, name); ok && claim.Spec.VolumeName == "" {
			keys.add(keyOfClaim(after.Namespace, name))
		}
	}
	return keys
}
