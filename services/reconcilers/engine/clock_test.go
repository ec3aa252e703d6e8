package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// An outcome that another clock dates an hour ahead counts from the moment at which the engine
// heard it, and keeps that moment. The next turn records the moment, for a replay that decides
// it again.
func TestAnOutcomeIsNoLaterThanItWasHeard(t *testing.T) {
	for _, how := range []string{"as it comes", "recalled"} {
		ahead := epoch.Add(time.Hour)
		failed := events.Result{Status: events.Failed, Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "p"}}
		told := events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 10, At: ahead.Add(time.Second), Results: []events.Result{failed}}
		var o *office
		if how == "recalled" {
			told.Decided = ahead
			o = open(t, Settings{Pace: -1})
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			o.recalled(Past{Sequence: 10, Outcome: &told, Turn: &events.Turn{Now: ahead}}, Past{})
		} else {
			o = begun(t, Settings{Pace: -1})
			o.engine.Outcome(1, told)
		}
		o.engine.described.Remembers = true
		heard := o.now
		o.pass(500 * time.Millisecond) // less than the backoff
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
		last, ok := o.engine.last(web, events.LaneWrite)
		if want := told.KnownBy(heard); !ok || !last.At.Equal(heard) || !last.Decided.Equal(want.Decided) {
			t.Errorf("%s: the outcome is from %v and was decided at %v, want from when it was heard, %v", how, last.At, last.Decided, heard)
		}
		turn := o.take(events.LaneWrite)
		if said := turn.Heard[events.LaneWrite]; !said.At.Equal(told.At) || !said.By.Equal(heard) {
			t.Errorf("%s: the next turn says that it heard of %+v", how, said)
		}
	}
}

// An outcome with a correct date keeps its date, and the turn records no moment for it.
func TestAnOutcomeOfBeforeIsAsItWas(t *testing.T) {
	o := begun(t, Settings{Pace: -1})
	o.engine.described.Remembers = true
	told := events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 10, At: o.now.Add(time.Second), Results: []events.Result{{Status: events.Failed}}}
	o.engine.Outcome(1, told)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	if last, _ := o.engine.last(web, events.LaneWrite); !last.At.Equal(told.At) {
		t.Errorf("the outcome is from %v, want %v", last.At, told.At)
	}
	if said := o.take(events.LaneWrite).Heard[events.LaneWrite]; !said.By.IsZero() {
		t.Errorf("the next turn says that it heard of %+v", said)
	}
}
