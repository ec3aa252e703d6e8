package sim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Nodes is what nodes do with the pods that they are given.
type Nodes int

// What nodes do.
const (
	// Run runs them until they are deleted.
	Run Nodes = iota
	// Reject rejects each at once, like a node that does not admit it.
	Reject
)

// nodes are the scheduler and the nodes.
type nodes struct{ world *World }

func (n nodes) ready() bool {
	if n.world.dirty {
		n.world.dirty = false
		n.world.lookForWork()
	}
	return len(n.world.work) > 0
}

func (n nodes) act() {
	n.world.guard.stirred()
	n.world.work[n.world.roll(len(n.world.work))]()
}

// lookForWork collects everything that the scheduler and the nodes could do now: assign a pod,
// make it ready, end it.
func (w *World) lookForWork() {
	w.work = w.work[:0]
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		ref := events.Ref{Kind: kinds.Pods.Name, Namespace: pod.Namespace, Name: pod.Name}
		switch {
		case w.stores():
			w.workOnPod(pod, ref)
		case w.hasDevices():
			w.workOnDevices(pod, ref)
		case pod.Spec.NodeName != "" && silenced(w.api.Get(nodeRef(pod.Spec.NodeName))):
		case pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0:
			w.work = append(w.work, func() { w.note("node: %s ended", pod.Name); w.api.Finish(ref) })
		case pod.DeletionTimestamp != nil && !runs(pod), !w.lives(pod.Spec.NodeName) && pod.Spec.NodeName != "":
		case pod.DeletionTimestamp != nil:
			if pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
				w.work = append(w.work, func() { w.note("node: %s killed", pod.Name); w.api.Change(ref, w.kill) })
			}
		case pod.Spec.NodeName == "":
			w.schedule(pod, ref)
		case pod.Status.Phase == corev1.PodPending && w.options.Nodes == Reject:
			w.work = append(w.work, func() { w.note("node: %s rejected", pod.Name); w.api.Change(ref, reject) })
		case pod.Status.Phase == corev1.PodPending:
			w.work = append(w.work, func() { w.note("node: %s ready", pod.Name); w.api.Change(ref, w.run) })
		case pod.Status.Phase == corev1.PodRunning && runs(pod):
			w.work = append(w.work, func() { w.note("node: %s ends", pod.Name); w.api.Change(ref, w.end) })
		}
	}
	if w.stores() {
		w.storageWork()
	}
}

func reject(obj metav1.Object) {
	obj.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeAffinity"}
}

func (w *World) run(obj metav1.Object) {
	pod := obj.(*corev1.Pod)
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, addressOf(pod)
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now.Truncate(time.Second)),
	}}
}

// active reports whether a pod counts: neither ended nor being deleted.
func active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
