package nodeipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// batch is how many nodes get ranges, or Events, in one turn. For each turn the writer lists all
	// nodes, and the next turn waits until all of them have come back.
	batch = 250
	// again is when a missing range is reported again, and most is for how many nodes that is
	// remembered.
	//
	// Upstream: the limit of the back-off after which a node is looked at again.
	again = 1000 * time.Second
	most  = 1000
)

// The metrics, with upstream's names.
const (
	allocations = "node_ipam_controller_cidrset_cidrs_allocations_total"
	limit       = "node_ipam_controller_cirdset_max_cidrs"
	usage       = "node_ipam_controller_cidrset_usage_cidrs"
	tried       = "node_ipam_controller_cidrset_allocation_tries_per_request"
)

var (
	byRange = []string{"clusterCIDR"}
	metrics = []reconcile.Metric{
		{Name: allocations, Help: "Ranges that were allocated to nodes.", Sort: reconcile.Counter, Labels: byRange},
		{Name: limit, Help: "The number of ranges that can be allocated.", Sort: reconcile.Gauge, Labels: byRange},
		{Name: usage, Help: "The used share of the ranges, from 0 to 1.", Sort: reconcile.Gauge, Labels: byRange},
		{Name: tried, Help: "Ranges in use that an allocation skipped.", Labels: byRange, Buckets: []float64{1, 5, 25, 125, 625}},
	}
)

// judgement is the state of a decision in progress.
type judgement struct {
	view   View
	pools  []pool // with the ranges that no node may get, including the kept ones
	sure   []pool // without the kept ones
	kept   []Offer
	last   []string
	nodes  map[types.UID]Node // without ranges
	offers map[types.UID][]string
	lack   []Node // nodes for which there was no range
}

// decide assigns ranges to nodes that have none, and reports the nodes for which there are
// none.
func (c Config) decide(v View, now time.Time) reconcile.Decision {
	j := c.judge(v)
	fresh, known := j.waiting()
	d := j.give(fresh)
	if len(d.Commands) == 0 {
		d = j.give(known) // a request for these has failed, and may take long, so the others come first
	}
	d = reconcile.Join(d, j.tell(now))
	d.Sure = true
	for _, p := range j.pools {
		label := []string{p.cluster.String()}
		d.Figures = append(d.Figures,
			reconcile.Figure{Metric: limit, Value: float64(p.blocks), Labels: label},
			reconcile.Figure{Metric: usage, Value: float64(p.count()) / float64(p.blocks), Labels: label})
	}
	return d
}

// judge determines which ranges are used and which are kept.
func (c Config) judge(v View) *judgement {
	j := &judgement{view: v, nodes: map[types.UID]Node{}, offers: map[types.UID][]string{}}
	used := slices.Clone(c.Services)
	for _, n := range v.Nodes {
		used = append(used, n.Ranges...)
		if len(n.Ranges) == 0 {
			j.nodes[n.UID] = n
		}
	}
	ranges := prefixes(used)
	for _, r := range c.Cluster {
		if p, ok := newPool(r); ok {
			p.mark(ranges)
			j.sure = append(j.sure, p)
			p.used = slices.Clone(p.used)
			j.pools = append(j.pools, p)
		}
	}
	for _, o := range v.Memory.Kept {
		if _, waits := j.nodes[o.UID]; !waits {
			continue // it has ranges, or was deleted, and gets no others
		}
		j.kept, j.offers[o.UID] = append(j.kept, o), o.Ranges
		for i := range j.pools {
			j.pools[i].mark(prefixes(o.Ranges))
		}
	}
	j.last = make([]string, len(j.pools))
	copy(j.last, v.Memory.Last)
	return j
}

// prefixes are the ranges that can be parsed.
func prefixes(texts []string) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		if r, err := query.ParseRange(text); err == nil { // the API server validates them
			all = append(all, r)
		}
	}
	return all
}

func (p *pool) mark(ranges []netip.Prefix) {
	for _, r := range ranges {
		if s, inside := p.span(r); inside {
			p.add(s)
		}
	}
}

