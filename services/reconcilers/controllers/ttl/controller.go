// Package ttl tells the kubelet of each node for how long it may believe what it
// has read of Secrets and ConfigMaps: the longer, the more nodes there are to ask.
package ttl

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the TTL controller. A key is a Node.
var Controller = reconcile.Controller[View]{
	Name:    "ttl-controller",
	Aliases: []string{"ttl"},
	Queue:   "ttlcontroller",
	Owns:    &kinds.Nodes.Kind,
	Inputs:  []reconcile.Input{reconcile.Own(kinds.Nodes.Kind)},
	Writes:  reconcile.Writes{{Verb: events.VerbPatch, Kind: kinds.Nodes.Name}},
	Observe: observe,
	Decide:  decide,
}

// View is what the turn of one node can see.
type View struct {
	Node *corev1.Node `json:"node"`
	// Nodes is how many there are.
	Nodes int `json:"nodes"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	node, ok := reconcile.Get(s, kinds.Nodes, "", k.Name)
	return View{Node: node, Nodes: len(s.List(kinds.Nodes.Name, ""))}, ok
}

// step is a time for clusters of a size. The sizes overlap, so that a node more or
// less does not change everything to and fro.
type step struct {
	least, most int
	seconds     string
}

// Upstream: pkg/controller/ttl.
var steps = []step{{0, 100, "0"}, {90, 500, "15"}, {450, 1000, "30"}, {900, 2000, "60"}, {1800, 1 << 30, "300"}}

func decide(v View, _ time.Time) reconcile.Decision {
	want := wanted(v.Node.Annotations[corev1.ObjectTTLAnnotationKey], v.Nodes)
	if v.Node.Annotations[corev1.ObjectTTLAnnotationKey] == want {
		return reconcile.Nothing("the node is told what fits the size of the cluster")
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{corev1.ObjectTTLAnnotationKey: want}}}
	return reconcile.Do("the node is not told what fits the size of the cluster",
		reconcile.Patch(kinds.Nodes.Kind, v.Node, types.StrategicMergePatchType, reconcile.Body(patch)))
}

// wanted is the time for a number of nodes: what is said already where that fits,
// else what comes next.
//
// Upstream: one remembers the step that the cluster is on. Each node's annotation
// remembers it here, so nothing is forgotten at a restart.
func wanted(said string, nodes int) string {
	at := 0
	for i, s := range steps {
		if s.seconds == said {
			at = i
		}
	}
	for steps[at].most < nodes {
		at++
	}
	for steps[at].least > nodes {
		at--
	}
	return steps[at].seconds
}
