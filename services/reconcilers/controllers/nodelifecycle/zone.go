package nodelifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The metrics, with upstream's names. Upstream also measures its rounds
// (update_node_health_duration_seconds and others), which do not exist here.
const (
	health    = "node_collector_zone_health"
	size      = "node_collector_zone_size"
	unhealthy = "node_collector_unhealthy_nodes_in_zone"
	evictions = "node_collector_evictions_total"
)

var (
	byZone  = []string{"zone"}
	metrics = []reconcile.Metric{
		{Name: health, Help: "Percentage of the nodes of a zone that are ready.", Sort: reconcile.Gauge, Labels: byZone},
		{Name: size, Help: "Nodes of a zone.", Sort: reconcile.Gauge, Labels: byZone},
		{Name: unhealthy, Help: "Nodes of a zone that are not ready.", Sort: reconcile.Gauge, Labels: byZone},
		{Name: evictions, Help: "Nodes of a zone that were tainted for eviction.", Sort: reconcile.Counter, Labels: byZone},
	}
)

// look is how often a zone is checked that would have a silent node if the watcher heard leases.
// batch is how many nodes one turn sets to unknown.
const (
	look  = 5 * time.Second
	batch = 100
)

// decideZone sets silent nodes of a zone to unknown, and taints one node that is not ready if
// the rate allows it. While pods are being evicted, it asks for another turn when the last ready
// node could have been silent for too long.
func (v View) decideZone(c Config, now time.Time) reconcile.Decision {
	z := v.Zone
	silence, silent := z.silence(c, now)
	decision := reconcile.Join(v.evict(c, silent, now), silence)
	if at := later(v.Sound, now); !v.Sound.IsZero() && len(z.driven()) > 0 && (decision.WakeAt.IsZero() || at.Before(decision.WakeAt)) {
		decision.WakeAt = at
	}
	counted, down := z.figures(silent)
	if counted > 0 {
		decision.Figures = append(decision.Figures,
			z.figure(size, float64(counted)), z.figure(unhealthy, float64(down)), z.figure(health, float64(100*(counted-down))/float64(counted)))
	}
	return decision
}

func (z *Zone) figure(metric string, value float64) reconcile.Figure {
	return reconcile.Figure{Metric: metric, Value: value, Labels: []string{z.Name}}
}

// figures are how many nodes of the zone count, and how many of those are not ready. A silent
// node counts as not ready even before its conditions are written. Otherwise, while that takes
// more than one turn, other nodes' pods would be evicted in a zone with mostly silent nodes.
func (z *Zone) figures(silent map[string]bool) (counted, down int) {
	for _, m := range z.Members {
		if m.Node != nil && counts(m.Node) {
			if counted++; !ready(m.Node) || silent[m.Node.Name] {
				down++
			}
		}
	}
	return counted, down
}

