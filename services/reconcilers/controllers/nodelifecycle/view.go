package nodelifecycle

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// View is what one turn can see: of a node, of a deleted node, or of a zone.
type View struct {
	// Node is the node. Known is the uid of the node of that name that the last Event was
	// about.
	Node  *corev1.Node `json:"node,omitempty"`
	Known types.UID    `json:"known,omitempty"`
	// Name is the name of a deleted node.
	Name string `json:"name,omitempty"`
	// Renewed is when the watcher last heard the node's lease. Pods are the node's ready
	// pods. Both are set only if the node is unknown.
	Renewed time.Time     `json:"renewed,omitzero"`
	Pods    []*corev1.Pod `json:"pods,omitempty"`

	Zone *Zone `json:"zone,omitempty"`
	// FullDisruption: the cluster has nodes that count, and none of them is ready.
	FullDisruption bool `json:"fullDisruption,omitempty"`
	// Silenced, for a zone: nodes of the cluster say that they are ready, and all of those
	// have been silent for too long, which cannot be written. Sound is until when one of
	// them may be silent.
	Silenced bool      `json:"silenced,omitempty"`
	Sound    time.Time `json:"sound,omitzero"`
}

// Zone is what the turn of a zone can see.
type Zone struct {
	// Name is the name of the zone in metrics.
	Name    string   `json:"name"`
	Members []Member `json:"members"`
	// Sight is for how long the watcher has heard leases without a break.
	Sight events.Sight `json:"sight"`
	// Last is when a NoExecute taint for a node of the zone was last applied or refused;
	// Failed is the node if it was refused. A conflict and a deleted node do not count
	// against the rate.
	Last   time.Time `json:"last,omitzero"`
	Failed string    `json:"failed,omitempty"`
}

// Member is a node of a zone, and when the watcher last heard it and its lease.
type Member struct {
	Node    *corev1.Node `json:"node"`
	Heard   time.Time    `json:"heard,omitzero"`
	Renewed time.Time    `json:"renewed,omitzero"`
}

// colon is part of the name of each zone's key. No node's name has one.
const colon = ":"

// zoneOf is the key of a node's zone, and the zone's name in metrics.
//
// Upstream: component-helpers/node/topology, GetZoneKey.
func zoneOf(n *corev1.Node) (key events.Key, name string) {
	label := func(old, today string) string {
		if value, ok := n.Labels[old]; ok {
			return value
		}
		return n.Labels[today]
	}
	region := label(corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion)
	zone := label(corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone)
	if region+zone != "" {
		name = region + ":\x00:" + zone
	}
	return events.Key{Name: region + colon + zone}, name
}

