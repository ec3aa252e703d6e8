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

// reason is why a pod says that it was disrupted.
const reason = "DeletionByPodGC"

// decide ends pods. One that has not is said to have failed first, for no other
// component would say so.
//
// Upstream: pkg/controller/podgc, which looks at all pods every 20 seconds.
func decide(v View, now time.Time) reconcile.Decision {
	switch {
	case v.Pod == nil:
		return v.forget()
	case dismissed(v.Pod) && done(v.Pod):
		return reconcile.Nothing("the pod has been deleted, and something else holds it")
	case v.Pod.Spec.NodeName == "" && v.Pod.DeletionTimestamp != nil:
		return counted("unscheduled", v.end("the pod is to go, and never had a node", nil))
	case v.Pod.Spec.NodeName == "":
		return reconcile.Nothing("the pod has no node yet")
	case v.Node == nil:
		return counted("orphaned", v.orphaned(now))
	case v.Pod.DeletionTimestamp != nil && outOfService(v.Node):
		return counted("out-of-service", v.end("the pod is to go, and its node is out of service", nil))
	default:
		return reconcile.Nothing("the pod has its node")
	}
}

// forget deletes the pods that have ended and are not to be kept.
func (v View) forget() reconcile.Decision {
	commands := make([]events.Command, 0, len(v.Excess))
	for _, p := range v.Excess {
		commands = append(commands, deletion(p))
	}
	return counted("terminated", reconcile.Do("more pods have ended than are kept", commands...))
}

// orphaned ends a pod whose node is gone, when that has been so for long enough.
func (v View) orphaned(now time.Time) reconcile.Decision {
	until := v.Since.Add(quarantine)
	switch {
	case v.marked():
		return v.end("the pod's node is no more", &corev1.PodCondition{})
	case v.Since.IsZero():
		noted := reconcile.Do("the pod's node is not there: that is noted", v.status(map[string]any{}))
		noted.WakeAt = now.Add(quarantine) // nothing changes that could ask before
		return noted
	case until.After(now):
		return reconcile.Wake(until, "the pod's node has not been missing for long")
	}
	return v.end("the pod's node is no more", &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: v.Pod.Generation,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), Reason: reason, Message: "PodGC: node no longer exists",
	})
}

// marked tells whether the pod was already ended because of its node.
func (v View) marked() bool {
	return done(v.Pod) && slices.ContainsFunc(v.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == reason
	})
}

// end says that a pod has failed, with a condition where its node is gone, and
// when that is said deletes it. Both rest on the node's absence then, which the writer
// proves, and on the pod as it was seen: in a storage that was restored from a backup
// a pod that was to go may be one that no client has deleted, with the same uid.
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

// status changes the status of the pod as it was seen.
func (v View) status(body map[string]any, with ...reconcile.Option) events.Command {
	body["metadata"] = map[string]any{"uid": v.Pod.UID, "resourceVersion": v.Pod.ResourceVersion}
	c := reconcile.Patch(kinds.Pods.Kind, v.Pod, types.StrategicMergePatchType, reconcile.Body(body), append(with, reconcile.IfUnchanged(v.Pod))...)
	c.Subresource = "status"
	return c
}

// deletion is the end of a pod as it was seen, at once.
func deletion(p *corev1.Pod, with ...reconcile.Option) events.Command {
	c := reconcile.Delete(kinds.Pods.Kind, p, append(with, reconcile.IfUnchanged(p))...)
	c.GraceSeconds = ptr.To(int64(0))
	return c
}
