package persistentvolumebinder

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decideClaim takes the next step of a claim.
//
// Upstream: pkg/controller/volume/persistentvolume, syncClaim.
func (v View) decideClaim(now time.Time) reconcile.Decision {
	d := v.stepOfClaim(now)
	d.Figures = append(d.Figures, v.countedClaim())
	return d
}

func (v View) stepOfClaim(now time.Time) reconcile.Decision {
	by := v.Claim.Annotations[provisioner]
	if !has(v.Claim, provisioner) {
		by = v.Claim.Annotations[betaProvisioner]
	}
	claimed := has(v.Claim, provisioner) || has(v.Claim, betaProvisioner)
	notes, moved := migrated(v.Claim.Annotations, by, claimed)
	switch {
	case moved:
		return v.update("the claim does not say which driver its provisioner has become", func(next *corev1.PersistentVolumeClaim) { next.Annotations = notes })
	case has(v.Claim, completed):
		return v.keep(now)
	case v.Claim.Spec.VolumeName != "":
		return v.take(now)
	default:
		return v.search(now)
	}
}

// search finds a volume for a claim that names none, or asks a provisioner for
// one.
//
// Upstream: syncUnboundClaim.
func (v View) search(now time.Time) reconcile.Decision {
	late, ok := v.late()
	if !ok {
		return reconcile.Nothing("the claim's class has no volume binding mode")
	}
	if volume := v.match(late); volume != nil {
		return v.bind(volume, now)
	}
	switch class := classOf(v.Claim); {
	case v.Default != "" && !hasClass(v.Claim):
		return v.assign()
	case late && !has(v.Claim, selectedNode):
		return v.waits(now, "the claim waits for a pod that needs it", v.awaited())
	case class != "":
		return v.provision(class, now)
	default:
		return v.waits(now, "no volume fits the claim, and it is of no class",
			normal(failedBinding, "no persistent volumes available for this claim and no storage class is set"))
	}
}

// assign gives a claim the default class.
//
// Upstream: assignDefaultStorageClass.
func (v View) assign() reconcile.Decision {
	d := v.update("there is a default class, and the claim is of none", func(next *corev1.PersistentVolumeClaim) {
		name := v.Default
		next.Spec.StorageClassName = &name
	})
	d.Figures = v.assigned()
	return d
}

// awaited is the Event that says what the claim waits for.
//
// Upstream: emitEventForUnboundDelayBindingClaim.
func (v View) awaited() events.Notice {
	switch len(v.Waiting) {
	case 0:
		return normal(waitForConsumer, "waiting for first consumer to be created before binding")
	case 1:
		return normal(waitForPod, fmt.Sprintf("waiting for pod %s to be scheduled", v.Waiting[0]))
	default:
		return normal(waitForPod, fmt.Sprintf("waiting for pods %s to be scheduled", strings.Join(v.Waiting, ",")))
	}
}

// take binds a claim to the volume that it names, if that is possible.
func (v View) take(now time.Time) reconcile.Decision {
	switch volume := v.Named; {
	case volume == nil:
		return v.pending("the volume that the claim names is not there")
	case volume.Spec.ClaimRef == nil:
		if err := mismatched(volume, v.Claim); err != nil {
			return v.waits(now, "the claim cannot have the volume that it names: "+err.Error(),
				warning(mismatch, fmt.Sprintf("Cannot bind to requested volume %q: %s", volume.Name, err)))
		}
		return v.bind(volume, now)
	case holds(volume, v.Claim):
		return v.bind(volume, now)
	default:
		taken := warning(failedBinding, fmt.Sprintf("volume %q already bound to a different claim.", volume.Name))
		if has(v.Claim, byController) {
			return v.tell(now, "the claim names a volume of another claim, and no user wrote that", taken)
		}
		return v.waits(now, "the volume that the claim names is bound to another claim", taken)
	}
}

// keep repairs a binding that was complete, or reports that it is lost.
//
// Upstream: syncBoundClaim. There what is not seen counts as not there.
func (v View) keep(now time.Time) reconcile.Decision {
	lacks := v.Named == nil
	switch {
	case v.Claim.Spec.VolumeName == "":
		return v.lose("the claim was bound, and names no volume any more", lost, "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case !lacks && (v.Named.Spec.ClaimRef == nil || v.Named.Spec.ClaimRef.UID == v.Claim.UID):
		return v.bind(v.Named, now)
	case v.Claim.Status.Phase == corev1.ClaimLost:
		return reconcile.Nothing("the claim is lost")
	case v.Live == nil || !now.Before(v.Live.At.Add(lasting)):
		return v.Unread.Ask(now, "the claim's volume is not seen to be its own", reconcile.AskFor(kinds.PersistentVolumes.Kind, "", v.Claim.Spec.VolumeName))
	case !v.Live.There:
		return v.lose("the claim's volume is gone", lost, "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Live.Claim != "" && v.Live.Claim != v.Claim.UID:
		return v.lose("the claim's volume is bound to another claim", misbound, "Two claims are bound to the same volume, this one is bound incorrectly")
	default:
		return reconcile.Wake(v.Live.At.Add(lasting), "the claim's volume exists, and the cache does not have it yet")
	}
}

func (v View) lose(because, reason, message string) reconcile.Decision {
	if v.Claim.Status.Phase == corev1.ClaimLost {
		return reconcile.Nothing("the claim is lost")
	}
	next, _ := v.status(corev1.ClaimLost, nil)
	notice := warning(reason, message)
	notice.About = reconcile.About(kinds.PersistentVolumeClaims.Kind, v.Claim)
	return reconcile.Do(because, reconcile.UpdateStatus(kinds.PersistentVolumeClaims.Kind, next, reconcile.WithEvents(&notice, nil)))
}

// pending sets the claim's phase to Pending, without a volume.
func (v View) pending(because string) reconcile.Decision {
	next, differs := v.status(corev1.ClaimPending, nil)
	if !differs {
		return reconcile.Nothing(because)
	}
	return reconcile.Do(because, reconcile.UpdateStatus(kinds.PersistentVolumeClaims.Kind, next))
}

// update changes the claim, except for its status.
func (v View) update(because string, change func(*corev1.PersistentVolumeClaim), with ...reconcile.Option) reconcile.Decision {
	next := *v.Claim // the changed parts are made anew
	next.Annotations = maps.Clone(next.Annotations)
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	change(&next)
	return reconcile.Do(because, reconcile.Update(kinds.PersistentVolumeClaims.Kind, &next, with...))
}
