package cache

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// moved knows the objects since a count as far as it remembers.
func TestWhatHasMovedSince(t *testing.T) {
	var m moved
	for _, at := range []string{"a", "b", "c"} {
		m.add(events.Delta{Ref: events.Ref{Name: at}}, 0)
	}
	for count, want := range map[uint64]int{0: 3, 1: 2, 3: 0} {
		if names, some := m.since(count); len(names) != want || !some {
			t.Errorf("since %d: %v, %t", count, names, some)
		}
	}
	if _, some := m.since(4); some {
		t.Error("since claims to know what is still to come")
	}
	if m.add(events.Delta{Ref: events.Ref{Name: "d"}, Epoch: 1}, 0); true {
		if _, some := m.since(3); some {
			t.Error("since claims to know what moved in a new epoch")
		}
	}
	m.names = m.names[1:]
	if _, some := m.since(0); some {
		t.Error("since claims to know what is not kept any more")
	}
}

// After a broken or damaged message the kind lacks something, until a census agrees.
func TestHistoryKnowsWhatIsMissing(t *testing.T) {
	h := NewHistory(0)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	lacking := func(position uint64) int {
		t.Helper()
		s, err := h.ViewAt(events.Position{"pods": position}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Incomplete)
	}
	fold := func(m events.Message) { h.Fold("pods", []Fact{Read(kinds.Pods.Kind, m)}) }
	fold(events.Seal(delta(kinds.Pods.Kind, events.Is, aPod("a", "", 1), 1)))
	broken := events.Seal(delta(kinds.Pods.Kind, events.Is, aPod("b", "", 2), 2))
	broken.Data = append([]byte("torn"), broken.Data...)
	fold(broken)
	if before, after := lacking(1), lacking(2); before != 0 || after != 1 {
		t.Errorf("before a damaged message %d kinds are lacking and after it %d, want 0 and 1", before, after)
	}
	var tally events.Tally
	for _, name := range []string{"a"} {
		d, err := events.DecodeDelta(events.Ref{Kind: "pods", Namespace: "default", Name: name}, delta(kinds.Pods.Kind, events.Is, aPod(name, "", 1), 1))
		if err != nil {
			t.Fatal(err)
		}
		tally.Fold(d)
	}
	mark := subject.Message(events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: "5", At: epoch, Census: tally.Census()})
	mark.Sequence = 3
	fold(events.Seal(mark))
	if at := []int{lacking(3), lacking(2), lacking(1)}; at[0] != 0 || at[1] != 1 || at[2] != 0 {
		t.Errorf("after a census %v kinds are lacking, want 0, 1, 0", at)
	}
}

// Following a kind again updates its description.
func TestAKindIsFollowedAsItIsDescribed(t *testing.T) {
	m := New()
	m.Register(toy().Describe())
	later := kinds.Pods.Kind
	later.Version = "v2"
	m.Follow(kinds.Pods.Kind)
	m.Fold(kinds.Pods.Name, []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("p", "", 1), 1)})
	m.Follow(later)
	m.View("toy", nil, func(s Snapshot) {
		if k, ok := s.Kind("pods"); !ok || k.Version != "v2" || len(s.List("pods", "")) != 1 {
			t.Errorf("the kind is %+v with %d objects, want v2 with 1", k, len(s.List("pods", "")))
		}
	})
}

// A History keeps a bounded number of steps, and shows every kept position correctly.
func TestHistoryReachesAsFarAsItMay(t *testing.T) {
	h := NewHistory(2)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	at := func(position uint64) (pods int, err error) {
		s, err := h.ViewAt(events.Position{"pods": position}, nil)
		if err != nil {
			return 0, err
		}
		return len(s.List("pods", "")), nil
	}
	for i := range uint64(9) {
		h.Fold("pods", []Fact{Read(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", i), "", int(i+1)), i+1))})
		from, head, ok := h.Known("pods")
		if !ok || head != i+1 || head-from > 3 || head > 2 && head-from < 2 {
			t.Fatalf("after %d messages the kind is known from %d to %d, want two or three versions", i+1, from, head)
		}
		for position := from; position <= head; position++ {
			if pods, err := at(position); err != nil || pods != int(position) {
				t.Errorf("at %d of %d there are %d pods, %v", position, head, pods, err)
			}
		}
		if from > 0 {
			if _, err := at(from - 1); err == nil || !strings.Contains(err.Error(), "further back than is remembered") {
				t.Errorf("at %d, before what is known, it is seen: %v", from-1, err)
			}
		}
	}
	if _, _, ok := h.Known("nodes"); ok {
		t.Error("a kind is known that never began")
	}
}

// A view includes for how long a kind has been watched.
func TestHistorySeesForHowLong(t *testing.T) {
	h := NewHistory(0)
	h.Begin(kinds.Leases.Kind, 0, nil, true)
	sights := []events.Sight{{Since: epoch, Until: epoch.Add(time.Second)}, {Since: epoch, Until: epoch.Add(time.Minute)}}
	for i, sight := range sights {
		m := subject.Message(events.Delta{Kind: kinds.Leases.Name, Op: events.Mark, ResourceVersion: "5", At: epoch, Sight: sight})
		m.Sequence = uint64(i + 1)
		h.Fold(kinds.Leases.Name, []Fact{Read(kinds.Leases.Kind, m)})
	}
	for _, position := range []uint64{2, 1, 2} {
		s, err := h.ViewAt(events.Position{kinds.Leases.Name: position}, nil)
		if err != nil || s.Sight(kinds.Leases.Name) != sights[position-1] {
			t.Errorf("at %d it is %v, %v", position, s.Sight(kinds.Leases.Name), err)
		}
	}
}

// Tombstones are kept for a while, not for ever.
func TestEndsAreForgotten(t *testing.T) {
	m := New()
	m.Register(toy().Describe())
	m.Follow(kinds.Pods.Kind)
	end := func(name string, at uint64, passed time.Duration) {
		message := delta(kinds.Pods.Kind, events.Gone, aPod(name, "web", int(at)), at)
		ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name}
		d, err := events.DecodeDelta(ref, message)
		if err != nil {
			t.Fatal(err)
		}
		d.At = epoch.Add(passed)
		again := subject.Message(d)
		again.Sequence = at
		m.Fold(kinds.Pods.Name, []events.Message{again})
	}
	end("a", 1, 0)
	end("b", 2, tombstoneAge)
	if n := len(m.kinds[kinds.Pods.Name].gone); n != 2 {
		t.Errorf("%d ends are remembered, want 2", n)
	}
	end("c", 3, tombstoneAge+time.Second)
	if n := len(m.kinds[kinds.Pods.Name].gone); n != 2 {
		t.Errorf("%d ends are remembered, want the last 2", n)
	}
}

// A message of another kind, or of a foreign subject, changes nothing.
func TestForeignMessagesTellNothing(t *testing.T) {
	own := delta(kinds.Pods.Kind, events.Is, aPod("p", "", 1), 7)
	other := delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""), 7)
	foreign := own
	foreign.Subject = "x"
	if f := read(kinds.Pods.Kind, own); f.delta.Ref.Name != "p" || f.sequence != 7 || f.object.None() {
		t.Errorf("the message of a pod is read as %+v", f)
	}
	for what, m := range map[string]events.Message{"of another kind": other, "of no one's": foreign} {
		if f := read(kinds.Pods.Kind, m); f.delta.Op != "" || f.sequence != 7 || !f.object.None() || f.damage != "" {
			t.Errorf("a message %s is read as %+v, want nothing", what, f)
		}
	}
}
