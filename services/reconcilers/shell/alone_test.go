package shell

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestSlipsAreOfTheNewestMessageOfEachObject: as tickets of a state stream are.
func TestSlipsAreOfTheNewestMessageOfEachObject(t *testing.T) {
	pod := func(name string, at uint64) events.Message {
		m := delta(kinds.Pods.Kind, events.Is, aPod(name, "", int(at)), at)
		m.Time = epoch.Add(time.Duration(at) * time.Second)
		m.Header[events.HeaderTraceParent] = []string{name}
		return m
	}
	got := Slips([]events.Message{pod("a", 1), pod("b", 2), markAt(kinds.Pods.Kind, "2", 3), pod("a", 4)})
	slip := func(name string, at uint64) Slip {
		return Slip{
			ref:      events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name},
			sequence: at, trace: events.Trace{Parent: name}, at: epoch.Add(time.Duration(at) * time.Second),
		}
	}
	if diff := cmp.Diff([]Slip{slip("a", 4), slip("b", 2)}, got, cmp.AllowUnexported(Slip{})); diff != "" {
		t.Errorf("slips (-want +got):\n%s", diff)
	}
}

// TestWhoIsAloneWritesItsOwnTickets: for those whose turns the changes make, when the
// desks have been opened, and as long as there is nobody else.
func TestWhoIsAloneWritesItsOwnTickets(t *testing.T) {
	for name, tc := range map[string]struct {
		opened, alone, attends bool
		tickets                int
	}{
		"alone":                            {true, true, true, 1},
		"in company":                       {true, false, true, 0},
		"before it is known what there is": {false, true, true, 0},
		"of a kind that it only reads":     {true, true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			memory := NewMemory()
			memory.Register(toy().Describe())
			l := NewLoop(edges{}, toy(), memory, Settings{}, nil)
			f := &Follower{
				Bus: edges{state: shape{1, 1}}, Memory: memory, Kind: kinds.Pods.Kind, Loops: []*Loop{l},
				Alone: func() bool { return tc.alone }, opened: tc.opened,
			}
			if tc.attends {
				f.Attending = f.Loops
			}
			memory.Follow(f.Kind)
			l.Shut(kinds.ReplicaSets.Name) // what is asked waits
			if err := f.take(t.Context(), []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 1), 1)}); err != nil {
				t.Fatal(err)
			}
			l.drain()
			if got := l.desk.Tally().Hand; got != tc.tickets {
				t.Errorf("%d tickets in hand, want %d", got, tc.tickets)
			}
		})
	}
}
