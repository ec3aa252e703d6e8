package tainteviction

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/taint"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// why is the reason of the pod's disruption condition.
const why = "DeletionByTaintManager"

const (
	deletions = "taint_eviction_controller_pod_deletions_total"
	latency   = "taint_eviction_controller_pod_deletion_duration_seconds"
)

var metrics = []reconcile.Metric{
	{Name: deletions, Help: "Pods that were deleted because of taints of their nodes.", Sort: reconcile.Counter},
	{Name: latency, Help: "Time between the end of a pod's toleration and its deletion.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}},
}

// decide deletes a pod when its node's taints do not let it stay any longer.
//
// Upstream: pkg/controller/tainteviction, processPodOnNode.
func decide(v View, now time.Time) reconcile.Decision {
	bears, patience, limited := v.tolerates()
	stay := v.Stay
	if stay != nil && v.outlived(now) {
		stay = nil
	}
	switch {
	case v.Pod.DeletionTimestamp != nil && v.marked():
		return reconcile.Nothing("the pod is being deleted")
	case !bears:
		return v.end("the pod does not tolerate its node's taints", nil, now)
	case !limited && v.Stay != nil:
		return reconcile.Do("the eviction of the pod is cancelled", v.record("Cancelling deletion of Pod %s"))
	case !limited:
		return reconcile.Nothing("the pod tolerates its node's taints")
	case stay == nil && patience > 0:
		return v.note(Stay{now, now.Add(patience)})
	case stay == nil:
		return v.end("the pod tolerates its node's taints for zero seconds", nil, now)
	case stay.Until.After(now):
		return reconcile.Wake(stay.Until, "the pod tolerates its node's taints for a time")
	default:
		return v.end("the pod's toleration of its node's taints has expired", stay, now)
	}
}

// tolerates reports whether the pod tolerates all taints, and for how long: the shortest of
// the limited tolerations.
func (v View) tolerates() (all bool, patience time.Duration, limited bool) {
	numbers := v.Gates.On(gate.TaintTolerationComparisonOperators)
	for _, t := range v.Taints {
		at := slices.IndexFunc(v.Pod.Spec.Tolerations, func(by corev1.Toleration) bool { return taint.Tolerated(t, []corev1.Toleration{by}, numbers) })
		if at < 0 {
			return false, 0, true
		}
		if s := v.Pod.Spec.Tolerations[at].TolerationSeconds; s != nil {
			if d := time.Duration(max(*s, 0)) * time.Second; !limited || d < patience {
				patience, limited = d, true
			}
		}
	}
	return true, patience, limited
}

// outlived reports whether the pod has outlived its stay: all taints were added after its
// end, so the earlier taints were removed unseen, and these are others. A taint time in
// the future does not count.
func (v View) outlived(now time.Time) bool {
	return !slices.ContainsFunc(v.Taints, func(t corev1.Taint) bool {
		return t.TimeAdded == nil || !t.TimeAdded.After(v.Stay.Until) || reconcile.Ahead(t.TimeAdded.Time, now)
	})
}

// note records for how long the pod stays.
func (v View) note(stay Stay) reconcile.Decision {
	d := reconcile.Do("the pod tolerates its node's taints for a time", events.Command{Verb: events.VerbRecord, Note: reconcile.Body(stay)})
	d.WakeAt = stay.Until
	return d
}

// end sets the pod's disruption condition, and then deletes the pod. A pod that is already
// being deleted gets the condition, too, because components may judge its end by it.
//
// Upstream: addConditionAndDeletePod.
func (v View) end(because string, stay *Stay, now time.Time) reconcile.Decision {
	said := v.disruption()
	if !v.marked() {
		since := metav1.NewTime(now.Truncate(time.Second))
		if said.Status == corev1.ConditionTrue {
			since = said.LastTransitionTime
		}
		mark := map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: v.Pod.Generation,
			LastTransitionTime: since,
			Reason:             why, Message: "Taint manager: deleting due to NoExecute taint",
		}}}}
		c := reconcile.Patch(kinds.Pods.Kind, v.Pod, types.StrategicMergePatchType, reconcile.Body(mark))
		c.Subresource = "status"
		if stay != nil {
			c.Note = reconcile.Body(stay) // otherwise the earlier note would be lost
		}
		return reconcile.Do(because, c)
	}
	told := v.record("Marking for deletion Pod %s").OnApplied
	d := reconcile.Do(because, reconcile.Delete(kinds.Pods.Kind, v.Pod, reconcile.WithEvents(told, nil)))
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: v.Pod.Namespace, Name: v.Pod.Name}
	over := said.LastTransitionTime.Time
	if stay != nil {
		over = stay.Until
	}
	d.Figures = []reconcile.Figure{{Metric: deletions, Value: 1, Of: ref}, {Metric: latency, Value: now.Sub(over).Seconds(), Of: ref}}
	return d
}

// marked reports whether the pod already has the condition.
func (v View) marked() bool {
	said := v.disruption()
	return said.Status == corev1.ConditionTrue && said.Reason == why
}

// disruption is the pod's disruption condition.
func (v View) disruption() corev1.PodCondition {
	for _, c := range v.Pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c
		}
	}
	return corev1.PodCondition{}
}

// record is an Event about the pod, with its name in the message.
func (v View) record(message string) events.Command {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: v.Pod.Namespace, Name: v.Pod.Name, UID: v.Pod.UID}
	return reconcile.Record(events.Notice{
		About: about, Type: corev1.EventTypeNormal, Reason: "TaintManagerEviction",
		Message: fmt.Sprintf(message, v.Pod.Namespace+"/"+v.Pod.Name),
	})
}
