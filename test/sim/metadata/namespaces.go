package metadata

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Demolition is what users do with namespaces that come and go, and with their content.
var Demolition = []cluster.Operation{useNamespace, useNamespace, useNamespace, useNamespace, tamperCertificate, deleteFurniture}

// useNamespace creates a namespace, adds a pod to it, or deletes it.
func useNamespace(w *cluster.Cluster) {
	ref := apiserver.NamespaceRef(fmt.Sprintf("ns%d", w.Roll(2)))
	switch ns := w.API.Get(ref); {
	case ns == nil:
		w.Note("user: create namespace %s", ref.Name)
		w.Namespace(ref.Name)
	case w.Roll(3) > 0:
		pod := events.Ref{Kind: kinds.Pods.Name, Namespace: ref.Name, Name: fmt.Sprintf("p%d", w.Roll(3))}
		w.Note("user: create pod %v", pod)
		w.Create(pod, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
	default:
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// Emptied checks a deleted namespace: nothing may be left in it.
func Emptied(g *cluster.Guard, ns metav1.Object) {
	if g.Record.Restoring {
		return
	}
	for _, c := range g.World.API.Kinds {
		if h := c.Holding(ns.GetName()); c.Kind.Namespaced && h.Count > 0 {
			g.Breaks("I12", "namespace %s has gone, and %d %s are left in it", ns.GetName(), h.Count, h.Kind)
		}
	}
}

// Clears checks a delete that happens because of the namespace: the namespace is being deleted,
// and its pods go first.
func Clears(g *cluster.Guard, obj metav1.Object, kind kinds.Name) {
	ns := g.World.API.Get(apiserver.NamespaceRef(obj.GetNamespace()))
	switch {
	case ns == nil || ns.GetDeletionTimestamp() == nil:
		g.Breaks("I4", "%s %s is deleted although its namespace lives", kind, obj.GetName())
	case kind != kinds.Pods.Name && g.World.API.Of(kinds.Pods.Name).Holding(obj.GetNamespace()).Count > 0:
		g.Breaks("I12", "%s %s goes before the pods of its namespace", kind, obj.GetName())
	}
}
