package engine

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// idle is the past of a turn that changed nothing, on a view with the pods' position seen.
func idle(turn, seen uint64) Past {
	return Past{
		Sequence: turn, Turn: &events.Turn{Seen: events.Position{kinds.Pods.Name: seen}},
		Outcome: &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: turn, Results: []events.Result{
			{Status: events.Refused, Reason: "Stale"},
		}},
	}
}

// A replica that lags, or has just started, must not act on an older view than that of the last
// turn: pods created before that turn may be missing in it, and a refused turn has no effect
// that shows them.
func TestNoViewOlderThanThatOfTheLastTurn(t *testing.T) {
	o := open(t, Settings{})
	o.fold(kinds.Pods.Kind, events.Is, aPod("a", "other", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(idle(7, 2), Past{})
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("b", "web", 2))
	o.run()
	for _, turn := range o.stored {
		if turn.Lane == events.LaneWrite {
			t.Errorf("the pod that the last turn saw was created again: %+v", turn)
		}
	}
}

// The position that the last turn had seen may be lost with the end of the stream. The watcher
// reports the objects again, in any order; only a mark says that it has.
func TestAViewThatCannotBeHadAnyMore(t *testing.T) {
	for name, tc := range map[string]struct {
		did  string // a version in the outcome of the last turn
		mark string // the version of a mark that the stream has not lost
		next uint64 // sequence of a further mark that is needed; 0: none
	}{
		"it is not known when that was": {mark: "900", next: 3},
		"the mark is from before it":    {did: "50", mark: "40", next: 3},
		"the mark is from after it":     {did: "50", mark: "60"},
		"there is no mark":              {did: "50", next: 2},
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
			o.engine.Reached(kinds.Pods.Name, end, nil)
			o.run()
			if tc.mark != "" {
				o.none() // its end has not been folded
				o.mark(kinds.Pods.Kind, tc.mark, 2)
			}
			if tc.next > 0 {
				o.none()
				o.mark(kinds.Pods.Kind, "41", tc.next)
			}
			if turn := o.take(events.LaneWrite); turn.expect != 7 {
				t.Errorf("the turn is %+v", turn)
			}
		})
	}
}

// An outcome of another replica's turn does not say which positions that turn had seen.
func TestATurnOfAnotherReplicaIsRecalled(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LaneWrite, 11, events.Result{Status: events.Refused, Reason: "Stale"})
	o.none()
	o.recalled(idle(11, 1), Past{})
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("a", "other", 1))
	o.run()
	if turn := o.take(events.LaneWrite); turn.expect != 11 {
		t.Errorf("the turn is %+v", turn)
	}
}

