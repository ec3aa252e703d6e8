package nodeipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	// config has seven blocks of IPv4 that are free of Services, and eight of IPv6.
	config = Config{
		Cluster:  []Range{{"10.0.0.0/21", 24}, {"fd00:1::/61", 64}},
		Services: []string{"10.0.3.0/26", "fd00:2::/112"},
	}
	controller = New(config)
	now        = reconciletest.Now
)

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), now, reconciletest.Content(20, applied),
		reconciletest.Law[View]{Name: "disjoint", Holds: disjoint}, reconciletest.Law[View]{Name: "complete", Holds: complete},
		reconciletest.Law[View]{Name: "outspoken", Holds: outspoken}, reconciletest.Law[View]{Name: "mindful", Holds: mindful},
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			v.Nodes = rapid.Permutation(v.Nodes).Draw(t, "nodes")
			return v
		}))
}

// anyView returns some nodes, of which a few have ranges, and some memory of them.
func anyView(t *rapid.T) (v View) {
	ranges := rapid.SampledFrom([][]string{nil, nil, nil, {"10.0.0.0/24", "fd00:1::/64"}, {"10.0.1.0/24"}, {"10.0.4.0/22", "fd00:1:0:4::/62"}, {"10.0.2.128/25"}, {"172.16.0.0/24"}, {"bad"}})
	offer := rapid.SampledFrom([][]string{{"10.0.0.0/24", "fd00:1::/64"}, {"10.0.1.0/24", "fd00:1:0:2::/64"}, {"10.0.2.0/24"}, {"10.0.3.0/24", "fd00:1:0:3::/64"}, {"10.0.5.0/25", "fd00:1:0:7::/64"}})
	for i := range rapid.IntRange(0, 10).Draw(t, "nodes") {
		n := node(fmt.Sprint("n", i), ranges.Draw(t, "ranges")...)
		n.Created = now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Hour)
		n.Deleted = rapid.IntRange(0, 9).Draw(t, "deleted") == 0
		v.Nodes = append(v.Nodes, n)
		if rapid.IntRange(0, 3).Draw(t, "told") == 0 {
			v.Told.Nodes = append(v.Told.Nodes, n.UID)
		}
		if rapid.IntRange(0, 5).Draw(t, "offered") == 0 {
			v.Memory.Kept = append(v.Memory.Kept, Offer{n.UID, offer.Draw(t, "offer")})
		}
	}
	if len(v.Told.Nodes) > 0 {
		v.Told.Since = now.Add(-time.Duration(rapid.IntRange(0, 1200).Draw(t, "told for")) * time.Second)
	}
	v.Memory.Last = rapid.SampledFrom([][]string{nil, {"10.0.1.0/24", "fd00:1::/64"}, {"10.0.7.0/24", "fd00:1:0:7::/64"}, {"172.16.0.0/24", "x"}}).Draw(t, "last")
	return v
}

func node(name string, ranges ...string) Node {
	return Node{Name: name, UID: types.UID("uid-" + name), Ranges: ranges}
}

// given returns the ranges that a decision gives, by node name.
func given(d reconcile.Decision) map[string][]string {
	all := map[string][]string{}
	for _, c := range d.Commands {
		if c.Verb != events.VerbPatch {
			continue
		}
		var body query.RangedBody
		if err := json.Unmarshal(c.Body, &body); err != nil {
			panic(err)
		}
		all[c.Name] = body.Spec.PodCIDRs
	}
	return all
}

// remembered returns the view with the notes of a decision.
func remembered(v View, d reconcile.Decision) View {
	for _, c := range d.Commands {
		var err error
		switch {
		case len(c.Note) == 0:
		case c.Verb == events.VerbRecord:
			v.Told = Told{}
			err = json.Unmarshal(c.Note, &v.Told)
		default:
			v.Memory = Memory{}
			err = json.Unmarshal(c.Note, &v.Memory)
		}
		if err != nil {
			panic(err)
		}
	}
	return v
}

// applied returns the view after a decision was carried out.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	v = remembered(v, d)
	v.Nodes = slices.Clone(v.Nodes)
	for i := range v.Nodes {
		if ranges, ok := given(d)[v.Nodes[i].Name]; ok {
			v.Nodes[i].Ranges = ranges
		}
	}
	return v
}

