package nodes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

// SomeNode is one of the nodes; it is created if it does not exist.
func SomeNode(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.Nodes.Kind, "node-", func(name string) any {
		return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	})
}

// NewNode creates a node.
func NewNode(w *cluster.Cluster) { SomeNode(w) }

// DeleteNode deletes a node.
func DeleteNode(w *cluster.Cluster) {
	if ref, there := SomeNode(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
		w.Dirty = true
	}
}

// OutOfService marks a node with a silent kubelet as out of service, or takes that back.
func OutOfService(w *cluster.Cluster) {
	if ref, there := SomeNode(w); there {
		w.Note("user: %v is out of service, or is back", ref)
		w.API.Change(ref, func(obj metav1.Object) {
			n := obj.(*corev1.Node)
			if !Silenced(n) {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
				return
			}
			n.Spec.Taints = nil
		})
	}
}

// Silenced reports whether a node is marked as out of service.
func Silenced(obj metav1.Object) bool {
	n, ok := obj.(*corev1.Node)
	return ok && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// WellSaid reports whether a node reports that it is ready.
func WellSaid(n *corev1.Node) bool {
	c := Readiness(n)
	return c != nil && c.Status == corev1.ConditionTrue
}

// ForgeNode has another client remove the annotations of a node.
func ForgeNode(w *cluster.Cluster) {
	if ref, there := SomeNode(w); there {
		w.Note("foreign: %v loses its annotations", ref)
		w.API.Change(ref, func(obj metav1.Object) { obj.SetAnnotations(nil) })
	}
}

// Lives reports whether a node exists and runs; in a world without nodes every node does.
func Lives(w *cluster.Cluster, node string) bool {
	if k := w.Nodes.Kubelets[node]; k != nil && k.Stopped {
		return false
	}
	return w.API.Of(kinds.Nodes.Name) == nil || w.API.Get(cluster.NodeRef(node)) != nil
}

// Schedule assigns a node to a pod, if there is one. A pod whose claim is being deleted gets
// none.
func Schedule(w *cluster.Cluster, pod *corev1.Pod, ref events.Ref) {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := w.API.Get(events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: pod.Namespace, Name: volume.PersistentVolumeClaim.ClaimName})
		if claim == nil || claim.GetDeletionTimestamp() != nil {
			return
		}
	}
	node, all := "node-1", w.API.List(kinds.Nodes.Name)
	switch {
	case w.API.Of(kinds.Nodes.Name) == nil:
	case BoundNode(pod) != "":
		if node = BoundNode(pod); !Lives(w, node) {
			return
		}
	case len(all) == 0:
		return
	default:
		node = all[w.Roll(len(all))].GetName()
	}
	w.Work = append(w.Work, func() {
		w.Note("scheduler: %s assigned to %s", pod.Name, node)
		w.API.Change(ref, func(obj metav1.Object) { obj.(*corev1.Pod).Spec.NodeName = node })
	})
}

// addressOf is the address of a pod; no other pod has it.
func addressOf(pod *corev1.Pod) string {
	var n int
	_, _ = fmt.Sscanf(string(pod.UID), "uid-%d", &n) // as the simulated API server makes them
	return fmt.Sprintf("10.0.%d.%d", n/250, n%250+1)
}

// Cleans checks a pod that is about to be deleted because no kubelet would delete it. Its node
// may be back in service since the decision.
func Cleans(g *cluster.Guard, c *cluster.Taken, pod *corev1.Pod) {
	at := cluster.NodeRef(pod.Spec.NodeName)
	switch node := g.World.API.Get(at); {
	case pod.Spec.NodeName == "" || !Lives(g.World, pod.Spec.NodeName):
	case node != nil && g.SinceLook(c, node):
		g.Spare(cluster.NodeMeanwhile)
	case pod.DeletionTimestamp == nil || !Silenced(node) && !Silenced(g.ObjectOf(c.Turn, kinds.Nodes.Kind, at)):
		g.Breaks("I4", "pod %s is deleted although its node %s lives", pod.Name, pod.Spec.NodeName)
	}
}

// PodJudged judges the pod garbage collector. It deletes a pod when its node is gone; when the
// pod is being deleted and has no node, or one that is out of service; or when too many pods
// have ended.
func PodJudged(l *cluster.Look, f cluster.Findings) {
	gone := l.Deletes(kinds.Pods.Name)
	for _, obj := range l.List(kinds.Pods.Name) {
		p := obj.(*corev1.Pod)
		if !gone[p.UID] || !cluster.Active(p) || p.Spec.NodeName != "" && !l.Has(kinds.Nodes.Name, "", p.Spec.NodeName) {
			continue
		}
		f.Breaks("I4", "deletes %s, which is live on %q", p.Name, p.Spec.NodeName)
	}
}