// waiting are the nodes without ranges, the oldest first: those without an offer, and those
// with one.
func (j *judgement) waiting() (fresh, known []Node) {
	for _, n := range j.view.Nodes {
		switch _, waits := j.nodes[n.UID]; {
		case !waits || n.Deleted:
		case j.offers[n.UID] == nil:
			fresh = append(fresh, n)
		default:
			known = append(known, n)
		}
	}
	for _, nodes := range [][]Node{fresh, known} {
		slices.SortFunc(nodes, func(a, b Node) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	}
	return fresh, known
}

// give offers ranges to some nodes, as far as there are any.
func (j *judgement) give(nodes []Node) reconcile.Decision {
	d := reconcile.Nothing("every node has its ranges, or no ranges are left")
	for _, n := range nodes {
		if len(d.Commands) == batch {
			break
		}
		ranges, figures, ok := j.offer(n)
		if !ok {
			j.lack = append(j.lack, n)
			continue
		}
		d.Because = "nodes have no ranges yet"
		d.Commands = append(d.Commands, assign(n, ranges))
		d.Figures = append(d.Figures, figures...)
	}
	if len(d.Commands) > 0 {
		note := reconcile.Body(Memory{Last: j.last, Kept: j.kept})
		d.Commands[0].Note = note
	}
	return d
}

// offer returns one range of each cluster range for a node: those that were offered to it
// before, if they are still possible, and free ones otherwise. A node gets all of them or
// none.
func (j *judgement) offer(n Node) (ranges []string, figures []reconcile.Figure, ok bool) {
	for i := range j.pools {
		figures = append(figures, reconcile.Figure{Metric: allocations, Value: 1, Labels: []string{j.pools[i].cluster.String()}, Of: ref(n)})
	}
	if before := j.offers[n.UID]; j.holds(before) {
		return before, figures, true
	}
	given := make([]netip.Prefix, 0, len(j.pools))
	for i := range j.pools {
		r, tries, some := j.pools[i].next(j.last[i])
		if !some {
			return nil, nil, false
		}
		figures = append(figures, reconcile.Figure{Metric: tried, Value: float64(tries), Labels: []string{j.pools[i].cluster.String()}, Of: ref(n)})
		given = append(given, r)
	}
	for i, r := range given {
		j.pools[i].mark([]netip.Prefix{r})
		j.last[i] = r.String()
		ranges = append(ranges, r.String())
	}
	j.kept = append(j.kept, Offer{n.UID, ranges})
	j.offers[n.UID] = ranges
	return ranges, figures, len(ranges) > 0
}

// holds reports whether an earlier offer is still possible: the cluster ranges are the same, and
// no other node is seen with a part of the offer.
func (j *judgement) holds(offered []string) bool {
	ranges := prefixes(offered)
	if len(offered) == 0 || len(ranges) != len(j.sure) {
		return false
	}
	for i := range j.sure {
		if !j.sure[i].own(ranges[i]) || !j.sure[i].free(ranges[i]) {
			return false
		}
	}
	return true
}

func ref(n Node) events.Ref { return events.Ref{Kind: kinds.Nodes.Name, Name: n.Name} }

// assign gives a node its ranges.
//
// Upstream: component-helpers/node/util, PatchNodeCIDRs.
func assign(n Node, ranges []string) events.Command {
	body := reconcile.Body(map[string]any{"spec": map[string]any{"podCIDR": ranges[0], "podCIDRs": ranges}})
	told := n.tell(failed)
	object := &metav1.ObjectMeta{Name: n.Name, UID: n.UID}
	return reconcile.Patch(kinds.Nodes.Kind, object, types.StrategicMergePatchType, body, reconcile.IfUnshared(), reconcile.WithEvents(nil, &told))
}

// tell is the Event about a node.
//
// Upstream: pkg/controller/util/node, RecordNodeStatusChange.
func (n Node) tell(reason string) events.Notice {
	return events.Notice{
		About: corev1.ObjectReference{APIVersion: "v1", Kind: kinds.Nodes.Kind.Kind, Name: n.Name, UID: n.UID},
		Type:  corev1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf("Node %s status is now: %s", n.Name, reason),
	}
}

// tell reports the nodes for which there is no range: each once, and all of them again after a
// while.
func (j *judgement) tell(now time.Time) reconcile.Decision {
	if len(j.lack) == 0 {
		return reconcile.Nothing("there are ranges for all nodes")
	}
	told := Told{Since: j.view.Told.Since, Nodes: slices.Clone(j.view.Told.Nodes)}
	if !now.Before(told.Since.Add(again)) {
		told = Told{Since: now}
	}
	told.Nodes = slices.DeleteFunc(told.Nodes, func(uid types.UID) bool { _, waits := j.nodes[uid]; return !waits })
	d := reconcile.Wake(told.Since.Add(again), "there are no ranges left for some nodes")
	for _, n := range j.lack {
		if len(told.Nodes) < most && len(d.Commands) < batch && !slices.Contains(told.Nodes, n.UID) {
			told.Nodes = append(told.Nodes, n.UID)
			d.Commands = append(d.Commands, reconcile.Record(n.tell(notAvailable)))
		}
	}
	if len(d.Commands) > 0 {
		d.Commands[0].Note = reconcile.Body(told)
	}
	return d
}