// disjoint: the ranges that a node is given are part of the cluster's, and overlap neither with
// ranges that another node has, is given or is offered, nor with those of Services.
func disjoint(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	var others []query.Ranged
	for _, n := range v.Nodes {
		others = append(others, query.Ranged{Name: n.Name, Ranges: n.Ranges})
		for _, o := range v.Memory.Kept {
			if o.UID == n.UID && len(n.Ranges) == 0 {
				others = append(others, query.Ranged{Name: n.Name, Ranges: o.Ranges})
			}
		}
	}
	others = append(others, query.Ranged{Ranges: config.Services})
	for name, ranges := range given(c.Decide(v, now)) {
		for i, r := range prefixes(ranges) {
			if of := netip.MustParsePrefix(config.Cluster[i].CIDR); !of.Contains(r.Addr()) || r.Bits() != config.Cluster[i].Mask {
				return fmt.Errorf("%s is given %v, which is no part of %v", name, r, of)
			}
		}
		for _, o := range others {
			kept := slices.ContainsFunc(v.Memory.Kept, func(k Offer) bool { return string(k.UID) == "uid-"+name && slices.Equal(k.Ranges, ranges) })
			if which, some := o.Overlaps(prefixes(ranges)); some && o.Name != name && !(kept && len(o.Ranges) > 0 && isOffer(v, o)) {
				return fmt.Errorf("%s is given %v, of which %q has a part: %v", name, ranges, o.Name, which)
			}
		}
		others = append(others, query.Ranged{Name: name, Ranges: ranges})
	}
	return nil
}

// isOffer reports whether ranges are an offer to a node, and not what it has: no turn of this
// controller offers one range to two nodes.
func isOffer(v View, o query.Ranged) bool {
	return slices.ContainsFunc(v.Memory.Kept, func(k Offer) bool { return slices.Equal(k.Ranges, o.Ranges) })
}

// complete: only a node that has no ranges and is not being deleted gets ranges: one of each
// cluster range, under the condition that no other node has it.
func complete(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	for name, ranges := range given(d) {
		at := slices.IndexFunc(v.Nodes, func(n Node) bool { return n.Name == name })
		if n := v.Nodes[at]; len(n.Ranges) > 0 || n.Deleted {
			return fmt.Errorf("%s is given ranges, has %v, deleted: %t", name, n.Ranges, n.Deleted)
		}
		if len(ranges) != len(config.Cluster) {
			return fmt.Errorf("%s is given %v", name, ranges)
		}
	}
	for _, command := range d.Commands {
		if command.Verb == events.VerbPatch && !command.If.Unshared {
			return errors.New("a range is given without a look whether another node has it")
		}
	}
	return nil
}

// mindful: a turn that gives ranges notes them, and all offers to nodes that have no ranges yet.
func mindful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	gives := given(d)
	if len(gives) == 0 {
		return nil
	}
	kept := remembered(v, d).Memory.Kept
	noted := func(uid types.UID, ranges []string) bool {
		return slices.ContainsFunc(kept, func(o Offer) bool { return o.UID == uid && slices.Equal(o.Ranges, ranges) })
	}
	for _, n := range v.Nodes {
		if ranges := gives[n.Name]; ranges != nil && !noted(n.UID, ranges) {
			return fmt.Errorf("%s is given %v, which is not noted", n.Name, ranges)
		}
		for _, o := range v.Memory.Kept {
			if o.UID == n.UID && len(n.Ranges) == 0 && !noted(o.UID, o.Ranges) {
				return fmt.Errorf("%s was offered %v, which is forgotten", n.Name, o.Ranges)
			}
		}
	}
	return nil
}

// outspoken: each node that gets no range has an Event, now or within the last 1,000 seconds.
func outspoken(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	told := map[string]bool{}
	for _, command := range d.Commands {
		if command.Verb == events.VerbRecord {
			told[command.OnApplied.About.Name] = true
		}
	}
	gets := given(d)
	fresh := slices.ContainsFunc(v.Nodes, func(n Node) bool {
		return gets[n.Name] != nil && !slices.ContainsFunc(v.Memory.Kept, func(o Offer) bool { return o.UID == n.UID })
	})
	for _, n := range v.Nodes {
		offered := slices.ContainsFunc(v.Memory.Kept, func(o Offer) bool { return o.UID == n.UID })
		waits := len(n.Ranges) == 0 && !n.Deleted && gets[n.Name] == nil && !(offered && fresh)
		before := slices.Contains(v.Told.Nodes, n.UID) && now.Before(v.Told.Since.Add(1000*time.Second))
		if told[n.Name] != (waits && !before) {
			return fmt.Errorf("%s gets no range: %t, was told of: %t, is told of: %t", n.Name, waits, before, told[n.Name])
		}
	}
	return nil
}

