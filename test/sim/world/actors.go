package world

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/devices"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/storage"
)

// nodeWork is the work of the scheduler and of nodes, as an actor.
type nodeWork struct{ world *World }

func (n nodeWork) Ready() bool {
	if n.world.Dirty {
		n.world.Dirty = false
		lookForWork(n.world.Cluster)
	}
	return len(n.world.Work) > 0
}

func (n nodeWork) act() {
	n.world.Guard.Stirred()
	n.world.Work[n.world.Roll(len(n.world.Work))]()
}

// lookForWork collects everything that the scheduler and the nodes could do now: assign a pod,
// make it ready, end it.
func lookForWork(w *cluster.Cluster) {
	w.Work = w.Work[:0]
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		ref := events.Ref{Kind: kinds.Pods.Name, Namespace: pod.Namespace, Name: pod.Name}
		switch {
		case storage.Stores(w):
			storage.WorkOnPod(w, pod, ref)
		case devices.HasDevices(w):
			devices.WorkOnDevices(w, pod, ref)
		case pod.Spec.NodeName != "" && nodes.Silenced(w.API.Get(cluster.NodeRef(pod.Spec.NodeName))):
		case pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0:
			w.Work = append(w.Work, func() { w.Note("node: %s ended", pod.Name); w.API.Finish(ref) })
		case pod.DeletionTimestamp != nil && !nodes.Runs(pod), !nodes.Lives(w, pod.Spec.NodeName) && pod.Spec.NodeName != "":
		case pod.DeletionTimestamp != nil:
			if pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
				w.Work = append(w.Work, func() {
					w.Note("node: %s killed", pod.Name)
					w.API.Change(ref, func(obj metav1.Object) { nodes.Kill(w, obj) })
				})
			}
		case pod.Spec.NodeName == "":
			nodes.Schedule(w, pod, ref)
		case pod.Status.Phase == corev1.PodPending && w.Settings.Nodes == cluster.Reject:
			w.Work = append(w.Work, func() { w.Note("node: %s rejected", pod.Name); w.API.Change(ref, nodes.Reject) })
		case pod.Status.Phase == corev1.PodPending:
			w.Work = append(w.Work, func() {
				w.Note("node: %s ready", pod.Name)
				w.API.Change(ref, func(obj metav1.Object) { nodes.Run(w, obj) })
			})
		case pod.Status.Phase == corev1.PodRunning && nodes.Runs(pod):
			w.Work = append(w.Work, func() {
				w.Note("node: %s ends", pod.Name)
				w.API.Change(ref, func(obj metav1.Object) { nodes.End(w, obj) })
			})
		}
	}
	if storage.Stores(w) {
		storage.StorageWork(w)
	}
}

// process is the common part of all processes: a clock of its own, and pauses.
type process struct {
	world *World
	// Skew is how far its clock is ahead of the world's.
	Skew time.Duration
	// Asleep is until when it is stopped; then it continues where it was.
	Asleep time.Time
}

func (p *process) clock() time.Time { return p.world.Now.Add(p.Skew) }

func (p *process) stalled() bool { return p.Asleep.After(p.world.Now) }

// actor is a source of steps, each of which can happen again and again.
type actor interface {
	Ready() bool
	act()
}
