package shell

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
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

// tape is a bus with one stream.
type tape struct {
	bus.Bus
	held map[uint64]string // subjects
}

func (t tape) At(_ context.Context, _ string, at uint64) (events.Message, bool, error) {
	subject, ok := t.held[at]
	return events.Message{Subject: subject, Sequence: at}, ok, nil
}

// What a stream has lost is told by its end, its birth, or the place of a message
// that was there; what it has dropped by its age is not lost.
func TestLossesAreTold(t *testing.T) {
	whole := map[uint64]string{3: "a", 4: "b", 5: "c"}
	for name, tc := range map[string]struct {
		state bus.State
		held  map[uint64]string
		lost  bool
	}{
		"nothing":        {bus.State{First: 3, Last: 5, Created: epoch}, whole, false},
		"growth":         {bus.State{First: 3, Last: 9, Created: epoch}, whole, false},
		"the end":        {bus.State{First: 3, Last: 4, Created: epoch}, whole, true},
		"everything":     {bus.State{First: 1, Last: 0, Created: epoch}, nil, true},
		"made anew":      {bus.State{First: 3, Last: 5, Created: epoch.Add(time.Hour)}, whole, true},
		"in its place":   {bus.State{First: 3, Last: 9, Created: epoch}, map[uint64]string{5: "x"}, true},
		"a hole":         {bus.State{First: 3, Last: 9, Created: epoch}, map[uint64]string{6: "x"}, true},
		"dropped by age": {bus.State{First: 6, Last: 9, Created: epoch}, map[uint64]string{6: "x"}, false},
		"empty by age":   {bus.State{First: 6, Last: 5, Created: epoch}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger("toy")
			stream := subject.TurnStream("toy")
			l.saw(stream, 5, "c")
			l.saw(stream, 4, "b") // heard later
			l.note(stream, bus.State{First: 3, Last: 5, Created: epoch}, false)
			lost, err := loss(t.Context(), tape{held: tc.held}, stream, l.of(stream), tc.state)
			if err != nil || (lost != nil) != tc.lost {
				t.Errorf("lost: %v (%v)", lost, err)
			}
		})
	}
}

// A loss is reported once: after it nothing older is known.
func TestALossIsToldOnce(t *testing.T) {
	l, stream := newLedger("toy"), subject.TurnStream("toy")
	l.saw(stream, 5, "c")
	now := bus.State{First: 1, Last: 2, Created: epoch}
	l.note(stream, now, true)
	if lost, err := loss(t.Context(), tape{}, stream, l.of(stream), now); err != nil || lost != nil {
		t.Errorf("lost again: %v (%v)", lost, err)
	}
}

// What a recall found that began before a loss may be lost by now, and one half of it may be
// of before, and the other of after: the key is recalled once more before anything is decided,
// and its turn is stored behind what is there then.
func TestARecallFromBeforeTheLossDoesNotCount(t *testing.T) {
	before := Past{Sequence: 9, Turn: &events.Turn{}, Outcome: &events.Outcome{Key: web, Lane: events.Act, Turn: 9}}
	after := Past{Sequence: 3, Turn: &events.Turn{}, Outcome: &events.Outcome{Key: web, Lane: events.Act, Turn: 3}}
	lost := map[string]func(o *office){
		"a stream of turns":    func(o *office) { o.desk.Lost(subject.TurnStream("toy")) },
		"a stream of outcomes": func(o *office) { o.desk.Lost(subject.OutcomeStream("toy")) },
		"perhaps either":       func(o *office) { o.desk.Doubt() },
	}
	for name, lose := range lost {
		for answered := range 3 { // how much of the recall came before
			o := open(t, Settings{})
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			if got := o.takeRecalls(); len(got) != 2 {
				t.Fatalf("recalls are %v", got)
			}
			answers := []func(){
				func() { o.desk.Recalled(web, events.Act, before, nil) },
				func() { o.desk.Recalled(web, events.Tell, Past{}, nil) },
			}
			for _, answer := range answers[:answered] {
				answer()
			}
			lose(o)
			for _, answer := range answers[answered:] {
				answer()
			}
			o.run()
			o.none()
			o.pass(time.Second)
			o.recalled(after, Past{})
			if turn := o.take(events.Act); turn.expect != 3 {
				t.Errorf("%s is lost after %d answers: stored behind %d, want 3", name, answered, turn.expect)
			}
		}
	}
}
