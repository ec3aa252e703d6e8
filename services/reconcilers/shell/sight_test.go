package shell

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// idle is what the streams hold of a turn that did nothing, on a view of so many pods'
// messages.
func idle(turn, seen uint64) Past {
	return Past{
		Sequence: turn, Turn: &events.Turn{Seen: events.Position{kinds.Pods.Name: seen}},
		Outcome: &events.Outcome{Key: web, Lane: events.Act, Turn: turn, Results: []events.Result{
			{Status: events.Refused, Reason: "Stale"},
		}},
	}
}

// A replica that lags, or has just been started, must not act on an older view than
// that of the last turn: what was born before that turn may be missing in it, and no
// effect of a turn that was refused tells of it.
func TestNoViewOlderThanThatOfTheLastTurn(t *testing.T) {
	o := open(t, Settings{})
	o.fold(kinds.Pods.Kind, events.Is, aPod("a", "other", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(idle(7, 2), Past{})
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("b", "web", 2))
	o.run()
	for _, turn := range o.stored {
		if turn.Lane == events.Act {
			t.Errorf("the pod that the last turn saw was born again: %+v", turn)
		}
	}
}

// What the last turn saw may have been lost with the end of the stream. The watcher
// tells it again, in any order; only a mark says that it has.
func TestAViewThatCannotBeHadAnyMore(t *testing.T) {
	for name, tc := range map[string]struct {
		did  string // a version of what the last turn did
		mark string // the version of a mark that the stream has not lost
		next uint64 // where the next mark has to come; 0: none has to
	}{
		"nobody knows when that was": {mark: "900", next: 3},
		"the mark is from before it": {did: "50", mark: "40", next: 3},
		"the mark is from after it":  {did: "50", mark: "60"},
		"there is no mark":           {did: "50", next: 2},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, Settings{})
			o.fold(kinds.Pods.Kind, events.Is, aPod("a", "other", 1))
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			past := idle(7, 900)
			if tc.did != "" {
				past.Outcome.Results[0] = events.Result{Status: events.Applied, Version: tc.did, Ref: events.Ref{Kind: "configmaps", Name: "of no concern"}}
			}
			o.recalled(past, Past{})
			o.none()
			if len(o.reaches) != 1 || o.reaches[0] != kinds.Pods.Name {
				t.Fatalf("asked for the ends of %v", o.reaches)
			}
			end := uint64(1)
			if tc.mark != "" {
				end = 2
			}
			o.desk.Reached(kinds.Pods.Name, end, nil)
			o.run()
			if tc.mark != "" {
				o.none() // its end has not been folded
				o.mark(kinds.Pods.Kind, tc.mark, 2)
			}
			if tc.next > 0 {
				o.none()
				o.mark(kinds.Pods.Kind, "41", tc.next)
			}
			if turn := o.take(events.Act); turn.expect != 7 {
				t.Errorf("the turn is %+v", turn)
			}
		})
	}
}

// An outcome of another replica's turn does not say what that turn had seen.
func TestATurnOfAnotherReplicaIsRecalled(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.Act, 11, events.Result{Status: events.Refused, Reason: "Stale"})
	o.none()
	o.recalled(idle(11, 1), Past{})
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("a", "other", 1))
	o.run()
	if turn := o.take(events.Act); turn.expect != 11 {
		t.Errorf("the turn is %+v", turn)
	}
}

// The outcome of the last turn may come after that turn was recalled, and does not
// make up for what the turn had seen either.
func TestWhatTheLastTurnSawIsWaitedForBehindItsOutcome(t *testing.T) {
	o := open(t, Settings{})
	o.fold(kinds.Pods.Kind, events.Is, aPod("a", "other", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	past := idle(7, 2)
	past.Outcome = nil
	o.recalled(past, Past{})
	o.outcome(events.Act, 7, events.Result{Status: events.Refused, Reason: "Stale"})
	o.run()
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("b", "other", 2))
	o.run()
	if turn := o.take(events.Act); turn.expect != 7 {
		t.Errorf("the turn is %+v", turn)
	}
}

// mark folds a mark that lies at a place of a kind's stream.
func (o *office) mark(kind kinds.Kind, version string, at uint64) {
	o.sequence[kind.Name] = at
	o.memory.Fold(kind.Name, []events.Message{markAt(kind, version, at)})
	o.desk.Folded(kind.Name)
	o.run()
}