// The outcome of the last turn may come after that turn was recalled, and does not replace the
// positions that the turn had seen either.
func TestWhatTheLastTurnSawIsWaitedForBehindItsOutcome(t *testing.T) {
	o := open(t, Settings{})
	o.fold(kinds.Pods.Kind, events.Is, aPod("a", "other", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	past := idle(7, 2)
	past.Outcome = nil
	o.recalled(past, Past{})
	o.outcome(events.LaneWrite, 7, events.Result{Status: events.Refused, Reason: "Stale"})
	o.run()
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("b", "other", 2))
	o.run()
	if turn := o.take(events.LaneWrite); turn.expect != 7 {
		t.Errorf("the turn is %+v", turn)
	}
}

// mark folds a mark at a sequence of a kind's stream.
func (o *office) mark(kind kinds.Kind, version string, at uint64) {
	o.sequence[kind.Name] = at
	o.memory.Fold(kind.Name, []events.Message{markAt(kind, version, at)})
	o.engine.Folded(kind.Name)
	o.run()
}

// Positions that the last turn had seen are awaited once, for kinds that the controller reads
// now.
func TestWhatIsAwaitedOfTheLastView(t *testing.T) {
	o := open(t, Settings{})
	e := o.engine.entry(web)
	l := &e.write
	l.effects = []effect{of("pods", "p", "u", "5", false)}
	last := &events.Turn{Seen: events.Position{kinds.Pods.Name: 1, kinds.ReplicaSets.Name: 0, kinds.Nodes.Name: 9}}
	for range 2 {
		o.engine.awaitPositions(e, l, last)
		if len(l.effects) != 2 || l.effects[0].Seen != 0 || l.effects[1].Seen != 1 || l.effects[1].Result.Ref.Kind != kinds.Pods.Name || len(o.engine.awaiting[kinds.Pods.Name]) != 1 {
			t.Errorf("the awaited effects are %+v", l.effects)
		}
	}
	if o.engine.awaitPositions(e, l, nil); len(l.effects) != 1 || l.effects[0].Seen != 0 {
		t.Errorf("of a turn that cannot be read these effects are awaited: %+v, want one without a position", l.effects)
	}
	o.mark(kinds.Pods.Kind, "5", 9)
	if o.engine.awaitPositions(e, l, &events.Turn{Seen: events.Position{kinds.Pods.Name: 9}}); len(l.effects) != 1 {
		t.Errorf("of a position that has been folded these effects are awaited: %+v, want one", l.effects)
	}
	if left := seen([]effect{{Effect: cache.Effect{Seen: 1}}, {}, {Effect: cache.Effect{Seen: 2}}}); len(left) != 2 || left[0].Seen != 1 || left[1].Seen != 2 {
		t.Errorf("behind its outcome %+v are awaited", left)
	}
}

// A controller that reads every kind stops waiting for a position of a kind without a stream,
// once a discovery has ended that began after the position was known.
func TestAViewOfAKindThatIsNowhere(t *testing.T) {
	o := &office{t: t, memory: cache.New(), now: epoch, sequence: map[kinds.Name]uint64{}}
	o.memory.Register(spread().Describe())
	o.engine = New(spread(), o.memory, o, Settings{}, o.now)
	e := o.engine.entry(web)
	for range 2 {
		o.engine.Discover()
		o.engine.awaitPositions(e, &e.write, &events.Turn{Seen: events.Position{"widgets.example.com": 9}})
		if o.engine.Discovered(); e.write.settled() {
			t.Error("a discovery that began before ends the wait")
		}
		o.engine.Discover()
		if o.engine.Discovered(); !e.write.settled() {
			t.Error("a discovery that began after does not end the wait")
		}
	}
}

// newest is the newest version in the outcome of a turn.
func TestTheNewestVersionOfAnOutcome(t *testing.T) {
	of := func(turn uint64, versions ...string) (o events.Outcome) {
		for _, v := range versions {
			o.Results = append(o.Results, events.Result{Version: v})
		}
		o.Turn = turn
		return o
	}
	for _, c := range []struct {
		outcome events.Outcome
		want    string
	}{
		{of(7), ""}, {of(7, ""), ""}, {of(7, "5", "40", "6", ""), "40"}, {of(7, "5"), "5"}, {of(6, "5"), ""},
	} {
		if got := newest(c.outcome, 7); got != c.want {
			t.Errorf("the newest version in %+v is %q, want %q", c.outcome, got, c.want)
		}
	}
}

// An outcome is another replica's when it is of a later turn than the known one, and neither a
// turn of this engine nor a recall is in flight.
func TestWhichOutcomesAreForeign(t *testing.T) {
	for what, c := range map[string]struct {
		turn   uint64
		change func(*entry)
		is     bool
	}{
		"a later one":        {8, func(*entry) {}, true},
		"the last":           {7, func(*entry) {}, false},
		"while one is sent":  {8, func(e *entry) { e.write.storing = epoch }, false},
		"while it is looked": {8, func(e *entry) { e.recalling = 1 }, false},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.known, e.write.turn = true, 7
		c.change(e)
		if o.engine.recallForeign(e, &e.write, c.turn); e.known == c.is {
			t.Errorf("%s: the key is known: %t, want %t", what, e.known, !c.is)
		}
	}
}
