package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
)

// counts checks an engine's Tally, and the number of calls in flight.
func (o *office) counts(what string, want Tally, storing int) {
	o.t.Helper()
	if got := o.engine.Tally(); got != want || o.engine.Storing() != storing {
		o.t.Errorf("%s: the engine counts %+v and waits for %d calls, want %+v and %d", what, got, o.engine.Storing(), want, storing)
	}
}

func TestAnEngineCountsWhatItDoes(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.counts("at first", Tally{}, 0)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.counts("recalling", Tally{Adds: 1}, 2)
	o.recalled(Past{}, Past{})
	o.counts("storing", Tally{Adds: 1}, 1)
	o.answer(events.LaneWrite, 10, nil)
	o.counts("stored", Tally{Adds: 1, Writes: 1}, 0)
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Failed})
	o.counts("failed", Tally{Adds: 2, Writes: 1, Retries: 1, Shut: 1}, 0)
	o.pass(time.Second)
	o.counts("again", Tally{Adds: 2, Writes: 1, Retries: 1, Shut: 1}, 1)
	o.answer(events.LaneWrite, 0, bus.ErrOvertaken)
	o.counts("overtaken", Tally{Adds: 2, Writes: 1, Retries: 1, Shut: 1, Overtaken: 1}, 2)
}

func TestAnEngineCountsWhatItLeaves(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "wakes"))
	o.counts("a wake is being set", Tally{Adds: 1, Nothing: 1}, 1)
	o.engine.Scheduled(web, o.wakes[0].At, errors.New("the bus is away"))
	o.counts("a wake is not set", Tally{Adds: 1, Nothing: 1, Retries: 1, Depth: 1}, 0)
	o.pass(time.Second)
	if len(o.wakes) != 2 {
		t.Errorf("%d wakes are set", len(o.wakes))
	}
	o.counts("it is set again", Tally{Adds: 1, Nothing: 2, Retries: 1}, 1)
	o = open(t, Settings{Attempts: 1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "panics"))
	o.counts("it breaks", Tally{Adds: 1, Broken: 1}, 1)
	o.engine.Recalled(web, events.LanePark, Past{Sequence: 3}, nil)
	o.counts("it is being parked", Tally{Adds: 1, Broken: 1}, 1)
	if e := o.engine.entries[web]; e.recalling != 0 || e.known || o.stored[0].expect != 3 {
		t.Errorf("a recall of parks counts as one of turns: %+v", e)
	}
	o.answer(events.LanePark, 4, nil)
	o.counts("it is parked", Tally{Adds: 1, Broken: 1, Parked: 1}, 0)
}

// put compares the sequence of a stored turn with the last one known: it is later, equal,
// earlier, or equal to that of a lost turn.
func TestWhereATurnIsPut(t *testing.T) {
	for what, c := range map[string]struct {
		turn    uint64
		decided time.Time
		want    lane
		known   bool
	}{
		"behind the last":     {6, epoch, lane{turn: 7, decided: epoch, outcome: 3}, true},
		"the last":            {7, epoch, lane{turn: 7, decided: epoch, outcome: 3}, true},
		"before the last":     {8, epoch, lane{turn: 8, decided: epoch, outcome: 3}, false},
		"in place of another": {7, epoch.Add(time.Hour), lane{turn: 7, decided: epoch, outcome: 6}, false},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.known, e.write = true, lane{turn: c.turn, decided: c.decided, outcome: 3}
		o.engine.recordStored(e, &e.write, 7, epoch)
		if e.write.turn != c.want.turn || !e.write.decided.Equal(c.want.decided) || e.write.outcome != c.want.outcome || e.known != c.known {
			t.Errorf("%s: %+v, known: %t", what, e.write, e.known)
		}
	}
}

