package nodelifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// The label excludes a node from the health of its zone, but not from eviction.
func TestPodsAreEvictedWhereAllNodesAreExcluded(t *testing.T) {
	excluded := func(n *corev1.Node) { n.Labels = map[string]string{exclude: ""} }
	silent := tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)
	world := reconciletest.NewWorld().Put(kinds.Nodes.Kind,
		node("n1", is("True"), excluded), node("n2", is("True"), excluded), node("n3", is("Unknown"), excluded, silent))
	v, _ := controller.Observe(world, events.Key{Name: ":"})
	if d := controller.Decide(v, now); len(d.Commands) != 1 || d.Commands[0].Name != "n3" {
		t.Errorf("no pods are evicted: %s", d.Because)
	}
	world.Put(kinds.Nodes.Kind, node("n3", is("Unknown"), excluded, silent, tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)))
	v, _ = controller.Observe(world, events.Key{Name: "n3"})
	if d := v.mark(now); len(d.Commands) > 0 {
		t.Errorf("the eviction is cancelled: %s", d.Because)
	}
}

// A single node that becomes excluded, or is no longer, can decide for all zones, so all have a turn.
func TestAnExclusionIsHeardOfByAllZones(t *testing.T) {
	excluded := node("n1", in("", "a"), is("False"))
	excluded.Labels[exclude] = ""
	world := reconciletest.NewWorld().Put(kinds.Nodes.Kind, node("n1", in("", "a"), is("False")), node("n2", in("", "b"), is("False")))
	if got := world.Keys(controller, kinds.Nodes.Kind, excluded, node("n1", in("", "a"), is("False"))); !slices.Contains(got, events.Key{Name: ":b"}) {
		t.Errorf("turns of %v", got)
	}
}

// cluster is an API server with nodes, and the pending turns.
type cluster struct {
	t     *testing.T
	world *reconciletest.World
	now   time.Time
	due   []events.Key
	wakes map[events.Key]time.Time
	wrote int

	conflicts int
	evicted   []time.Time
}

func (c *cluster) put(n *corev1.Node) {
	var was metav1.Object
	if old, ok := c.world.Get(kinds.Nodes.Name, "", n.Name); ok {
		was = old
	}
	c.wrote++
	n.ResourceVersion = strconv.Itoa(c.wrote)
	c.world.Put(kinds.Nodes.Kind, n)
	c.due = append(c.due, c.world.Keys(controller, kinds.Nodes.Kind, was, n)...)
}

// step decides for all due keys on one view, as replicas do, and then carries out the
// decisions, in an order given by the last bits of a number.
func (c *cluster) step(order int) {
	slices.SortFunc(c.due, func(a, b events.Key) int { return cmp.Compare(a.Name, b.Name) })
	due := slices.Compact(c.due)
	c.due = nil
	type work struct {
		key      events.Key
		commands []events.Command
	}
	var all []work
	for _, key := range due {
		v, ok := controller.Observe(c.world, key)
		if !ok {
			continue
		}
		d := controller.Decide(v, c.now)
		c.wakes[key] = d.WakeAt
		all = append(all, work{key, slices.DeleteFunc(d.Commands, func(x events.Command) bool { return x.Lane() != events.LaneWrite })})
	}
	if order%2 == 1 {
		slices.Reverse(all)
	}
	for _, w := range all {
		for _, command := range w.commands {
			c.carry(w.key, command)
		}
	}
}

func (c *cluster) carry(key events.Key, command events.Command) {
	obj, _ := c.world.Get(kinds.Nodes.Name, "", command.Name)
	n, result := obj.(*corev1.Node), events.Result{Ref: command.Ref(), Status: events.Applied}
	if n.ResourceVersion != command.If.ResourceVersion {
		result.Status = events.Conflict
		c.conflicts++
		c.due = append(c.due, key)
	} else {
		after := merged(n, command)
		if len(driven(after)) > len(driven(n)) {
			c.evicted = append(c.evicted, c.now)
		}
		c.put(after)
	}
	c.world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, At: c.now, UID: n.UID, Results: []events.Result{result}})
}

// Many nodes fall silent at one moment. A node's taints and its eviction are the work of two
// keys on one list; they never conflict, and no slot of the rate is lost.
func TestManySilentNodesAreEvictedAtTheRate(t *testing.T) {
	for order := range 2 {
		c := &cluster{t: t, world: reconciletest.NewWorld(), now: now, wakes: map[events.Key]time.Time{}}
		for i := range 12 {
			c.put(node(fmt.Sprint("n", 10+i), in("", "z"), is("True")))
		}
		for len(c.due) > 0 {
			c.step(order)
		}
		for i := range 6 {
			c.put(node(fmt.Sprint("n", 10+i), in("", "z"), says(corev1.NodeReady, "Unknown", c.now)))
		}
		for range 600 {
			c.step(order)
			for key, at := range c.wakes {
				if !at.IsZero() && !at.After(c.now) {
					c.due = append(c.due, key)
				}
			}
			c.now = c.now.Add(100 * time.Millisecond)
		}
		if c.conflicts > 0 {
			t.Errorf("order %d: %d writes of its own conflict", order, c.conflicts)
		}
		if len(c.evicted) != 6 {
			t.Fatalf("order %d: pods of %d nodes are evicted in a minute", order, len(c.evicted))
		}
		for i := range 5 {
			if gap := c.evicted[i+1].Sub(c.evicted[i]); gap < 10*time.Second || gap > 11*time.Second {
				t.Errorf("order %d: %v between nodes %d and %d", order, gap, i, i+1)
			}
		}
		if first := c.evicted[0].Sub(now); first > time.Second {
			t.Errorf("order %d: the first is evicted after %v", order, first)
		}
	}
}

// A conflict with another writer uses no slot: the same node is tried again at once.
func TestAConflictUsesNoSlot(t *testing.T) {
	for _, c := range []struct {
		result events.Result
		want   string
		waits  bool
	}{
		{events.Result{Status: events.Applied}, "", true},
		{events.Result{Status: events.Conflict}, "n1", false},
		{events.Result{Status: events.Absent}, "n1", false},
		{events.Result{Status: events.Refused, Reason: "Stale"}, "n1", false},
		{events.Result{Status: events.Conflict, Unsure: true}, "", true},
		{events.Result{Status: events.Refused}, "", true},
		{events.Result{Status: events.Failed}, "", true},
	} {
		c.result.Ref = events.Ref{Kind: kinds.Nodes.Name, Name: "n1"}
		down := func(name string) *corev1.Node {
			return node(name, is("False"), tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule))
		}
		world := reconciletest.NewWorld().Put(kinds.Nodes.Kind, down("n1"), down("n2"), node("n3", is("True"))).
			Hear(kinds.Nodes.Name, "", "n1", now).Hear(kinds.Nodes.Name, "", "n2", now).Hear(kinds.Nodes.Name, "", "n3", now).
			Remember(events.Outcome{Key: events.Key{Name: ":"}, Lane: events.LaneWrite, UID: types.UID("u"), At: ago(time.Second), Results: []events.Result{c.result}})
		v, _ := controller.Observe(world, events.Key{Name: ":"})
		d := controller.Decide(v, now)
		switch {
		case c.waits && (len(d.Commands) > 0 || !d.WakeAt.Equal(now.Add(9*time.Second))):
			t.Errorf("%v: it does not wait: %s, %v", c.result, d.Because, d.WakeAt)
		case !c.waits && (len(d.Commands) != 1 || d.Commands[0].Name != c.want):
			t.Errorf("%v: %s (%d commands)", c.result, d.Because, len(d.Commands))
		}
	}
}
