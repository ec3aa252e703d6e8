package persistentvolumebinder

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decideVolume takes the next step of a volume.
//
// Upstream: pkg/controller/volume/persistentvolume, syncVolume.
func (v View) decideVolume(now time.Time) reconcile.Decision {
	d := v.stepOfVolume(now)
	d.Figures = append(d.Figures, v.countedVolume()...)
	return d
}

func (v View) stepOfVolume(now time.Time) reconcile.Decision {
	if d, wants := v.tidy(); wants {
		return d
	}
	ref := v.Volume.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return v.phase(corev1.VolumeAvailable, "no claim has the volume")
	}
	if v.Holder != nil && v.Holder.UID == ref.UID {
		return v.held(now)
	}
	switch phase := v.Volume.Status.Phase; {
	case phase == corev1.VolumeReleased || phase == corev1.VolumeFailed:
		return v.reclaim()
	case v.Live == nil || !now.Before(v.Live.At.Add(lasting)):
		return v.Unread.Ask(now, "it is not known whether the volume's claim is there", reconcile.AskFor(kinds.PersistentVolumeClaims.Kind, ref.Namespace, ref.Name))
	case v.Live.There && v.Live.Claim == ref.UID:
		return reconcile.Wake(v.Live.At.Add(lasting), "the volume's claim exists, and the cache does not have it yet")
	default:
		return v.phase(corev1.VolumeReleased, "the volume's claim is gone")
	}
}

