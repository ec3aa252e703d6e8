package network

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/test/sim/cluster"
)

// NodeRanges is what happens to nodes that get their address ranges from Millrace, or bring
// their own.
var NodeRanges = []cluster.Operation{PlainNode, PlainNode, PlainNode, PlainNode, rangedNode, giveRange, LeaveNode, LeaveNode, LeaveNode, touchNode}

// ClusterRanges are the cluster's ranges in such a world: four nodes can have one of each.
var ClusterRanges = map[string]int{"10.0.0.0/22": 24, "fd00::/62": 64}

func rangeNode(w *cluster.Cluster) events.Ref { return cluster.NodeRef(fmt.Sprint("node-", w.Roll(6))) }

// Comes creates a node that has ranges, unless it exists.
func Comes(w *cluster.Cluster, ref events.Ref, ranges ...string) {
	if w.API.Get(ref) != nil {
		return
	}
	w.Note("user: a node %s with the ranges %v", ref.Name, ranges)
	n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name}}
	if len(ranges) > 0 {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = ranges[0], ranges
	}
	w.Create(ref, n)
}

// PlainNode creates a node that has no ranges.
func PlainNode(w *cluster.Cluster) { Comes(w, rangeNode(w)) }

// anyRange is a random range; ok is false if a node has addresses of it.
func anyRange(w *cluster.Cluster) (text string, ok bool) {
	text = []string{fmt.Sprintf("10.0.%d.0/24", w.Roll(4)), "10.0.2.0/23", "10.0.1.128/25", "192.168.0.0/24"}[w.Roll(4)]
	return text, sharer(w, "", text) == ""
}

// rangedNode creates a node that brings its range; giveRange has another program assign one.
func rangedNode(w *cluster.Cluster) {
	if text, ok := anyRange(w); ok {
		Comes(w, rangeNode(w), text)
	}
}

func giveRange(w *cluster.Cluster) {
	ref := rangeNode(w)
	n, there := w.API.Get(ref).(*corev1.Node)
	if text, ok := anyRange(w); ok && there && len(n.Spec.PodCIDRs) == 0 {
		w.Note("foreign: %s has %s", ref.Name, text)
		w.API.Change(ref, func(obj metav1.Object) {
			s := &obj.(*corev1.Node).Spec
			s.PodCIDR, s.PodCIDRs = text, []string{text}
		})
	}
}

// LeaveNode deletes a node that gets ranges.
func LeaveNode(w *cluster.Cluster) {
	if ref := rangeNode(w); w.API.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

func touchNode(w *cluster.Cluster) {
	if ref := rangeNode(w); w.API.Get(ref) != nil {
		w.Annotate(ref, fmt.Sprint(w.Counts.Steps))
	}
}

// sharer is a node, other than the named one, that has an address of a range.
func sharer(w *cluster.Cluster, name, text string) string {
	r := netip.MustParsePrefix(text)
	for _, obj := range w.API.List(kinds.Nodes.Name) {
		n := obj.(*corev1.Node)
		if _, some := (query.Ranged{Ranges: n.Spec.PodCIDRs}).Overlaps([]netip.Prefix{r}); some && n.Name != name {
			return n.Name
		}
	}
	return ""
}

// Ranged checks a node that is assigned ranges: no other node has an address of them (N1). No
// writer can know of a range that another program assigns between its check and its request.
func Ranged(g *cluster.Guard, old, now metav1.Object) {
	was, _ := old.(*corev1.Node)
	n, ok := now.(*corev1.Node)
	if ok && (was == nil || !slices.Equal(was.Spec.PodCIDRs, n.Spec.PodCIDRs)) {
		g.Network.RangedAt[n.UID] = g.World.API.Version
		g.Network.RangedBy[n.UID] = ""
		if g.Turns.Doing != nil {
			g.Network.RangedBy[n.UID] = g.Turns.Doing.Turn.Controller
		}
	}
	if !ok || g.Turns.Doing == nil || g.Record.Restoring || was == nil || slices.Equal(was.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		return
	}
	for _, text := range n.Spec.PodCIDRs {
		name := sharer(g.World, n.Name, text)
		other, shared := g.World.API.Get(cluster.NodeRef(name)).(*corev1.Node)
		switch looked := g.Turns.Looked[g.Turns.Doing.At()]; {
		case !shared:
		case g.Network.RangedBy[other.UID] == "" && g.Network.RangedAt[other.UID] > looked:
			g.Spare(cluster.RangeMeanwhile)
		default:
			g.Breaks("N1", "turn %d gives %s to %s, and %s has %v", g.Turns.Doing.Sequence, text, n.Name, name, other.Spec.PodCIDRs)
		}
	}
}

// InRanges reports whether every node has its ranges, as long as free ones exist.
func InRanges(w *cluster.Cluster) error {
	if !w.Runs("node-ipam-controller") {
		return nil
	}
	left := sharer(w, "", "10.0.0.0/24") == "" || sharer(w, "", "10.0.1.0/24") == "" || sharer(w, "", "10.0.2.0/24") == "" || sharer(w, "", "10.0.3.0/24") == ""
	for _, obj := range w.API.List(kinds.Nodes.Name) {
		if n := obj.(*corev1.Node); len(n.Spec.PodCIDRs) == 0 && left {
			return fmt.Errorf("%s has no ranges, and there are some", n.Name)
		}
	}
	return nil
}