// Blocks are given in order, and a block that has become free comes last.
func TestInTurn(t *testing.T) {
	one := Config{Cluster: []Range{{"10.0.0.0/22", 24}}}
	c := New(one)
	v := View{}
	for i, want := range []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "10.0.0.0/24", "10.0.1.0/24"} {
		name := fmt.Sprint("n", i)
		v.Nodes = append(v.Nodes, node(name))
		d := c.Decide(v, now)
		if got := given(d)[name]; !slices.Equal(got, []string{want}) {
			t.Fatalf("%s gets %v, want %s", name, got, want)
		}
		v = applied(v, d, now)
		v.Nodes = slices.DeleteFunc(v.Nodes, func(n Node) bool { return n.Name == fmt.Sprint("n", i-1) })
	}
}

// A used prefix takes every block that it overlaps, whatever the lengths of both prefixes.
func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		cluster Range
		used    string
		next    string
		count   uint64
	}{
		{Range{"10.0.0.0/8", 24}, "10.0.0.0/24", "10.0.1.0/24", 1},
		{Range{"10.0.0.0/8", 24}, "10.0.0.0/16", "10.1.0.0/24", 256},
		{Range{"10.0.0.0/8", 24}, "10.0.0.128/25", "10.0.1.0/24", 1},
		{Range{"10.0.0.0/8", 24}, "11.0.0.0/24", "10.0.0.0/24", 0},
		{Range{"10.0.0.0/8", 24}, "fd00::/8", "10.0.0.0/24", 0},
		{Range{"10.0.0.0/24", 24}, "0.0.0.0/0", "", 1},
		{Range{"10.0.0.0/24", 32}, "10.0.0.0/31", "10.0.0.2/32", 2},
		{Range{"10.0.0.64/26", 28}, "10.0.0.64/28", "10.0.0.80/28", 1},
		{Range{"10.0.0.64/26", 28}, "010.000.0.64/28", "10.0.0.80/28", 1},
		{Range{"10.0.0.70/26", 28}, "10.0.0.0/24", "", 4},
		{Range{"2001:db8::/48", 64}, "2001:db8::/64", "2001:db8:0:1::/64", 1},
		{Range{"2001:db8::/60", 76}, "2001:db8::/62", "2001:db8:0:4::/76", 16384},
		{Range{"2001:db8::/120", 124}, "2001:db8::7", "2001:db8::/124", 0},
		{Range{"2001:db8::/120", 124}, "2001:db8::7/128", "2001:db8::10/124", 1},
	} {
		p, ok := newPool(c.cluster)
		if !ok {
			t.Fatalf("%v is no range", c.cluster)
		}
		p.mark(prefixes([]string{c.used}))
		r, _, some := p.next("")
		if some != (c.next != "") || some && r.String() != c.next || p.count() != c.count {
			t.Errorf("of %v without %s: %v (%t), %d used; want %s, %d", c.cluster, c.used, r, some, p.count(), c.next, c.count)
		}
		if some && !p.own(r) {
			t.Errorf("of %v without %s: %v is not its own", c.cluster, c.used, r)
		}
	}
}

// The spans of used blocks behave like a set of numbers.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := newPool(Range{"10.0.0.0/26", 31})
		set, last := map[uint64]bool{}, ""
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			first := uint64(rapid.IntRange(0, 31).Draw(t, "first"))
			s := span{first, first + uint64(rapid.IntRange(0, int(31-first)).Draw(t, "more"))/3}
			p.add(s)
			for i := s.first; i <= s.last; i++ {
				set[i] = true
			}
			if p.count() != uint64(len(set)) {
				t.Fatalf("%v: %d are used, want %d", p.used, p.count(), len(set))
			}
			for i := range p.blocks {
				if p.free(p.block(i)) == set[i] {
					t.Fatalf("%v: block %d is free: %t", p.used, i, set[i])
				}
			}
			r, tries, ok := p.next(last)
			if !ok {
				break
			}
			from := uint64(0)
			if last != "" {
				from = (p.index(netip.MustParsePrefix(last).Addr()) + 1) % p.blocks
			}
			want := from
			for set[want] {
				want = (want + 1) % p.blocks
			}
			if got := p.index(r.Addr()); got != want || tries != (want+p.blocks-from)%p.blocks {
				t.Fatalf("%v behind %q: %d after %d tries, want %d", p.used, last, got, tries, want)
			}
			last = r.String()
		}
	})
}