func condition(n *corev1.Node, of corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

func ready(n *corev1.Node) bool {
	c := condition(n, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func unknown(n *corev1.Node) bool {
	c := condition(n, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionUnknown
}

// counts is false for a node that is excluded from the disruption state of its zone.
func counts(n *corev1.Node) bool {
	_, excluded := n.Labels[exclude]
	return !excluded
}

const exclude = "node.kubernetes.io/exclude-disruption"

// healthy is true for a node that counts and is ready.
func healthy(n *corev1.Node) bool { return counts(n) && ready(n) }

// atLeast reports whether at least enough nodes are healthy.
func atLeast(enough int, nodes []*corev1.Node) bool {
	found := 0
	for _, n := range nodes {
		if found == enough {
			break
		}
		if healthy(n) {
			found++
		}
	}
	return found == enough
}

// fullDisruption reports whether some nodes count and none of them is ready. If all nodes are
// excluded there is no full disruption, and pods are evicted as usual.
//
// Upstream: handleDisruption; nodes that are excluded are in no zone there.
func fullDisruption(nodes []*corev1.Node) bool {
	return slices.ContainsFunc(nodes, counts) && !slices.ContainsFunc(nodes, healthy)
}

// silenced reports whether some nodes count and say that they are ready, and all of those have
// been silent for too long. If not, sound is until when one of them may be silent.
func (c Config) silenced(s reconcile.Snapshot, nodes []*corev1.Node) (all bool, sound time.Time) {
	sight := s.Sight(kinds.Leases.Name)
	for _, n := range nodes {
		if !healthy(n) {
			continue
		}
		if due := member(s, n).due(c, sight); !sight.Until.After(due) {
			return false, due
		}
		all = true
	}
	return all, time.Time{}
}

// member is a node, and when the watcher last heard it and its lease.
func member(s reconcile.Snapshot, n *corev1.Node) Member {
	return Member{n, s.Heard(kinds.Nodes.Name, "", n.Name), s.Heard(kinds.Leases.Name, corev1.NamespaceNodeLease, n.Name)}
}

func (c Config) observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	if strings.Contains(k.Name, colon) {
		return c.observeZone(s, k)
	}
	var v View
	if last, ok := reconcile.LastOfAny(s, k, events.LaneStatus); ok {
		v.Known = last.UID
	}
	node, there := reconcile.Get(s, kinds.Nodes, "", k.Name)
	if !there {
		v.Name = k.Name
		return v, v.Known != ""
	}
	v.Node = node
	if unknown(node) {
		v.Renewed = s.Heard(kinds.Leases.Name, corev1.NamespaceNodeLease, k.Name)
		v.Pods = slices.DeleteFunc(reconcile.List(s, kinds.Pods, ""), func(p *corev1.Pod) bool {
			return p.Spec.NodeName != k.Name || !pod.Ready(p)
		})
	}
	v.FullDisruption = len(driven(node)) > 0 && fullDisruption(reconcile.List(s, kinds.Nodes, ""))
	return v, true
}

func (c Config) observeZone(s reconcile.Snapshot, k events.Key) (View, bool) {
	z := &Zone{Sight: s.Sight(kinds.Leases.Name)}
	nodes := reconcile.List(s, kinds.Nodes, "")
	for _, n := range nodes {
		key, name := zoneOf(n)
		if key != k {
			continue
		}
		z.Name = name
		z.Members = append(z.Members, member(s, n))
	}
	if last, ok := reconcile.LastOfAny(s, k, events.LaneWrite); ok {
		z.Last, z.Failed = slot(last)
	}
	v := View{Zone: z, FullDisruption: fullDisruption(nodes)}
	if slices.ContainsFunc(z.Members, func(m Member) bool { return driver(m.Node) != "" || len(driven(m.Node)) > 0 }) {
		v.Silenced, v.Sound = c.silenced(s, nodes) // without such a node no pods are evicted
	}
	return v, len(z.Members) > 0
}

// slot is when the last attempt to taint a node used the rate. It is zero for an attempt
// that did not, because of a conflict, a deleted node or a stale turn. failed is the node
// that refused.
func slot(last events.Outcome) (used time.Time, failed string) {
	failure, ok := last.Failure()
	switch {
	case !ok:
		return last.At, ""
	case !failure.Unsure && (failure.Status == events.Conflict || failure.Status == events.Absent || failure.Reason == "Stale"):
		return time.Time{}, ""
	default:
		return last.At, failure.Ref.Name
	}
}

// keysOfNode maps a node to its own key, to its zone's key if the change concerns the zone,
// and to the keys of [disrupted] if the change may begin or end a full disruption.
func keysOfNode(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*corev1.Node)
	node, _ := now.Object.(*corev1.Node)
	var keys []events.Key
	given := map[events.Key]bool{}
	add := func(k events.Key) {
		if !given[k] {
			given[k], keys = true, append(keys, k)
		}
	}
	alike := before != nil && node != nil && standing(before) == standing(node)
	for _, n := range []*corev1.Node{node, before} {
		if n == nil {
			continue
		}
		if add(events.Key{Name: n.Name}); !alike {
			zone, _ := zoneOf(n)
			add(zone)
		}
	}
	if !alike && turns(before, node) {
		disrupted(s, add)
	}
	return keys
}

// stand are the properties of a node on which its zone's decisions depend.
type stand struct {
	zone    events.Key
	counts  bool
	known   bool
	ready   corev1.ConditionStatus
	since   time.Time
	driving string
	marked  bool
}

func standing(n *corev1.Node) stand {
	s := stand{counts: counts(n), driving: strings.Join(driven(n), " "), marked: marked(n)}
	s.zone, _ = zoneOf(n)
	if c := condition(n, corev1.NodeReady); c != nil {
		s.known, s.ready, s.since = true, c.Status, c.LastTransitionTime.Time.UTC()
	}
	return s
}

// turns reports whether a change of a node may begin or end a full disruption.
func turns(before, now *corev1.Node) bool {
	return before == nil || now == nil || counts(before) != counts(now) || healthy(before) != healthy(now)
}

// disrupted adds the keys that depend on a full disruption, if fewer than few nodes are
// healthy: all zones, and the nodes whose pods are evicted.
func disrupted(s reconcile.Snapshot, add func(events.Key)) {
	nodes := reconcile.List(s, kinds.Nodes, "")
	if atLeast(few, nodes) {
		return
	}
	for _, n := range nodes {
		zone, _ := zoneOf(n)
		if add(zone); len(driven(n)) > 0 {
			add(events.Key{Name: n.Name})
		}
	}
}

// few is the number of healthy nodes from which one more or less cannot matter. It is more
// than 1, because several nodes may have become healthy since the last turn.
const few = 8

// keysOfPod maps a ready pod to its node if that is unknown.
func keysOfPod(s reconcile.Snapshot, _, now reconcile.Object) []events.Key {
	p, ok := now.Object.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" || !pod.Ready(p) {
		return nil
	}
	if n, ok := reconcile.Get(s, kinds.Nodes, "", p.Spec.NodeName); !ok || !unknown(n) {
		return nil
	}
	return []events.Key{{Name: p.Spec.NodeName}}
}