// merge combines what is recalled of a lane with what is known of it.
func TestWhatIsRecalledIsMerged(t *testing.T) {
	seen := events.Position{"pods": 3}
	failed := func(turn uint64) *events.Outcome {
		return &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: turn, Results: []events.Result{{Status: events.Failed}}}
	}
	past := func(attempt int) *events.Turn {
		return &events.Turn{Seen: seen, Attempt: attempt, ResourceVersion: "9"}
	}
	for what, c := range map[string]struct {
		known    lane
		past     Past
		turn     uint64
		outcome  uint64
		failures int
		saw      bool
		again    bool
	}{
		"nothing":                        {lane{}, Past{}, 0, 0, 0, false, false},
		"a turn under way":               {lane{}, Past{Sequence: 7, Turn: past(3)}, 7, 0, 0, false, false},
		"one that failed":                {lane{}, Past{Sequence: 7, Turn: past(3), Outcome: failed(7)}, 7, 7, 3, true, false},
		"one that failed at once":        {lane{}, Past{Sequence: 7, Turn: past(0), Outcome: failed(7)}, 7, 7, 1, true, false},
		"one after one that failed":      {lane{}, Past{Sequence: 8, Turn: past(3), Outcome: failed(7)}, 8, 7, 1, true, false},
		"one whose failure is known":     {lane{turn: 7, outcome: 7, failures: 2}, Past{Sequence: 7, Turn: past(4), Outcome: failed(7)}, 7, 7, 4, true, false},
		"one of fewer attempts":          {lane{turn: 7, outcome: 7, failures: 5}, Past{Sequence: 7, Turn: past(4), Outcome: failed(7)}, 7, 7, 5, true, false},
		"one that is dropped":            {lane{}, Past{Sequence: 7, Turn: past(3), Dropped: true}, 7, 7, 0, false, false},
		"one that cannot be read":        {lane{}, Past{Sequence: 7, Outcome: failed(7)}, 7, 7, 1, false, false},
		"less than was heard of":         {lane{turn: 9, outcome: 9}, Past{Sequence: 7, Turn: past(3)}, 7, 0, 0, false, true},
		"less, and that has its outcome": {lane{turn: 9, outcome: 9}, Past{Sequence: 7, Turn: past(3), Outcome: failed(7)}, 7, 7, 3, true, false},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.write = c.known
		o.engine.merge(e, events.LaneWrite, c.past)
		if l := e.write; l.turn != c.turn || l.outcome != c.outcome || l.failures != c.failures || (l.saw != nil) != c.saw || e.recallFailed != c.again {
			t.Errorf("%s: turn %d, outcome %d, %d failures, saw %v, again: %t", what, l.turn, l.outcome, l.failures, l.saw, e.recallFailed)
		}
	}
}

// A report waits for its pace, longer while a write is in flight, and longer when it is passing.
func TestWhenAReportMayGo(t *testing.T) {
	o := open(t, Settings{Pace: 50 * time.Millisecond, Progress: 700 * time.Millisecond})
	told, acted, passed := epoch, epoch.Add(time.Second), epoch.Add(2*time.Second)
	for what, c := range map[string]struct {
		change         func(*entry)
		ahead, passing bool
		want           time.Time
	}{
		"at its pace":                 {func(*entry) {}, false, false, told.Add(50 * time.Millisecond)},
		"after a slow one":            {func(e *entry) { e.took = 100 * time.Millisecond }, false, false, told.Add(200 * time.Millisecond)},
		"after a very slow one":       {func(e *entry) { e.took = 700 * time.Millisecond }, false, false, told.Add(700 * time.Millisecond)},
		"on its way":                  {func(*entry) {}, false, true, told.Add(200 * time.Millisecond)},
		"on its way, after a slow":    {func(e *entry) { e.took = 100 * time.Millisecond }, false, true, told.Add(400 * time.Millisecond)},
		"ahead of it":                 {func(*entry) {}, true, true, passed.Add(700 * time.Millisecond)},
		"while something is done":     {func(e *entry) { e.write.turn = 7 }, false, false, acted.Add(700 * time.Millisecond)},
		"while it was told meanwhile": {func(e *entry) { e.write.turn, e.lastReport = 7, passed }, true, false, passed.Add(700 * time.Millisecond)},
	} {
		e := &entry{lastReport: told, lastWrite: acted, passedOver: passed}
		c.change(e)
		if got := o.engine.paced(e, c.ahead, c.passing); !got.Equal(c.want) {
			t.Errorf("%s: after %v, want %v", what, got.Sub(told), c.want.Sub(told))
		}
	}
	unsure := &entry{lastReport: told, unsure: epoch.Add(time.Hour)}
	if got := o.engine.progressAt(unsure); !got.Equal(epoch.Add(time.Hour + 700*time.Millisecond)) {
		t.Errorf("after an unsure report the next progress report is in %v, want an hour and 700 ms", got.Sub(epoch))
	}
}

