package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// cameOf is the outcome of a turn of the write lane that was decided at a moment.
func cameOf(turn uint64, decided time.Time, results ...events.Result) events.Outcome {
	return events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: turn, Decided: decided, Results: results}
}

// came passes such an outcome to the engine.
func (o *office) came(turn uint64, decided time.Time, results ...events.Result) {
	o.heard(cameOf(turn, decided, results...))
}

var (
	earlier = epoch.Add(-time.Minute)
	nothing = events.Result{Status: events.Unchanged}
)

// The outcome of a turn that was lost with the end of its stream may come late, or a second
// time. It does not settle the turn that has taken its sequence; the engine awaits its effects.
func TestTheOutcomeOfALostTurnSettlesNoOther(t *testing.T) {
	o := begun(t, Settings{Pace: -1})
	o.came(10, earlier, created("p", "5"))
	o.none()
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	o.recalled(underWay(10), Past{})
	o.none() // turn 10 has no outcome
	o.came(10, epoch, created("q", "6"))
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("q", "web", 6))
	o.run()
	o.take(events.LaneWrite)
}

// That outcome may arrive before the engine knows the sequence of its own turn.
func TestAnOutcomeAheadOfTheAnswerIsOfThatTurn(t *testing.T) {
	for _, lost := range []bool{false, true} {
		o := open(t, Settings{Pace: -1})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
		o.recalled(Past{}, Past{})
		decided := o.take(events.LaneWrite).Now
		if lost {
			decided = earlier
		}
		o.came(10, decided, nothing)
		o.answer(events.LaneWrite, 10, nil)
		if !lost {
			o.take(events.LaneWrite)
			continue
		}
		o.none()
		o.recalled(underWay(10), Past{})
		o.none()
	}
}

// An engine that has heard the outcome of a turn recalls another turn at that sequence.
func TestARecalledTurnIsNotTheOneThatWasHeard(t *testing.T) {
	o := begun(t, Settings{Pace: -1})
	o.came(10, epoch, nothing)
	if turn := o.take(events.LaneWrite); turn.expect != 10 {
		t.Fatalf("stored behind %d, want 10", turn.expect)
	}
	o.answer(events.LaneWrite, 0, bus.ErrOvertaken)
	another := underWay(10)
	another.Turn.Now = epoch.Add(time.Second)
	o.recalled(another, Past{})
	o.none() // it has no outcome
	o.came(10, another.Turn.Now, nothing)
	o.pass(time.Second) // it changed nothing
	o.take(events.LaneWrite)
}

// The outcome of a turn behind the recalled one is of a turn that was stored meanwhile, or that
// was lost: another recall tells.
func TestWhatIsHeardDuringARecallIsLookedInto(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.came(12, earlier, nothing)
	o.recalled(underWay(10), Past{})
	o.none()
	o.pass(time.Second)
	o.recalled(underWay(10), Past{})
	o.none()
	o.came(10, epoch, nothing)
	o.take(events.LaneWrite)
}