// held decides about a volume whose claim is seen.
func (v View) held(now time.Time) reconcile.Decision {
	claim, volume := v.Holder, v.Volume
	switch name := claim.Spec.VolumeName; {
	case name == "" && otherMode(volume, claim):
		about, other := warning(mismatch, fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", claim.Name)),
			warning(mismatch, fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", volume.Name))
		about.About, other.About = reconcile.About(kinds.PersistentVolumes.Kind, volume), reconcile.About(kinds.PersistentVolumeClaims.Kind, claim)
		return v.record(now, "the volume is of another mode than its claim", about, other)
	case name == "":
		return reconcile.Nothing("the volume's claim is not bound to it yet")
	case name == volume.Name:
		return v.phase(corev1.VolumeBound, "the volume and its claim have each other")
	case !has(volume, provisionedBy) || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return v.giveBack()
	case volume.Status.Phase != corev1.VolumeReleased && volume.Status.Phase != corev1.VolumeFailed:
		return v.phase(corev1.VolumeReleased, "the volume was made for a claim that has another one")
	default:
		return v.reclaim()
	}
}

// tidy corrects the annotation with the driver that replaced the volume's provisioner, and the
// finalizers of the component that deletes the storage. wants is false if both are right.
//
// Upstream: updateVolumeMigrationAnnotationsAndFinalizers.
func (v View) tidy() (d reconcile.Decision, wants bool) {
	if !has(v.Volume, provisionedBy) {
		return d, false
	}
	by := v.Volume.Annotations[provisionedBy]
	notes, moved := migrated(v.Volume.Annotations, by, true)
	guards := guarded(v.Volume.Finalizers, by, v.Volume.Spec.PersistentVolumeReclaimPolicy)
	if !moved && slices.Equal(guards, v.Volume.Finalizers) {
		return d, false
	}
	next := *v.Volume // the changed parts are made anew
	next.Annotations, next.Finalizers = notes, guards
	return reconcile.Do("the volume's deletion finalizers are not up to date", reconcile.Update(kinds.PersistentVolumes.Kind, &next)), true
}

// guarded are the finalizers that a provisioned volume should have.
//
// Upstream: modifyDeletionFinalizers.
func guarded(finalizers []string, by string, policy corev1.PersistentVolumeReclaimPolicy) []string {
	next := &corev1.PersistentVolume{}
	next.Finalizers = finalizers
	switch {
	case drivers[by] != "":
		finalizer.Remove(next, inTreeGuard)
		return next.Finalizers
	case !strings.HasPrefix(by, inTree):
		return finalizers
	case policy == corev1.PersistentVolumeReclaimDelete && !finalizer.Has(next, inTreeGuard):
		finalizer.Add(next, inTreeGuard)
	case policy == corev1.PersistentVolumeReclaimRetain || policy == corev1.PersistentVolumeReclaimRecycle:
		finalizer.Remove(next, inTreeGuard)
	}
	finalizer.Remove(next, externalGuard)
	return next.Finalizers
}

// phase sets the volume's phase.
func (v View) phase(phase corev1.PersistentVolumePhase, because string) reconcile.Decision {
	if v.Volume.Status.Phase == phase {
		return reconcile.Nothing(because)
	}
	return reconcile.Do(because, reconcile.UpdateStatus(kinds.PersistentVolumes.Kind, v.in(phase, "")))
}

func (v View) in(phase corev1.PersistentVolumePhase, message string) *corev1.PersistentVolume {
	next := *v.Volume // only values change
	next.Status.Phase, next.Status.Message = phase, message
	return &next
}

// giveBack undoes the first write of a binding to a claim that has another volume now. A user's
// reservation for the claim's name stays.
//
// Upstream: unbindVolume.
func (v View) giveBack() reconcile.Decision {
	next := *v.Volume // the changed parts are made anew
	if has(&next, byController) {
		next.Annotations = maps.Clone(next.Annotations)
		delete(next.Annotations, byController)
		next.Spec.ClaimRef = nil
	} else {
		ref := *next.Spec.ClaimRef
		ref.UID = ""
		next.Spec.ClaimRef = &ref
	}
	return reconcile.Do("the volume's claim is bound to another volume", reconcile.Update(kinds.PersistentVolumes.Kind, &next))
}

// reclaim reports what happens to a released volume, as far as provisioners do not handle it.
//
// Upstream: reclaimVolume.
func (v View) reclaim() reconcile.Decision {
	if v.Volume.Annotations[migratedTo] != "" {
		return reconcile.Nothing("the volume is released, and its driver deletes it")
	}
	switch v.Volume.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
		return reconcile.Nothing("the volume is released, and retained")
	case corev1.PersistentVolumeReclaimRecycle:
		return v.failed("no volumes are recycled", failedRecycle, "No recycler plugin found for the volume!")
	case corev1.PersistentVolumeReclaimDelete:
		if err := undeletable(v.Volume); err != nil {
			return v.failed("nothing can delete the volume", failedDelete, err.Error())
		}
		return reconcile.Nothing("the volume is released, and its provisioner deletes it")
	default:
		return v.failed("it is not known what is to become of the volume", unknownPolicy, "Volume has unrecognized PersistentVolumeReclaimPolicy")
	}
}

func (v View) failed(because, reason, message string) reconcile.Decision {
	if v.Volume.Status.Phase == corev1.VolumeFailed {
		return reconcile.Nothing(because)
	}
	notice := warning(reason, message)
	notice.About = reconcile.About(kinds.PersistentVolumes.Kind, v.Volume)
	return reconcile.Do(because, reconcile.UpdateStatus(kinds.PersistentVolumes.Kind, v.in(corev1.VolumeFailed, message), reconcile.WithEvents(&notice, nil)))
}

// undeletable is why nothing can delete a volume; nil if an external component may.
//
// Upstream: findDeletablePlugin. Directories are deleted there, on the machine on which
// kube-controller-manager runs.
func undeletable(volume *corev1.PersistentVolume) error {
	switch by := volume.Annotations[provisionedBy]; {
	case by == hostPath:
		return remains(volume)
	case by == nfs:
		return errors.New("no deletable volume plugin matched")
	case strings.HasPrefix(by, inTree):
		return fmt.Errorf("no volume plugin matched name: %s", by)
	case by != "", has(volume, migratedTo), volume.Spec.CSI != nil:
		return nil
	case volume.Spec.HostPath != nil:
		return remains(volume)
	case volume.Spec.NFS != nil:
		return fmt.Errorf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", volume.Name)
	default:
		return fmt.Errorf("error getting deleter volume plugin for volume %q: no volume plugin matched", volume.Name)
	}
}

// temporary matches the directories that upstream deletes.
var temporary = regexp.MustCompile("/tmp/.+")

// remains is why a directory is not deleted.
func remains(volume *corev1.PersistentVolume) error {
	switch path := volume.Spec.HostPath; {
	case path == nil:
		return fmt.Errorf("delete volume %q: it has no path on a host", volume.Name)
	case !temporary.MatchString(path.Path):
		return fmt.Errorf("host_path deleter only supports /tmp/.+ but received provided %s", path.Path)
	default:
		return fmt.Errorf("host_path volumes are not deleted by this controller: delete %s on its node, then the volume", path.Path)
	}
}
