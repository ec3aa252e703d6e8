package ephemeralvolume

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	created = "ephemeral_volume_controller_create_total"
	failed  = "ephemeral_volume_controller_create_failures_total"
)

// Upstream: pkg/controller/volume/ephemeral/metrics.
var metrics = []reconcile.Metric{
	{Name: created, Sort: reconcile.Counter, Help: "Creations of claims for ephemeral volumes that were attempted."},
	{Name: failed, Sort: reconcile.Counter, Help: "Creations of claims for ephemeral volumes that failed."},
}

// decide creates the missing claims, up to the first volume whose claim another object
// owns. It reports that conflict once the claims before it exist: the pod first waits for
// a claim that cannot be created, so the Event is about that one alone.
func decide(v View, _ time.Time) reconcile.Decision {
	if v.Pod.DeletionTimestamp != nil {
		return reconcile.Nothing("the pod is being deleted")
	}
	d := reconcile.Nothing("the pod has its claims")
	d.StatusBlind = true
	for _, volume := range wanted(v.Pod) {
		name := nameOf(v.Pod, volume)
		switch had := v.claim(name); {
		case had == nil:
			c := v.create(volume)
			d.Because, d.Commands = "the pod has no claim for a volume of its own", append(d.Commands, c)
			d.Figures = append(d.Figures, reconcile.Count(created, 1), reconcile.Figure{Metric: failed, Value: 1, Of: c.Ref(), Failed: true})
		case !owner.Controls(v.Pod, had):
			if len(d.Commands) > 0 {
				return d
			}
			return reconcile.Join(d, v.conflict(volume, had))
		}
	}
	return d
}

// create returns the create of a volume's claim.
func (v View) create(volume *corev1.Volume) events.Command {
	template, name := volume.Ephemeral.VolumeClaimTemplate, nameOf(v.Pod, volume)
	body := reconcile.Body(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{owner.Reference(kinds.Pods.Kind, v.Pod)},
		},
		Spec: template.Spec,
	})
	return reconcile.Create(kinds.PersistentVolumeClaims.Kind, v.Pod.Namespace, name, body,
		reconcile.WithEvents(nil, v.notice(volume, "create PVC "+name+": {error}")))
}

// conflict sends one Event that another object owns the claim. Only a change of the claim
// ends the conflict.
//
// Upstream: said again with every retry.
func (v View) conflict(volume *corev1.Volume, had *corev1.PersistentVolumeClaim) reconcile.Decision {
	name := "FailedBinding " + string(had.UID)
	if slices.Contains(v.Told, name) {
		return reconcile.Nothing("a claim of that name is not the pod's, and the Event is recorded")
	}
	c := reconcile.Record(*v.notice(volume, fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)",
		had.Namespace, had.Name, v.Pod.Namespace, v.Pod.Name)))
	c.Kind, c.Version, c.Namespace, c.Name = kinds.Events.Name, kinds.Events.Version, v.Pod.Namespace, name
	return reconcile.Do("a claim of that name is not the pod's", c)
}

func (v View) notice(volume *corev1.Volume, message string) *events.Notice {
	return &events.Notice{
		About: reconcile.About(kinds.Pods.Kind, v.Pod), Type: corev1.EventTypeWarning, Reason: "FailedBinding",
		Message: "ephemeral volume " + volume.Name + ": " + message,
	}
}
