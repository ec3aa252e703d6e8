// Package ttl tells the kubelet of each node for how long it may cache Secrets and
// ConfigMaps: the longer, the more nodes the cluster has.
package ttl

import (
	"slices"
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
	Writes: reconcile.Writes{
		{Verb: events.VerbPatch, Kind: kinds.Nodes.Name, On: reconcile.Itself, Fields: []string{".metadata.annotations['" + corev1.ObjectTTLAnnotationKey + "']"}},
	},
	Observe: observe,
	Decide:  decide,
}

// View is what the turn of one node can see.
type View struct {
	Node *corev1.Node `json:"node"`
	// Nodes is the number of nodes, and Step the last of [steps] that any node has.
	Nodes int `json:"nodes"`
	Step  int `json:"step,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	node, ok := reconcile.Get(s, kinds.Nodes, "", k.Name)
	all := s.List(kinds.Nodes.Name, "")
	v := View{Node: node, Nodes: len(all)}
	for _, n := range all {
		v.Step = max(v.Step, stepOf(n.GetAnnotations()[corev1.ObjectTTLAnnotationKey]))
	}
	return v, ok
}

// step is a TTL for a range of cluster sizes. The ranges overlap, so that one node more
// or less does not change the TTL back and forth.
type step struct {
	least, most int
	seconds     string
}

// Upstream: pkg/controller/ttl.
var steps = []step{{0, 100, "0"}, {90, 500, "15"}, {450, 1000, "30"}, {900, 2000, "60"}, {1800, 1 << 30, "300"}}

func decide(v View, _ time.Time) reconcile.Decision {
	want := wanted(v.Step, v.Nodes)
	if v.Node.Annotations[corev1.ObjectTTLAnnotationKey] == want {
		return reconcile.Nothing("the node's TTL annotation matches the cluster's size")
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{corev1.ObjectTTLAnnotationKey: want}}}
	return reconcile.Do("the node's TTL annotation does not match the cluster's size",
		reconcile.Patch(kinds.Nodes.Kind, v.Node, types.StrategicMergePatchType, reconcile.Body(patch)))
}

// stepOf is the step of a node's annotation; the first if the annotation has none.
func stepOf(said string) int {
	return max(0, slices.IndexFunc(steps, func(s step) bool { return s.seconds == said }))
}

// wanted is the TTL for a number of nodes: that of the present step if it fits, otherwise
// of the nearest one that does.
//
// Upstream: one remembers the step that the cluster is on. The nodes' annotations
// remember it here, so nothing is forgotten at a restart.
func wanted(at, nodes int) string {
	for steps[at].most < nodes {
		at++
	}
	for steps[at].least > nodes {
		at--
	}
	return steps[at].seconds
}
