package shell

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The outcomes of turns that are long settled are lost. Even a key that wants
// nothing is recalled, and its turn repeated, so that the record has what became of
// it.
func TestLostOutcomesAreFoundAgain(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.Act, 10, born("p", "5"))
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 6, 1, 1, ""))
	o.run()
	o.none()
	o.desk.Lost(subject.OutcomeStream("toy"))
	o.run()
	o.recalled(underWay(10), Past{})
	o.none()
	o.attend(12 * time.Second)
	o.recalled(underWay(10), Past{})
	if again := o.take(events.Act); again.Repeats != 10 {
		t.Errorf("stored %+v", again)
	}
}

// The turn of a key whose ticket is long answered is lost.
func TestALostTurnIsMadeAgain(t *testing.T) {
	o := begun(t, Settings{})
	o.desk.Lost(subject.TurnStream("toy"))
	o.run()
	o.recalled(Past{}, Past{})
	if turn := o.take(events.Act); turn.expect != 0 || turn.Repeats != 0 {
		t.Errorf("stored %+v", turn)
	}
}

func TestLostWakesAreSetAgain(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "wakes"))
	o.desk.Scheduled(web, o.wakes[0].At, nil)
	o.desk.Lost(subject.WakeStream)
	o.run()
	if len(o.wakes) != 2 || !o.wakes[1].At.Equal(o.wakes[0].At) {
		t.Errorf("the wakes are %+v", o.wakes)
	}
}

// What a stream has lost is told by its end, its birth, or the place of a message
// that was there; what it has dropped by its age is not lost.
func TestLossesAreTold(t *testing.T) {
	const controller = "toy"
	stream := subject.TurnStream(controller)
	type scene struct {
		bus *memory.Bus
		put func(names ...string)
		w   *witness
	}
	for name, tc := range map[string]struct {
		happens func(*testing.T, scene)
		lost    bool
	}{
		"nothing":  {func(*testing.T, scene) {}, false},
		"growth":   {func(_ *testing.T, s scene) { s.put("d", "e") }, false},
		"the end":  {func(t *testing.T, s scene) { truncate(t, s.bus, stream, 1) }, true},
		"replaced": {func(t *testing.T, s scene) { truncate(t, s.bus, stream, 2); s.put("x", "y") }, true},
		"anew":     {func(_ *testing.T, s scene) { s.w.created = s.w.created.Add(-time.Hour) }, true},
		"expired":  {func(_ *testing.T, s scene) { s.w.sequence = 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene{bus: memory.New(memory.Options{}), w: &witness{}}
			if err := s.bus.EnsureController(t.Context(), controller); err != nil {
				t.Fatal(err)
			}
			l := newLedger(controller)
			s.put = func(names ...string) {
				for _, n := range names {
					at := subject.Turn(controller, events.Act, events.Key{Namespace: "ns", Name: n})
					sequence, err := s.bus.Store(t.Context(), events.Message{Subject: at, Data: []byte("{}")}, 0)
					if err != nil {
						t.Fatal(err)
					}
					l.saw(stream, sequence, at)
				}
			}
			s.put("a", "b", "c")
			state, err := s.bus.StreamState(t.Context(), stream)
			if err != nil {
				t.Fatal(err)
			}
			l.note(stream, state, false)
			*s.w = l.of(stream)
			tc.happens(t, s)
			state, err = s.bus.StreamState(t.Context(), stream)
			if err != nil {
				t.Fatal(err)
			}
			lost, err := loss(context.Background(), s.bus, stream, *s.w, state)
			if err != nil || (lost != nil) != tc.lost {
				t.Errorf("lost: %v (%v)", lost, err)
			}
		})
	}
}

func truncate(t *testing.T, b *memory.Bus, stream string, last uint64) {
	t.Helper()
	if err := b.Truncate(stream, last); err != nil {
		t.Fatal(err)
	}
}
