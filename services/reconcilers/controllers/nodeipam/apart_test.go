package nodeipam

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// cluster is an API server with nodes. Reconcilers see its history late, and the writers'
// requests arrive late.
type cluster struct {
	t       *rapid.T
	history []map[string]Node // the last one is the present
	seen    int               // how much of it the last turn had seen, with its own writes
	flights []flight          // requests of the writer that may still arrive
	memory  Memory
	made    int
	look    bool // the writer looks before it writes
	keep    bool // the memory of a turn is kept
}

// flight is a request to give a node ranges.
type flight struct {
	name   string
	uid    types.UID
	ranges []string
}

func (c *cluster) now() map[string]Node { return c.history[len(c.history)-1] }

// change adds the next state to the history.
func (c *cluster) change(change func(nodes map[string]Node)) {
	next := maps.Clone(c.now())
	change(next)
	c.history = append(c.history, next)
}

// come adds a node, which may have a range that no other node has, as far as can be known.
func (c *cluster) come() {
	c.made++
	n := node(fmt.Sprint("n", rapid.IntRange(0, 7).Draw(c.t, "name")))
	if _, there := c.now()[n.Name]; there {
		return
	}
	n.UID = types.UID(fmt.Sprint("uid-", c.made))
	if rapid.IntRange(0, 3).Draw(c.t, "with a range") == 0 {
		own := []string{fmt.Sprintf("10.0.%d.0/24", rapid.IntRange(0, 7).Draw(c.t, "range"))}
		if c.sharer(n.Name, own) == "" && !slices.ContainsFunc(c.flights, func(f flight) bool { return overlap(f.ranges, own) }) {
			n.Ranges = own
		}
	}
	c.change(func(nodes map[string]Node) { nodes[n.Name] = n })
}

func (c *cluster) leave() {
	if names := slices.Sorted(maps.Keys(c.now())); len(names) > 0 {
		c.change(func(nodes map[string]Node) { delete(nodes, rapid.SampledFrom(names).Draw(c.t, "leaves")) })
	}
}

// land carries out a request if the API server accepts it: the node has the uid of the request,
// and no other ranges. ok is true if the node has the ranges then.
func (c *cluster) land(f flight) (ok bool) {
	n, there := c.now()[f.name]
	if !there || n.UID != f.uid || len(n.Ranges) > 0 && !slices.Equal(n.Ranges, f.ranges) {
		return false
	}
	n.Ranges = f.ranges
	c.change(func(nodes map[string]Node) { nodes[f.name] = n })
	return true
}

func (c *cluster) arrive() {
	if len(c.flights) > 0 {
		at := rapid.IntRange(0, len(c.flights)-1).Draw(c.t, "arrives")
		c.land(c.flights[at])
	}
}

// sharer returns another node whose ranges overlap with ranges.
func (c *cluster) sharer(name string, ranges []string) string {
	for _, n := range c.now() {
		if n.Name != name && overlap(n.Ranges, ranges) {
			return n.Name
		}
	}
	return ""
}

func overlap(a, b []string) bool {
	_, some := query.Ranged{Ranges: a}.Overlaps(prefixes(b))
	return some
}

// turn lets a reconciler decide on a view that is no older than the last turn's, and a writer carry
// out the decision. A request may be done, lost for now, or done and repeated later.
func (c *cluster) turn() {
	c.seen = rapid.IntRange(c.seen, len(c.history)-1).Draw(c.t, "sees")
	v := View{Memory: c.memory}
	for _, n := range c.history[c.seen] {
		v.Nodes = append(v.Nodes, n)
	}
	slices.SortFunc(v.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	d := controllerOf(8).Decide(v, now)
	for i, command := range d.Commands {
		if command.Verb != events.VerbPatch {
			continue
		}
		if i == 0 && c.keep {
			c.memory = Memory{}
			if err := json.Unmarshal(command.Note, &c.memory); err != nil {
				c.t.Fatal(err)
			}
		}
		f := flight{command.Name, command.If.UID, given(reconcile.Decision{Commands: []events.Command{command}})[command.Name]}
		if c.look && command.If.Unshared && c.sharer(f.name, f.ranges) != "" {
			continue // refused
		}
		switch rapid.SampledFrom([]string{"done", "done twice", "lost"}).Draw(c.t, "becomes") {
		case "done twice": // by another writer, or after an answer that was lost
			c.flights = append(c.flights, f)
			fallthrough
		case "done":
			if c.land(f) {
				c.seen = len(c.history) - 1 // the fence: it has come back before the next turn
			}
		case "lost":
			c.flights = append(c.flights, f)
		}
	}
}

// controllerOf returns the controller of a cluster with some blocks of IPv4.
func controllerOf(blocks int) reconcile.Controller[View] {
	bits := 24
	for ; blocks > 1; blocks /= 2 {
		bits--
	}
	return New(Config{Cluster: []Range{{fmt.Sprintf("10.0.0.0/%d", bits), 24}}})
}

// shared returns two nodes whose ranges overlap, "" if there are none.
func (c *cluster) shared() string {
	for _, name := range slices.Sorted(maps.Keys(c.now())) {
		if other := c.sharer(name, c.now()[name].Ranges); other != "" {
			return name + " and " + other
		}
	}
	return ""
}

// collide lets nodes come and go, turns decide on late views, and requests arrive late.
func collide(t *rapid.T, look, keep bool) *cluster {
	c := &cluster{t: t, history: []map[string]Node{{}}, look: look, keep: keep}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		step := rapid.SampledFrom([]func(){c.come, c.come, c.leave, c.turn, c.turn, c.arrive}).Draw(t, "step")
		if step(); c.shared() != "" {
			break
		}
	}
	return c
}

// No two nodes ever share a range, however late views and requests are.
func TestNoTwoNodesEverHaveOneRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if c := collide(t, true, true); c.shared() != "" {
			t.Fatalf("%s share a range: %v", c.shared(), c.now())
		}
	})
}

// Without the writer's look, or without the offers that are kept, two nodes can share a range.
func TestWhatKeepsRangesApartIsNeeded(t *testing.T) {
	for what, c := range map[string]struct{ look, keep bool }{"the look": {false, true}, "what is kept": {true, false}} {
		found := false
		for seed := 0; seed < 3000 && !found; seed++ {
			example := rapid.Custom(func(t *rapid.T) bool { return collide(t, c.look, c.keep).shared() != "" })
			found = example.Example(seed)
		}
		if !found {
			t.Errorf("without %s no two nodes share a range", what)
		}
	}
}

// Without delays and losses every node gets a range, as long as there are free ones.
func TestEveryNodeGetsARange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := collide(t, true, true)
		for range 20 { // each view is the present, and nothing is lost
			c.seen = len(c.history) - 1
			v := View{Memory: c.memory}
			for _, n := range c.now() {
				v.Nodes = append(v.Nodes, n)
			}
			d := controllerOf(8).Decide(v, now)
			if len(given(d)) == 0 {
				break
			}
			v = applied(v, d, now)
			c.memory = v.Memory
			c.change(func(nodes map[string]Node) {
				for _, n := range v.Nodes {
					nodes[n.Name] = n
				}
			})
		}
		for _, n := range c.now() {
			if len(n.Ranges) == 0 && len(c.now()) <= 4 {
				t.Fatalf("%s has no range: %v, kept %v", n.Name, c.now(), c.memory.Kept)
			}
		}
		if c.shared() != "" {
			t.Fatalf("%s share a range: %v", c.shared(), c.now())
		}
	})
}
