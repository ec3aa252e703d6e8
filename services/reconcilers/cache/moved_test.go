package cache

import (
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// TestWhoseDeltasWereFolded: since knows the objects while their deltas are remembered, and
// none of the deltas concerned every object.
func TestWhoseDeltasWereFolded(t *testing.T) {
	of := func(name string, epoch uint64) events.Delta {
		return events.Delta{Ref: events.Ref{Namespace: "default", Name: name}, Epoch: epoch}
	}
	var m moved
	for i := range 5 * movedMost {
		m.add(of(strconv.Itoa(i), 1), 1)
	}
	if names, some := m.since(5*movedMost - 2); !some || !slices.Equal(names, []types.NamespacedName{{Namespace: "default", Name: "1278"}, {Namespace: "default", Name: "1279"}}) {
		t.Errorf("the last two are %v, %t", names, some)
	}
	if names, some := m.since(5 * movedMost); !some || len(names) != 0 {
		t.Errorf("after the last message %v moved, %t; want nothing, known", names, some)
	}
	if names, some := m.since(4 * movedMost); !some || len(names) != movedMost {
		t.Errorf("%d names of the last %d are known, %t", len(names), movedMost, some)
	}
	if len(m.names) > movedTwice {
		t.Errorf("%d names are kept, more than the bound", len(m.names))
	}
	for what, count := range map[string]uint64{"long ago": 1, "of a memory that was forgotten": 6 * movedMost} {
		if _, some := m.since(count); some {
			t.Errorf("%s: since claims to know what moved", what)
		}
	}
	for what, d := range map[string]events.Delta{"a mark": {Op: events.Mark, Epoch: 1}, "a new epoch": of("a", 2)} {
		m.add(d, 1)
		if _, some := m.since(m.count - 1); some {
			t.Errorf("%s: since claims that one object moved", what)
		}
		m.add(of("b", 1), 1)
		if names, some := m.since(m.count - 1); !some || len(names) != 1 {
			t.Errorf("behind %s: %v, %t", what, names, some)
		}
	}
	if movedMost != 256 || movedTwice != 512 {
		t.Errorf("remembered are %d to %d", movedMost, movedTwice)
	}
}