// silence sets the conditions of nodes that have been silent for too long to Unknown.
func (z *Zone) silence(c Config, now time.Time) (d reconcile.Decision, silent map[string]bool) {
	silent = map[string]bool{}
	var quiet []*corev1.Node
	for _, m := range z.Members {
		if m.Node == nil || unknown(m.Node) {
			continue
		}
		due := m.due(c, z.Sight)
		if z.Sight.Until.After(due) {
			quiet, silent[m.Node.Name] = append(quiet, m.Node), true
			continue
		}
		if at := later(due, now); d.WakeAt.IsZero() || at.Before(d.WakeAt) {
			d.WakeAt, d.Because = at, "no node has been silent for long enough"
		}
	}
	if len(quiet) == 0 {
		d.Because = cmp.Or(d.Because, "no node says that it is ready")
		return d, silent
	}
	d.Because = "nodes have been silent for too long"
	slices.SortFunc(quiet, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range quiet[:min(len(quiet), batch)] {
		d.Commands = append(d.Commands, hush(n, now))
	}
	return d, silent
}

// due is the moment after which a node that has not been heard counts as silent. It counts from
// the beginning of the watch at the earliest, because an unwatched node's silence says nothing.
func (m Member) due(c Config, sight events.Sight) time.Time {
	since := latest(sight.Since, m.Renewed)
	if condition(m.Node, corev1.NodeReady) == nil {
		return latest(since, m.Node.CreationTimestamp.Time).Add(c.Startup)
	}
	return latest(since, m.Heard).Add(c.Grace)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// later returns at if it lies ahead, and otherwise the next multiple of look.
func later(at, now time.Time) time.Time {
	if at.After(now) {
		return at
	}
	return now.Truncate(look).Add(look)
}

// stopped are the conditions that become Unknown for a silent node. NetworkUnavailable is not
// among them, because the node does not report it.
var stopped = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
}

// hush sets the conditions of a silent node to Unknown.
//
// Upstream: tryUpdateNodeHealth.
func hush(n *corev1.Node, now time.Time) events.Command {
	at := metav1.NewTime(now.Truncate(time.Second))
	var unknown []corev1.NodeCondition
	for _, of := range stopped {
		switch c := condition(n, of); {
		case c == nil:
			unknown = append(unknown, corev1.NodeCondition{
				Type: of, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: at,
			})
		case c.Status != corev1.ConditionUnknown:
			unknown = append(unknown, corev1.NodeCondition{
				Type: of, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
				LastHeartbeatTime: c.LastHeartbeatTime, LastTransitionTime: at,
			})
		}
	}
	body := reconcile.Body(map[string]any{"status": map[string]any{"conditions": unknown}})
	command := reconcile.Patch(kinds.Nodes.Kind, n, types.StrategicMergePatchType, body, reconcile.IfUnchanged(n))
	command.Subresource = "status"
	if ready(n) {
		told := about(n.Name, n.UID, "NodeNotReady", fmt.Sprintf("Node %s status is now: NodeNotReady", n.Name))
		reconcile.WithEvents(&told, nil)(&command)
	}
	return command
}

// evict taints one node that is not ready, so that its pods are evicted: the one that has been
// not ready for longest, as often as the zone's rate allows.
func (v View) evict(c Config, silent map[string]bool, now time.Time) reconcile.Decision {
	z := v.Zone
	rate, waiting := z.rate(c, silent), z.waiting(silent)
	switch {
	case v.Silenced:
		return z.spare(now)
	case len(waiting) == 0:
		return reconcile.Nothing("no pods are to be evicted")
	case v.FullDisruption:
		return reconcile.Nothing("no node is ready, so no pods are evicted")
	case rate <= 0:
		return reconcile.Nothing("too many nodes are not ready to evict pods")
	}
	if next := z.Last.Add(interval(rate)); next.After(now) {
		return reconcile.Wake(next, "evictions are limited to one node at a time")
	}
	n := waiting[0]
	taints, _ := retaint(n, warned(n), []string{driver(n)}, now)
	d := reconcile.Do("a node is not ready, so its pods are evicted", patched(n, map[string]any{"spec": map[string]any{"taints": taints}}))
	count := z.figure(evictions, 1)
	count.Of = events.Ref{Kind: kinds.Nodes.Name, Name: n.Name}
	d.Figures = append(d.Figures, count)
	return d
}

// spare removes the NoExecute taints if all nodes that say they are ready are silent. Their
// statuses cannot be written, so the nodes' own keys get no turn about it. spare asks for
// another turn, because a node that is heard again causes no turn either.
//
// Upstream: handleDisruption, where a node whose status was refused is left out.
func (z *Zone) spare(now time.Time) reconcile.Decision {
	d := reconcile.Wake(later(time.Time{}, now), "no ready node sends heartbeats, so no pods are evicted")
	for _, n := range z.driven() {
		if len(d.Commands) < batch {
			taints, _ := retaint(n, warned(n), nil, now)
			d.Commands = append(d.Commands, patched(n, map[string]any{"spec": map[string]any{"taints": taints}}))
		}
	}
	return d
}

// driven are the nodes of the zone whose pods are evicted, sorted by name.
func (z *Zone) driven() (nodes []*corev1.Node) {
	for _, m := range z.Members {
		if m.Node != nil && len(driven(m.Node)) > 0 {
			nodes = append(nodes, m.Node)
		}
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

// interval is the time between two nodes. Rates are in single precision, as upstream, so the
// result is rounded to milliseconds.
func interval(rate float32) time.Duration {
	return time.Duration(float64(time.Second) / float64(rate)).Round(time.Millisecond)
}

// waiting are the nodes that are not ready and whose pods are not evicted yet, in the order in
// which they became so. A node whose last taint failed comes after the others. A node is
// excluded until its own key has marked it ([marked]).
func (z *Zone) waiting(silent map[string]bool) (waiting []*corev1.Node) {
	for _, m := range z.Members {
		if m.Node != nil && driver(m.Node) != "" && len(driven(m.Node)) == 0 && !silent[m.Node.Name] && marked(m.Node) {
			waiting = append(waiting, m.Node)
		}
	}
	failed := func(n *corev1.Node) int {
		if n.Name == z.Failed {
			return 1
		}
		return 0
	}
	since := func(n *corev1.Node) time.Time { return condition(n, corev1.NodeReady).LastTransitionTime.Time }
	slices.SortFunc(waiting, func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(failed(a), failed(b)), since(a).Compare(since(b)), cmp.Compare(a.Name, b.Name))
	})
	return waiting
}

// rate is how many nodes per second may be tainted NoExecute: fewer if many nodes of the zone
// are not ready, and none if such a zone is small. A zone without a ready node is judged apart
// from the others and has the normal rate.
//
// Upstream: ComputeZoneState and setLimiterInZone.
func (z *Zone) rate(c Config, silent map[string]bool) float32 {
	counted, down := z.figures(silent)
	switch {
	case down == counted || down <= 2 || float32(down)/float32(counted) < c.Many:
		return c.Rate
	case counted > c.Large:
		return c.Secondary
	default:
		return 0
	}
}
