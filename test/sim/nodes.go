package sim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// nodesWork is everything that the scheduler and the nodes could do now, one
// function each: assign a pod, make it ready, let it end.
func (w *World) nodesWork() []func() {
	var work []func()
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		ref := events.Ref{Kind: kinds.Pods.Name, Namespace: pod.Namespace, Name: pod.Name}
		switch {
		case pod.DeletionTimestamp != nil:
			work = append(work, func() { w.note("node: %s ended", pod.Name); w.api.Finish(ref) })
		case pod.Spec.NodeName == "":
			work = append(work, func() { w.note("scheduler: %s assigned", pod.Name); w.api.Change(ref, assign) })
		case pod.Status.Phase == corev1.PodPending:
			work = append(work, func() { w.note("node: %s ready", pod.Name); w.api.Change(ref, w.ready) })
		}
	}
	return work
}

func assign(obj metav1.Object) { obj.(*corev1.Pod).Spec.NodeName = "node-1" }

func (w *World) ready(obj metav1.Object) {
	pod := obj.(*corev1.Pod)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now.Truncate(time.Second)),
	}}
}

// active tells whether a pod counts: not ended and not on its way out.
func active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
