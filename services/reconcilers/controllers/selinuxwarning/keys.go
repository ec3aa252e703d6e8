package selinuxwarning

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/claim"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/kube/keys"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// addTold adds a pod whose own containers conflict.
func addTold(all *keys.Set, p *corev1.Pod) {
	if pod.Terminal(p) {
		return
	}
	for i := range p.Spec.Volumes {
		if len(labelsIn(p, p.Spec.Volumes[i].Name)) > 1 {
			all.Add(events.Key{Namespace: p.Namespace, Name: p.Name})
			return
		}
	}
}

// keysOfPod maps a pod that was created, deleted or has ended to its volumes and itself.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	// No other relevant part of a pod can change.
	same := func(a, b *corev1.Pod) bool {
		return pod.Terminal(a) == pod.Terminal(b) && len(a.Spec.EphemeralContainers) == len(b.Spec.EphemeralContainers)
	}
	sides := keys.Sides(was, now, same)
	var all keys.Set
	for _, p := range sides {
		for i := range p.Spec.Volumes {
			if v, ok := behind(s, p, &p.Spec.Volumes[i]); ok && mountedBy(p, p.Spec.Volumes[i].Name) {
				all.Add(v.key())
			}
		}
	}
	if len(sides) > 0 && !now.None() {
		addTold(&all, sides[0])
	}
	return all.All()
}

// keysOfClaim maps a claim that becomes bound or unbound to its volume.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	same := func(a, b *corev1.PersistentVolumeClaim) bool { return claim.Volume(a) == claim.Volume(b) }
	var all keys.Set
	for _, c := range keys.Sides(was, now, same) {
		if pv, ok := reconcile.Get(s, kinds.PersistentVolumes, "", claim.Volume(c)); ok && claim.Bound(pv, c) {
			addUsed(&all, s, pv, c)
		}
	}
	return all.All()
}

// addUsed adds a volume that pods use by a claim, and the pods whose own containers conflict.
func addUsed(all *keys.Set, s reconcile.Snapshot, pv *corev1.PersistentVolume, by *corev1.PersistentVolumeClaim) {
	v, ok := volumeOf(pv)
	if !ok {
		return
	}
	for _, p := range reconcile.List(s, kinds.Pods, by.Namespace) {
		for i := range p.Spec.Volumes {
			if claim.Used(p, &p.Spec.Volumes[i], by) {
				all.Add(v.key())
				addTold(all, p)
				break
			}
		}
	}
}

// keysOfVolume maps a volume that becomes bound or unbound to itself.
func keysOfVolume(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var all keys.Set
	for _, pv := range keys.Sides(was, now, sameBinding) {
		if by := claim.Of(s, pv); by != nil {
			addUsed(&all, s, pv, by)
		}
	}
	return all.All()
}

// sameBinding reports whether a PersistentVolume still has the same volume and the same claim.
func sameBinding(a, b *corev1.PersistentVolume) bool {
	if (a.Spec.ClaimRef == nil) != (b.Spec.ClaimRef == nil) || a.Spec.ClaimRef != nil && a.Spec.ClaimRef.UID != b.Spec.ClaimRef.UID {
		return false
	}
	x, readX := volumeOf(a)
	y, readY := volumeOf(b)
	return x == y && readX == readY
}

// keysOfDriver maps a driver to all its volumes if its support for mounts with labels has changed.
func keysOfDriver(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*storagev1.CSIDriver)
	driver, _ := now.Object.(*storagev1.CSIDriver)
	if (before != nil && mountsOf(before)) == (driver != nil && mountsOf(driver)) {
		return nil
	}
	name := keys.Newest(was, now).GetName()
	var all keys.Set
	for _, pv := range reconcile.List(s, kinds.PersistentVolumes, "") {
		if v, ok := volumeOf(pv); ok && v.driver == name {
			if by := claim.Of(s, pv); by != nil {
				addUsed(&all, s, pv, by)
			}
		}
	}
	if !csi.TakenOver(name) {
		return all.All()
	}
	for _, p := range reconcile.List(s, kinds.Pods, "") {
		for i := range p.Spec.Volumes {
			if v, ok := behind(s, p, &p.Spec.Volumes[i]); ok && v.driver == name {
				all.Add(v.key())
			}
		}
	}
	return all.All()
}

// mountsOf reports whether nodes may mount the volumes of a driver with labels.
func mountsOf(driver *storagev1.CSIDriver) bool {
	return driver.Spec.SELinuxMount != nil && *driver.Spec.SELinuxMount
}
