package sim

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// NodeRanges is what happens to nodes that get their address ranges from Millrace, or bring
// their own.
var NodeRanges = []Operation{plainNode, plainNode, plainNode, plainNode, rangedNode, giveRange, leaveNode, leaveNode, leaveNode, touchNode}

// ClusterRanges are the cluster's ranges in such a world: four nodes can have one of each.
var ClusterRanges = map[string]int{"10.0.0.0/22": 24, "fd00::/62": 64}

func (w *World) rangeNode() events.Ref { return nodeRef(fmt.Sprint("node-", w.roll(6))) }

func (w *World) comes(ref events.Ref, ranges ...string) {
	if w.api.Get(ref) != nil {
		return
	}
	w.note("user: a node %s with the ranges %v", ref.Name, ranges)
	n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name}}
	if len(ranges) > 0 {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = ranges[0], ranges
	}
	w.create(ref, n)
}

func plainNode(w *World) { w.comes(w.rangeNode()) }

// anyRange is a random range; ok is false if a node has addresses of it.
func (w *World) anyRange() (text string, ok bool) {
	text = []string{fmt.Sprintf("10.0.%d.0/24", w.roll(4)), "10.0.2.0/23", "10.0.1.128/25", "192.168.0.0/24"}[w.roll(4)]
	return text, w.sharer("", text) == ""
}

// rangedNode creates a node that brings its range; giveRange has another program assign one.
func rangedNode(w *World) {
	if text, ok := w.anyRange(); ok {
		w.comes(w.rangeNode(), text)
	}
}

func giveRange(w *World) {
	ref := w.rangeNode()
	n, there := w.api.Get(ref).(*corev1.Node)
	if text, ok := w.anyRange(); ok && there && len(n.Spec.PodCIDRs) == 0 {
		w.note("foreign: %s has %s", ref.Name, text)
		w.api.Change(ref, func(obj metav1.Object) {
			s := &obj.(*corev1.Node).Spec
			s.PodCIDR, s.PodCIDRs = text, []string{text}
		})
	}
}

func leaveNode(w *World) {
	if ref := w.rangeNode(); w.api.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

func touchNode(w *World) {
	if ref := w.rangeNode(); w.api.Get(ref) != nil {
		w.Annotate(ref, fmt.Sprint(w.tally.Steps))
	}
}

// sharer is a node, other than the named one, that has an address of a range.
func (w *World) sharer(name, text string) string {
	r := netip.MustParsePrefix(text)
	for _, obj := range w.api.List(kinds.Nodes.Name) {
		n := obj.(*corev1.Node)
		if _, some := (query.Ranged{Ranges: n.Spec.PodCIDRs}).Overlaps([]netip.Prefix{r}); some && n.Name != name {
			return n.Name
		}
	}
	return ""
}

// ranges are the ranges of all objects of a kind.
func (a *API) ranges(kind kinds.Name) plan.Response {
	found := []query.Ranged{}
	for _, obj := range a.List(kind) {
		if n := obj.(*corev1.Node); len(n.Spec.PodCIDRs) > 0 {
			found = append(found, query.Ranged{Name: n.Name, UID: n.UID, Ranges: n.Spec.PodCIDRs})
		}
	}
	body, _ := json.Marshal(found) // it has only fields that encoding/json accepts
	return plan.Response{Code: 200, Body: body}
}

// reranged reports whether a change would change ranges that a node has, which no client can.
//
// Upstream: pkg/apis/core/validation, ValidateNodeUpdate.
func reranged(old, next metav1.Object) bool {
	was, ok := old.(*corev1.Node)
	return ok && len(was.Spec.PodCIDRs) > 0 && !slices.Equal(was.Spec.PodCIDRs, next.(*corev1.Node).Spec.PodCIDRs)
}

// ranged checks a node that is assigned ranges: no other node has an address of them (N1). No
// writer can know of a range that another program assigns between its check and its request.
func (g *guard) ranged(old, now metav1.Object) {
	was, _ := old.(*corev1.Node)
	n, ok := now.(*corev1.Node)
	if ok && (was == nil || !slices.Equal(was.Spec.PodCIDRs, n.Spec.PodCIDRs)) {
		g.rangedAt[n.UID] = g.world.api.version
		g.rangedBy[n.UID] = ""
		if g.doing != nil {
			g.rangedBy[n.UID] = g.doing.turn.Controller
		}
	}
	if !ok || g.doing == nil || g.restoring || was == nil || slices.Equal(was.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		return
	}
	for _, text := range n.Spec.PodCIDRs {
		name := g.world.sharer(n.Name, text)
		other, shared := g.world.api.Get(nodeRef(name)).(*corev1.Node)
		switch looked := g.looked[g.doing.at()]; {
		case !shared:
		case g.rangedBy[other.UID] == "" && g.rangedAt[other.UID] > looked:
			g.spare(rangeMeanwhile)
		default:
			g.breaks("N1", "turn %d gives %s to %s, and %s has %v", g.doing.sequence, text, n.Name, name, other.Spec.PodCIDRs)
		}
	}
}

// inRanges reports whether every node has its ranges, as long as free ones exist.
func (w *World) inRanges() error {
	if !w.runs("node-ipam-controller") {
		return nil
	}
	left := w.sharer("", "10.0.0.0/24") == "" || w.sharer("", "10.0.1.0/24") == "" || w.sharer("", "10.0.2.0/24") == "" || w.sharer("", "10.0.3.0/24") == ""
	for _, obj := range w.api.List(kinds.Nodes.Name) {
		if n := obj.(*corev1.Node); len(n.Spec.PodCIDRs) == 0 && left {
			return fmt.Errorf("%s has no ranges, and there are some", n.Name)
		}
	}
	return nil
}
