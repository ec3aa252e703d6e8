package volumeexpander

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide records, once for each requested and actual size, that the volume is to be expanded,
// and names the resizer if the volume does not.
//
// Upstream: pkg/controller/volume/expand.
func decide(v View, _ time.Time) reconcile.Decision {
	switch {
	case v.Claim.Status.Phase != corev1.ClaimBound:
		return reconcile.Nothing("the claim is not bound")
	case v.Volume == nil:
		return reconcile.Nothing("the volume of the claim is not seen")
	case !v.bound():
		return reconcile.Nothing("the volume is not bound to the claim")
	case !v.wants():
		return reconcile.Nothing("the claim has the requested capacity")
	}
	plugin, driver, migrated := csi.Migrated(v.Volume)
	switch {
	case !migrated:
		return v.tell("the claim waits for another program to expand its volume", "waiting for an external controller to expand this PVC")
	case v.Claim.Annotations[resizer] == driver:
		return v.tell("the claim waits for the resizer that it names", "CSI migration enabled for "+plugin+"; waiting for external resizer to expand the pvc")
	default:
		return reconcile.Do("the claim has no annotation with the resizer of its volume",
			v.said("CSI migration enabled for "+plugin+"; waiting for external resizer to expand the pvc"), v.name(driver))
	}
}

// bound reports whether the volume is bound to the claim.
func (v View) bound() bool {
	ref := v.Volume.Spec.ClaimRef
	return ref != nil && ref.Namespace == v.Claim.Namespace && ref.UID == v.Claim.UID
}

// wants reports whether the claim requests more than it has, or its volume is still being
// expanded.
func (v View) wants() bool {
	asked, had := v.Claim.Spec.Resources.Requests[corev1.ResourceStorage], v.Claim.Status.Capacity[corev1.ResourceStorage]
	return asked.Cmp(had) > 0 || metav1.HasAnnotation(v.Volume.ObjectMeta, before)
}

// tell records an Event, once for a size.
//
// Upstream: said again with every start, and whatever grew.
func (v View) tell(because, message string) reconcile.Decision {
	c := v.said(message)
	if slices.Contains(v.Told, c.Name) {
		return reconcile.Nothing(because + ", which was told")
	}
	return reconcile.Do(because, c)
}

// said is the Event with a message about the requested and the actual size.
func (v View) said(message string) events.Command {
	asked, had := v.Claim.Spec.Resources.Requests[corev1.ResourceStorage], v.Claim.Status.Capacity[corev1.ResourceStorage]
	c := reconcile.Record(v.notice(corev1.EventTypeNormal, message))
	c.Kind, c.Version, c.Namespace, c.Name = kinds.Events.Name, kinds.Events.Version, v.Claim.Namespace, external+" "+asked.String()+" after "+had.String()
	return c
}

// name is the request that names the driver whose resizer is to expand the volume.
func (v View) name(driver string) events.Command {
	failed := v.notice(corev1.EventTypeWarning, "error setting resizer annotation to pvc "+v.Claim.Namespace+"/"+v.Claim.Name+", with error {error}")
	c := reconcile.Patch(kinds.PersistentVolumeClaims.Kind, v.Claim, types.StrategicMergePatchType, reconcile.Body(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{resizer: driver}},
	}), reconcile.IfUnchanged(v.Claim), reconcile.WithEvents(nil, &failed))
	c.Subresource = "status"
	return c
}

func (v View) notice(level, message string) events.Notice {
	return events.Notice{About: reconcile.About(kinds.PersistentVolumeClaims.Kind, v.Claim), Type: level, Reason: external, Message: message}
}
