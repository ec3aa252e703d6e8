package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Runs reports whether a controller runs in this world.
func (w *Cluster) Runs(controller string) bool { return w.Promises[controller] != nil }

// NodeRef is the place of a node.
func NodeRef(name string) events.Ref { return events.Ref{Kind: kinds.Nodes.Name, Name: name} }

// Has reports whether an object has a finalizer.
func Has(obj metav1.Object, finalizer string) bool {
	return obj != nil && slices.Contains(obj.GetFinalizers(), finalizer)
}

// ObjectOf is an object in the view of a turn; nil if the view had none, or the log has lost
// it.
func (g *Guard) ObjectOf(t events.Turn, kind kinds.Kind, ref events.Ref) metav1.Object {
	log := g.World.Bus.Kinds[kind.Name].Log
	if g.LostSince(t, kind.Name) {
		return nil
	}
	for i := min(int(t.Seen[kind.Name]), len(log)) - 1; i >= 0; i-- {
		d := log[i].Delta
		if d.Ref != ref {
			continue
		}
		if d.Op != events.Is {
			return nil
		}
		obj, err := kinds.Decode(kind, d.ContentType, d.Body)
		if err != nil {
			return nil
		}
		return obj
	}
	return nil
}

// Ready reports whether a pod says that it can serve.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Active reports whether a pod counts: neither ended nor being deleted.
func Active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// ImageOfPod is the image of a pod.
func ImageOfPod(p *corev1.Pod) string { return p.Spec.Containers[0].Image }

// ImageOf is the image of a template.
func ImageOf(t corev1.PodTemplateSpec) string { return t.Spec.Containers[0].Image }

// OwnerOf is the name of the controller of an object; empty if it has none.
func OwnerOf(obj metav1.Object) string {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return owner.Name
	}
	return ""
}
