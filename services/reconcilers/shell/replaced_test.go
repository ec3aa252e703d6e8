package shell

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
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

// The newest outcome of a lane may answer a turn that its stream has lost. If the last turn
// took that sequence, the outcome says nothing about it. If the lost turn was behind the last
// turn and decided after it, the last turn was settled before.
func TestARecallTellsWhatALostTurnSettled(t *testing.T) {
	later := epoch.Add(time.Second)
	for name, tc := range map[string]struct {
		o      events.Outcome
		stored time.Duration // after the turn
		want   uint64
	}{
		"its own":                   {cameOf(10, epoch), 0, 10},
		"of one lost in its place":  {cameOf(10, earlier), 0, 9},
		"of an older version's":     {cameOf(10, time.Time{}), 0, 10},
		"stored long before it":     {cameOf(12, later), -time.Minute, 9},
		"of one lost behind it":     {cameOf(12, later), time.Second, 12},
		"of one lost before it was": {cameOf(12, earlier), 0, 9},
		"of the one before":         {cameOf(8, earlier), 0, 8},
	} {
		b := &library{turns: map[string]events.Message{}}
		put := func(on string, body any, sequence uint64, at time.Time) {
			m, err := events.EncodeJSON(body, events.Trace{})
			if err != nil {
				t.Fatal(err)
			}
			m.Sequence, m.Time = sequence, at
			b.turns[on] = m
		}
		put(subject.Turn("toy", events.LaneWrite, web), events.Turn{Controller: "toy", Key: web, Lane: events.LaneWrite, Now: epoch}, 10, epoch)
		put(subject.Outcome("toy", events.LaneWrite, web), tc.o, 1, epoch.Add(tc.stored))
		pasts, err := recall(t.Context(), b, "toy", []laneOf{{web, events.LaneWrite}}, Signatures{})
		if err != nil {
			t.Fatal(err)
		}
		if p := pasts[0]; p.Sequence != 10 || p.Outcome == nil || p.Outcome.Turn != tc.want {
			t.Errorf("the newest outcome is %s: turn %d with %+v, want turn 10 with an outcome of %d", name, p.Sequence, p.Outcome, tc.want)
		}
	}
}
