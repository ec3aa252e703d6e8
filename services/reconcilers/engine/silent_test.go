package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// speechless is an office of a toy that declares itself silent.
func speechless(t *testing.T) *office {
	o, silent := open(t, Settings{}), toy()
	silent.Silent = true
	o.memory.Register(silent.Describe())
	o.engine = New(silent, o.memory, o, Settings{}, o.now)
	return o
}

// The engine of a silent controller recalls no reports.
func TestTheReportsOfASilentControllerAreNotRecalled(t *testing.T) {
	o := speechless(t)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.LaneWrite}) {
		t.Fatalf("recalls are %v", got)
	}
	o.engine.Recalled(web, events.LaneWrite, Past{Sequence: 9, Turn: &events.Turn{}}, nil)
	o.run()
	o.none() // the outcome of turn 9 is to come
	o.outcome(events.LaneWrite, 9)
	if turn := o.take(events.LaneWrite); turn.expect != 9 {
		t.Errorf("the turn is stored after %d, want 9", turn.expect)
	}
	if got := o.takeRecalls(); len(got) > 0 {
		t.Errorf("the engine recalls %v once more, want nothing", got)
	}
}

// A silent controller that reports all the same breaks its promise.
func TestASilentControllerMayNotReport(t *testing.T) {
	o := speechless(t)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 1, "")) // one pod too many is in its status
	if got := o.engine.Tally().Broken; got != 1 {
		t.Errorf("the promise was broken %d times, want once", got)
	}
	if got := o.takeRecalls(); len(got) > 0 {
		t.Errorf("the engine recalls %v, want nothing", got)
	}
	o.none()
}