// A turn gets the outcomes of its own key, in the lanes that remember one.
func TestWhichOutcomesAreRemembered(t *testing.T) {
	o := open(t, Settings{})
	e := o.engine.entry(web)
	e.write.last, e.write.remember = events.Outcome{Turn: 7}, true
	last := o.engine.lastOf(web)
	if got, ok := last(web, events.LaneWrite); !ok || got.Turn != 7 {
		t.Errorf("that of writes is %+v, %t", got, ok)
	}
	for what, c := range map[string]struct {
		key  events.Key
		lane events.Lane
	}{"of reports": {web, events.LaneStatus}, "of another key": {events.Key{Name: "x"}, events.LaneWrite}, "of parks": {web, events.LanePark}} {
		if got, ok := last(c.key, c.lane); ok {
			t.Errorf("that %s is %+v", what, got)
		}
	}
	if _, ok := o.engine.lastOf(events.Key{Name: "x"})(events.Key{Name: "x"}, events.LaneWrite); ok {
		t.Error("lastOf has an outcome of an unknown key")
	}
	if heard := e.heardOutcomes(); len(heard) != 1 || heard[events.LaneWrite].Turn != 7 {
		t.Errorf("the heard outcomes are %+v, want that of turn 7", heard)
	}
	if e.write.remember = false; e.heardOutcomes() != nil {
		t.Errorf("of a lane that remembers nothing these outcomes are heard: %+v", e.heardOutcomes())
	}
}

// A suspicion is reported once in ten seconds, with the API server's answer.
func TestASuspicionIsToldOnceInTenSeconds(t *testing.T) {
	var told []string
	o := open(t, Settings{Suspect: func(d report.Damage) { told = append(told, fmt.Sprint(d.Kind, " ", d.Hole.Reason)) }})
	gone := events.Result{Ref: events.Ref{Kind: "pods", Name: "p"}, UID: "u", Removed: true}
	there := events.Result{Ref: events.Ref{Kind: "nodes", Name: "n"}, UID: "u", Status: events.Unchanged, Version: "5"}
	absent := events.Result{Ref: events.Ref{Kind: "jobs.batch", Name: "j"}, UID: "u", Status: events.Absent}
	for _, r := range []events.Result{gone, gone, there, absent} {
		o.engine.reportDivergence(r)
	}
	if len(told) != 3 || !strings.Contains(told[0], "is gone, and the state that it is there") || !strings.Contains(told[1], "is there, and the state that it is not") || !strings.Contains(told[2], "is gone") {
		t.Errorf("the divergences are reported as %q", told)
	}
	o.engine.now = o.engine.now.Add(suspectAfter - 1)
	if o.engine.reportDivergence(gone); len(told) != 3 {
		t.Error("a divergence is reported again before ten seconds are over")
	}
	o.engine.now = o.engine.now.Add(1)
	if o.engine.reportDivergence(gone); len(told) != 4 {
		t.Error("a divergence is not reported again after ten seconds")
	}
	open(t, Settings{}).engine.reportDivergence(gone) // without a receiver
}

// Commands that change nothing wait longer each time, as long as they stay the same.
func TestWhatChangesNothingWaits(t *testing.T) {
	o := open(t, Settings{Backoff: time.Second, MaxBackoff: time.Hour})
	same := []events.Command{{Verb: events.VerbDelete, Kind: "pods", Name: "p"}}
	other := []events.Command{{Verb: events.VerbDelete, Kind: "pods", Name: "q"}}
	l := &lane{}
	l.noOps.decide(same)
	unchanged := events.Outcome{Results: []events.Result{{Status: events.Unchanged}}}
	for round, wait := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		o.engine.countNoOps(l, unchanged)
		if got := l.noOps.waits(same).Sub(o.engine.now); got != wait {
			t.Errorf("after round %d it waits %v, want %v", round, got, wait)
		}
		if !l.noOps.waits(other).IsZero() {
			t.Error("another command waits")
		}
		l.noOps.decide(same)
	}
	o.engine.countNoOps(l, events.Outcome{Results: []events.Result{{Status: events.Applied}}})
	if !l.noOps.waits(same).IsZero() {
		t.Error("a decision that has changed something waits")
	}
	o.engine.countNoOps(l, unchanged)
	o.engine.countNoOps(l, unchanged)
	if l.noOps.decide(other); !l.noOps.waits(other).IsZero() || l.noOps.rounds != 0 {
		t.Error("a decision for something else waits")
	}
}

// A key that backs off delays only itself.
func TestAKeyThatBacksOffDoesNotStall(t *testing.T) {
	o := begun(t, Settings{Backoff: time.Hour, MaxBackoff: time.Hour})
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Failed})
	o.pass(2 * report.StallAfter)
	o.flows()
	o.engine.inconsistent = []*entry{{}}
	o.engine.pending = map[*entry]time.Time{}
	if !o.engine.Working() {
		t.Error("a key that waits for a clear view is no work")
	}
}
