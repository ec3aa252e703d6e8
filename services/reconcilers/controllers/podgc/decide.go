package podgc

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// reason is the reason of the pod's disruption condition.
const reason = "DeletionByPodGC"

// decide deletes pods. It first sets a pod that has not ended to Failed, because no
// other component would.
//
// Upstream: pkg/controller/podgc, which looks at all pods every 20 seconds.
func decide(v View, now time.Time) reconcile.Decision {
	switch {
	case v.Pod == nil:
		return v.forget()
	case dismissed(v.Pod) && done(v.Pod):
		return reconcile.Nothing("the pod is being deleted, and its finalizers remain")
	case v.Pod.Spec.NodeName == "" && v.Pod.DeletionTimestamp != nil:
		return counted("unscheduled", v.end("the pod is being deleted, and was never scheduled", nil))
	case v.Pod.Spec.NodeName == "":
		return reconcile.Nothing("the pod has no node yet")
	case v.Node == nil:
		return counted("orphaned", v.orphaned(now))
	case v.Pod.DeletionTimestamp != nil && outOfService(v.Node):
		return counted("out-of-service", v.end("the pod is being deleted, and its node is out of service", nil))
	default:
		return reconcile.Nothing("the pod's node exists")
	}
}

// forget deletes the ended pods that are not to be kept.
func (v View) forget() reconcile.Decision {
	commands := make([]events.Command, 0, len(v.Excess))
	for _, p := range v.Excess {
		commands = append(commands, deletion(p))
	}
	return counted("terminated", reconcile.Do("there are more terminated pods than the threshold", commands...))
}

// orphaned ends a pod whose node has been missing for long enough.
func (v View) orphaned(now time.Time) reconcile.Decision {
	until := v.Since.Add(quarantine)
	switch {
	case v.marked():
		return v.end("the pod's node does not exist", &corev1.PodCondition{})
	case v.Since.IsZero():
		noted := reconcile.Do("the pod's node is missing; the time is recorded", v.status(map[string]any{}))
		noted.WakeAt = now.Add(quarantine) // no change will ask before
		return noted
	case until.After(now):
		return reconcile.Wake(until, "the pod's node has not been missing for long enough")
	}
	return v.end("the pod's node does not exist", &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: v.Pod.Generation,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), Reason: reason, Message: "PodGC: node no longer exists",
	})
}

// marked reports whether the pod was already ended because of its node.
func (v View) marked() bool {
	return done(v.Pod) && slices.ContainsFunc(v.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == reason
	})
}

// end sets a pod to Failed, with a condition if its node was deleted, and then deletes
// it. If the node was deleted, both depend on its absence, which the writer proves.
// Both also depend on the pod's version: in a storage that was restored from a backup,
// a pod that had been terminating may not be deleted at all, with the same uid.
func (v View) end(because string, disrupted *corev1.PodCondition) reconcile.Decision {
	var with []reconcile.Option
	if disrupted != nil {
		with = append(with, reconcile.IfAbsent(metav1.OwnerReference{
			APIVersion: kinds.Nodes.APIVersion(), Kind: kinds.Nodes.Kind.Kind, Name: v.Pod.Spec.NodeName,
		}))
	}
	if done(v.Pod) {
		return reconcile.Do(because, deletion(v.Pod, with...))
	}
	status := map[string]any{"phase": corev1.PodFailed, "observedGeneration": v.Pod.Generation}
	if disrupted != nil {
		status["conditions"] = []corev1.PodCondition{*disrupted}
	}
	return reconcile.Do(because, v.status(map[string]any{"status": status}, with...))
}

// status patches the status of the pod at the version that was seen.
func (v View) status(body map[string]any, with ...reconcile.Option) events.Command {
	body["metadata"] = map[string]any{"uid": v.Pod.UID, "resourceVersion": v.Pod.ResourceVersion}
	c := reconcile.Patch(kinds.Pods.Kind, v.Pod, types.StrategicMergePatchType, reconcile.Body(body), append(with, reconcile.IfUnchanged(v.Pod))...)
	c.Subresource = "status"
	return c
}

// deletion deletes a pod at the version that was seen, with a grace period of zero.
func deletion(p *corev1.Pod, with ...reconcile.Option) events.Command {
	c := reconcile.Delete(kinds.Pods.Kind, p, append(with, reconcile.IfUnchanged(p))...)
	c.GraceSeconds = ptr.To(int64(0))
	return c
}
