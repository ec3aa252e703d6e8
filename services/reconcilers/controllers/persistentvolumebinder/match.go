package persistentvolumebinder

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func has(obj metav1.Object, annotation string) bool {
	_, there := obj.GetAnnotations()[annotation]
	return there
}

// hasClass reports whether a claim sets a class, be it the empty one.
func hasClass(claim *corev1.PersistentVolumeClaim) bool {
	return has(claim, corev1.BetaStorageClassAnnotation) || claim.Spec.StorageClassName != nil
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if class, there := claim.Annotations[corev1.BetaStorageClassAnnotation]; there {
		return class
	}
	return orNone(claim.Spec.StorageClassName)
}

func classOfVolume(volume *corev1.PersistentVolume) string {
	if class, there := volume.Annotations[corev1.BetaStorageClassAnnotation]; there {
		return class
	}
	return volume.Spec.StorageClassName
}

func orNone(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}

// holds reports whether a volume's claimRef is a claim, or the claim's name without a uid.
func holds(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := volume.Spec.ClaimRef
	return ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name && (ref.UID == "" || ref.UID == claim.UID)
}

// late reports whether the claim gets a volume only once it has a pod. ok is false if the class
// does not say so.
//
// Upstream: IsDelayBindingMode.
func (v View) late() (late, ok bool) {
	switch {
	case v.Class == nil:
		return false, true
	case v.Class.VolumeBindingMode == nil:
		return false, false
	default:
		return *v.Class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer, true
	}
}

// match is the volume for a claim that names none; nil if there is none. Among the suitable sets
// of access modes, one with fewer modes comes first. Within a set, a volume that names the claim
// comes first, then the smallest free one. If the claim waits for a pod, the scheduler chooses
// among the free volumes.
//
// Upstream: findByClaim, FindMatchingVolume. Which of several sets with as many modes, and which
// of several volumes of one size, is chance there.
func (v View) match(late bool) *corev1.PersistentVolume {
	selector, err := selectorOf(v.Claim)
	if err != nil {
		return nil // the API server takes no such claim
	}
	var best *corev1.PersistentVolume
	for _, volume := range v.Volumes {
		if fits(volume, v.Claim, selector, late) && (best == nil || better(volume, best, v.Claim)) {
			best = volume
		}
	}
	return best
}

func selectorOf(claim *corev1.PersistentVolumeClaim) (labels.Selector, error) {
	if claim.Spec.Selector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(claim.Spec.Selector)
}

// fits reports whether a claim may have a volume.
func fits(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, selector labels.Selector, late bool) bool {
	requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	capacity := volume.Spec.Capacity[corev1.ResourceStorage]
	ref := volume.Spec.ClaimRef
	switch {
	case ref != nil && !holds(volume, claim), volume.DeletionTimestamp != nil:
		return false
	case capacity.Cmp(requested) < 0, otherMode(volume, claim), otherAttributes(volume, claim), !accessible(volume, claim):
		return false
	case ref != nil:
		return true
	default:
		return !late && volume.Status.Phase == corev1.VolumeAvailable && selector.Matches(labels.Set(volume.Labels)) && classOfVolume(volume) == classOf(claim)
	}
}

// better reports whether one volume is preferred to another.
func better(volume, than *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return candidateFor(claim, volume).before(candidateFor(claim, than))
}

// candidate is a volume that a claim may have, with what decides its place among others.
type candidate struct {
	volume *corev1.PersistentVolume
	modes  []corev1.PersistentVolumeAccessMode
	named  bool   // it names the claim
	rank   uint64 // its place among those of one size
}

// candidateFor makes the candidate. Each claim has its own order of free volumes of one size, so that
// of many claims which search at once few choose the same volume: the rank is a rendezvous hash.
func candidateFor(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) candidate {
	sum := sha256.Sum256([]byte(claim.Namespace + "/" + claim.Name + "/" + volume.Name))
	return candidate{volume, modesOf(volume), holds(volume, claim), binary.BigEndian.Uint64(sum[:])}
}

// before reports whether a candidate is preferred to another one of the same claim.
func (c candidate) before(other candidate) bool {
	if order := cmp.Or(cmp.Compare(len(c.modes), len(other.modes)), slices.Compare(c.modes, other.modes)); order != 0 {
		return order < 0
	}
	if c.named != other.named {
		return c.named
	}
	if c.named {
		return c.volume.Name < other.volume.Name // the user decides which of several
	}
	size, than := c.volume.Spec.Capacity[corev1.ResourceStorage], other.volume.Spec.Capacity[corev1.ResourceStorage]
	return cmp.Or(size.Cmp(than), cmp.Compare(c.rank, other.rank), cmp.Compare(c.volume.Name, other.volume.Name)) < 0
}

// modesOf are the access modes of a volume, each once.
func modesOf(volume *corev1.PersistentVolume) []corev1.PersistentVolumeAccessMode {
	if len(volume.Spec.AccessModes) < 2 {
		return volume.Spec.AccessModes
	}
	modes := slices.Clone(volume.Spec.AccessModes)
	slices.Sort(modes)
	return slices.Compact(modes)
}

func accessible(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	for _, mode := range claim.Spec.AccessModes {
		if !slices.Contains(volume.Spec.AccessModes, mode) {
			return false
		}
	}
	return true
}

func otherMode(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return orFilesystem(volume.Spec.VolumeMode) != orFilesystem(claim.Spec.VolumeMode)
}

func orFilesystem(mode *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if mode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *mode
}

func otherAttributes(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return orNone(volume.Spec.VolumeAttributesClassName) != orNone(claim.Spec.VolumeAttributesClassName)
}

// mismatched is why a claim cannot have the free volume that it names.
//
// Upstream: checkVolumeSatisfyClaim.
func mismatched(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	capacity := volume.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case volume.DeletionTimestamp != nil:
		return fmt.Errorf("the volume is marked for deletion %q", volume.Name)
	case capacity.Value() < requested.Value():
		return errors.New("requested PV is too small")
	case classOfVolume(volume) != classOf(claim):
		return errors.New("storageClassName does not match")
	case otherAttributes(volume, claim):
		return errors.New("volumeAttributesClassName does not match")
	case otherMode(volume, claim):
		return errors.New("incompatible volumeMode")
	case !accessible(volume, claim):
		return errors.New("incompatible accessMode")
	default:
		return nil
	}
}
