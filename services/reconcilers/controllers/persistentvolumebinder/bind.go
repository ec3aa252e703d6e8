package persistentvolumebinder

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// bind makes the first missing write among those that are the claim's turn to make.
//
// Upstream: bind. There one sync makes all four writes, and the volume is called bound before
// the claim has its name.
func (v View) bind(volume *corev1.PersistentVolume, now time.Time) reconcile.Decision {
	ref := volume.Spec.ClaimRef
	switch {
	case !holds(volume, v.Claim) || ref.UID == "":
		return v.reserve(volume)
	case v.Claim.Spec.VolumeName != volume.Name || !has(v.Claim, completed):
		d := v.update("the volume is bound to the claim", func(next *corev1.PersistentVolumeClaim) {
			if next.Spec.VolumeName != volume.Name {
				next.Spec.VolumeName = volume.Name
				mark(next.Annotations, byController)
			}
			mark(next.Annotations, completed)
		})
		d.Figures = v.provisioned(now)
		return d
	case volume.Status.Phase != corev1.VolumeBound:
		return reconcile.Nothing("the claim has its volume, whose phase is not Bound yet")
	}
	if _, sized := volume.Spec.Capacity[corev1.ResourceStorage]; !sized && v.Claim.Status.Phase != corev1.ClaimBound {
		return reconcile.Nothing("the claim's volume has no capacity")
	}
	next, differs := v.status(corev1.ClaimBound, volume)
	if !differs {
		return reconcile.Nothing("the claim is bound to its volume")
	}
	return reconcile.Do("the claim and the volume are bound to each other", reconcile.UpdateStatus(kinds.PersistentVolumeClaims.Kind, next))
}

// mark sets an annotation if it does not exist.
func mark(notes map[string]string, name string) {
	if _, there := notes[name]; !there {
		notes[name] = "yes"
	}
}

// reserve writes the claim into a volume, at the version that was seen. An annotation records
// that the controller and not a user reserved it, because only then may giveBack remove the
// reservation.
//
// Upstream: GetBindVolumeToClaim.
func (v View) reserve(volume *corev1.PersistentVolume) reconcile.Decision {
	next := *volume // the changed parts are made anew
	if !holds(volume, v.Claim) {
		if next.Annotations = maps.Clone(volume.Annotations); next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		mark(next.Annotations, byController)
	}
	ref := reconcile.About(kinds.PersistentVolumeClaims.Kind, v.Claim)
	next.Spec.ClaimRef = &ref
	return reconcile.Do("the volume "+volume.Name+" fits the claim", reconcile.Update(kinds.PersistentVolumes.Kind, &next))
}

// status returns the claim with its status in a phase, bound to a volume (nil: to none), and
// whether that differs from the current status.
//
// Upstream: updateClaimStatus.
func (v View) status(phase corev1.PersistentVolumeClaimPhase, volume *corev1.PersistentVolume) (next *corev1.PersistentVolumeClaim, differs bool) {
	claim := *v.Claim // the changed parts are made anew
	next = &claim
	was, s := v.Claim.Status, &next.Status
	s.Phase = phase
	if volume == nil {
		s.AccessModes, s.Capacity, s.CurrentVolumeAttributesClassName = nil, nil, nil
		return next, was.Phase != phase || was.AccessModes != nil || was.Capacity != nil || was.CurrentVolumeAttributesClassName != nil
	}
	s.AccessModes = volume.Spec.AccessModes
	if was.Phase == phase {
		return next, !slices.Equal(was.AccessModes, s.AccessModes)
	}
	s.Capacity = capacityOf(volume, was.Capacity)
	if was.Phase == corev1.ClaimPending {
		s.CurrentVolumeAttributesClassName = volume.Spec.VolumeAttributesClassName
	}
	return next, true
}

// capacityOf is the capacity of a claim that becomes bound to a volume. While the file system on
// the volume is still to be expanded, it is the old capacity.
func capacityOf(volume *corev1.PersistentVolume, was corev1.ResourceList) corev1.ResourceList {
	size := volume.Spec.Capacity[corev1.ResourceStorage]
	if before, resized := volume.Annotations[resizedFrom]; resized {
		if parsed, err := resource.ParseQuantity(before); err == nil {
			size = parsed
		}
		capacity := maps.Clone(was)
		if capacity == nil {
			capacity = corev1.ResourceList{}
		}
		capacity[corev1.ResourceStorage] = size
		return capacity
	}
	if now, there := was[corev1.ResourceStorage]; there && now.Cmp(size) == 0 {
		return was
	}
	return volume.Spec.Capacity
}