func TestWhatIsSeen(t *testing.T) {
	object := func(name string, edits ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(now)}}
		for _, edit := range edits {
			edit(n)
		}
		return n
	}
	has := func(ranges ...string) func(*corev1.Node) { return func(n *corev1.Node) { n.Spec.PodCIDRs = ranges } }
	deleted := func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }
	offers := Memory{Last: []string{"10.0.1.0/24"}, Kept: []Offer{{"uid-b", []string{"10.0.1.0/24"}}}}
	told := Told{Nodes: []types.UID{"uid-b"}, Since: now.Add(time.Minute)}
	world := reconciletest.NewWorld(kinds.Nodes.Kind).Put(kinds.Nodes.Kind, object("a", has("10.0.0.0/24")), object("b", deleted))
	remember := func(lane events.Lane, note any) {
		world.Remember(events.Outcome{Key: all, Lane: lane, At: now, Decided: now, Results: []events.Result{
			{Status: events.Refused}, {Status: events.Failed, Answer: &events.Answer{Note: reconcile.Body(note)}},
		}})
	}
	remember(events.LaneWrite, offers)
	remember(events.LaneStatus, told)
	v, ok := observe(world, all)
	told.Since = now // no later than it was decided
	want := View{Nodes: []Node{{Name: "a", UID: "uid-a", Created: now, Ranges: []string{"10.0.0.0/24"}}, {Name: "b", UID: "uid-b", Created: now, Deleted: true}}, Memory: offers, Told: told}
	if got, want := string(reconcile.Body(v)), string(reconcile.Body(want)); !ok || got != want {
		t.Errorf("it sees %s, %t\nwant   %s", got, ok, want)
	}
	if _, ok := observe(world, events.Key{Name: "a"}); ok {
		t.Error("a node has a turn of its own")
	}
	other := object("a")
	other.UID = "later"
	for what, c := range map[string]struct {
		was, now *corev1.Node
		turn     bool
	}{
		"it comes": {nil, object("a"), true}, "it goes": {object("a"), nil, true}, "it changes": {object("a"), object("a"), false},
		"it gets a range": {object("a"), object("a", has("10.0.0.0/24")), true}, "it is deleted": {object("a"), object("a", deleted), true},
		"another has its name": {object("a"), other, true},
	} {
		var was, is metav1.Object
		if c.was != nil {
			was = c.was
		}
		if c.now != nil {
			is = c.now
		}
		if got := world.Keys(controller, kinds.Nodes.Kind, was, is); (len(got) == 1 && got[0] == all) != c.turn || len(got) > 1 {
			t.Errorf("%s: the change asks for turns of %v", what, got)
		}
	}
}

// A node gets a block of each cluster range, or none: node b gets no IPv4 block, because the
// IPv6 range is full.
func TestNodesGetAllOrNone(t *testing.T) {
	c := New(Config{Cluster: []Range{{"10.0.0.0/22", 24}, {"fd00::/64", 64}}})
	v := View{Nodes: []Node{node("a"), node("b")}}
	d := c.Decide(v, now)
	v = applied(v, d, now)
	if got := given(d); len(got) != 1 || len(got["a"]) != 2 {
		t.Fatalf("the nodes get %v", got)
	}
	if len(d.Commands) != 2 || !strings.Contains(d.Commands[1].OnApplied.Message, "Node b status is now: CIDRNotAvailable") {
		t.Errorf("the second command is %+v, want an Event about b", d.Commands)
	}
	for _, f := range c.Decide(v, now).Figures {
		if want := map[string]float64{"10.0.0.0/22": 1.0 / 4, "fd00::/64": 1}[f.Labels[0]]; f.Metric == usage && f.Value != want {
			t.Errorf("of the range %s %g are used, want %g", f.Labels[0], f.Value, want)
		}
	}
}

// A turn gives ranges to at most batch nodes; the next one gives ranges to the next nodes.
func TestManyNodesGetRangesInBatches(t *testing.T) {
	wide := New(Config{Cluster: []Range{{"10.0.0.0/8", 24}}})
	var v View
	for i := range 2*batch + 1 {
		v.Nodes = append(v.Nodes, node(fmt.Sprintf("n%04d", i)))
	}
	all := map[string]string{}
	for turn, want := range []int{batch, batch, 1, 0} {
		d := wide.Decide(v, now)
		got := given(d)
		if len(got) != want {
			t.Fatalf("turn %d gives ranges to %d nodes, want %d", turn+1, len(got), want)
		}
		v = remembered(v, d)
		for i, n := range v.Nodes {
			ranges, some := got[n.Name]
			if !some {
				continue
			}
			if other, taken := all[ranges[0]]; taken {
				t.Fatalf("%s and %s have the range %s", other, n.Name, ranges[0])
			}
			all[ranges[0]] = n.Name
			v.Nodes[i].Ranges = ranges
		}
	}
}
