package devicetainteviction

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/device"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// why is the reason in the condition of a pod that this controller evicts.
const why = "DeletionByDeviceTaintManager"

const (
	deletions = "device_taint_eviction_controller_pod_deletions_total"
	latency   = "device_taint_eviction_controller_pod_deletion_duration_seconds"
)

// Upstream: pkg/controller/devicetainteviction/metrics.
var metrics = []reconcile.Metric{
	{Name: deletions, Help: "Pods that were deleted because of taints of their devices.", Sort: reconcile.Counter},
	{Name: latency, Help: "Time between the moment when a taint of a device requires the deletion of a pod and that deletion.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}},
}

// announcement is the note about a future deletion.
type announcement struct {
	Announced bool `json:"announced"`
}

func observePod(s reconcile.Snapshot, k events.Key) (View, bool) {
	p, ok := reconcile.Get(s, kinds.Pods, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v, c := View{Pod: p}, look(s)
	for _, claim := range c.claimsOf(p) {
		v.Devices = append(v.Devices, c.devicesOf(claim)...)
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, p); ok {
		for _, r := range last.Results {
			var note announcement
			v.Announced = v.Announced || r.Answer != nil && json.Unmarshal(r.Answer.Note, &note) == nil && note.Announced
		}
	}
	return v, true
}

// end returns when the pod must leave: the earliest end of all taints that are not tolerated
// forever; ok is false if there is none.
//
// Upstream: claimEvictionTime. A taint that does not say since when it is there drives no pod
// away; the API server dates each.
func (v View) end() (at time.Time, ok bool) {
	for _, d := range v.Devices {
		for _, t := range d.Taints {
			if until, limited := d.until(t); limited && (!ok || until.Before(at)) {
				at, ok = until, true
			}
		}
	}
	return at, ok
}

// until returns when a taint of the device is no longer tolerated: the shortest toleration after
// the taint was added; limited is false if one toleration has no end.
func (d Device) until(t resourcev1.DeviceTaint) (at time.Time, limited bool) {
	if t.TimeAdded == nil {
		return time.Time{}, false
	}
	patience, tolerated := time.Duration(0), false
	for _, by := range d.Tolerations {
		switch {
		case by.Effect != resourcev1.DeviceTaintEffectNoExecute || !device.Tolerates(by, t):
			continue
		case by.TolerationSeconds == nil:
			return time.Time{}, false
		}
		if s := time.Duration(max(*by.TolerationSeconds, 0)) * time.Second; !tolerated || s < patience {
			patience, tolerated = s, true
		}
	}
	return t.TimeAdded.Add(patience), true
}

// decidePod evicts a pod when its devices' taints are no longer tolerated.
//
// Upstream: pkg/controller/devicetainteviction, handlePod and maybeDeletePod.
func (v View) decidePod(now time.Time) reconcile.Decision {
	at, driven := v.end()
	switch {
	case v.Pod.DeletionTimestamp != nil:
		return reconcile.Nothing("the pod is being deleted")
	case !driven && v.Announced:
		return reconcile.Do("the eviction of the pod is cancelled", v.record("Cancelling deletion"))
	case !driven:
		return reconcile.Nothing("the pod tolerates the taints of its devices")
	case now.Before(at) && v.Announced:
		return reconcile.Wake(at, "the pod tolerates the taints of its devices for a time")
	case now.Before(at):
		d := reconcile.Do("the pod tolerates the taints of its devices for a time", events.Command{Verb: events.VerbRecord, Note: reconcile.Body(announcement{true})})
		d.WakeAt = at
		return d
	case !v.marked():
		return v.mark(now)
	default:
		d := reconcile.Do("the pod does not tolerate the taints of its devices", reconcile.Delete(kinds.Pods.Kind, v.Pod, reconcile.WithEvents(v.record("Marking for deletion").OnApplied, nil)))
		ref := events.Ref{Kind: kinds.Pods.Name, Namespace: v.Pod.Namespace, Name: v.Pod.Name}
		d.Figures = []reconcile.Figure{{Metric: deletions, Value: 1, Of: ref}, {Metric: latency, Value: now.Sub(at).Seconds(), Of: ref}}
		return d
	}
}

// mark sets the pod's condition DisruptionTarget; a later turn that sees it deletes the pod.
//
// Upstream: addConditionAndDeletePod.
func (v View) mark(now time.Time) reconcile.Decision {
	since := metav1.NewTime(now.Truncate(time.Second))
	if said := v.disruption(); said.Status == corev1.ConditionTrue {
		since = said.LastTransitionTime
	}
	body := map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: since,
		Reason: why, Message: "Device Taint manager: deleting due to NoExecute taint",
	}}}}
	c := reconcile.Patch(kinds.Pods.Kind, v.Pod, types.StrategicMergePatchType, reconcile.Body(body))
	c.Subresource, c.Note = "status", reconcile.Body(announcement{true})
	return reconcile.Do("the pod does not tolerate the taints of its devices", c)
}

// marked reports whether the pod has this controller's condition.
func (v View) marked() bool {
	said := v.disruption()
	return said.Status == corev1.ConditionTrue && said.Reason == why
}

// disruption returns the pod's condition DisruptionTarget.
func (v View) disruption() corev1.PodCondition { return disruptionOf(v.Pod) }

func disruptionOf(p *corev1.Pod) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c
		}
	}
	return corev1.PodCondition{}
}

// record returns an Event about the pod.
func (v View) record(message string) events.Command {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: v.Pod.Namespace, Name: v.Pod.Name, UID: v.Pod.UID}
	return reconcile.Record(events.Notice{About: about, Type: corev1.EventTypeNormal, Reason: "DeviceTaintManagerEviction", Message: message})
}
