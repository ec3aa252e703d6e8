package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
)

// attend lets time pass while a writer reports its turns in flight.
func (o *office) attend(d time.Duration, turns ...uint64) {
	for ; d > 0; d -= time.Second {
		o.pass(time.Second)
		o.engine.Heartbeat(report.Heartbeat{Writer: "w", Turns: map[string][]uint64{"toy": turns}})
	}
}

// underWay is the past of the turn that [begun] has stored, without an outcome.
func underWay(sequence uint64) Past {
	return Past{Sequence: sequence, Turn: &events.Turn{
		Controller: "toy", Key: web, Lane: events.LaneWrite, Now: epoch, Because: "0 of 1", ResourceVersion: "1",
		Commands: []events.Command{{Verb: events.VerbCreate, Kind: kinds.Pods.Name, Name: "p"}},
	}}
}

// A turn without an outcome that no writer has in flight is stored again, word for word. Its
// key continues when the repetition has its outcome.
func TestAnOrphanedTurnIsRepeated(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(9 * time.Second)
	if got := o.takeRecalls(); len(got) > 0 {
		t.Fatalf("suspected too early: %v", got)
	}
	o.attend(3 * time.Second)
	o.recalled(underWay(10), Past{})
	again := o.take(events.LaneWrite)
	want := *underWay(10).Turn
	want.Repeats = 10
	if diff := cmp.Diff(want, again.Turn); diff != "" || again.expect != 10 {
		t.Fatalf("behind %d, (-want +got)\n%s", again.expect, diff)
	}
	o.answer(events.LaneWrite, 11, nil)
	o.none()
	o.outcome(events.LaneWrite, 11, events.Result{Status: events.Unchanged})
	o.run()
	if turn := o.take(events.LaneWrite); turn.expect != 11 || turn.Repeats != 0 {
		t.Errorf("the next turn is %+v", turn)
	}
}

// A turn in flight at a writer is no orphan, however long it takes. It is one when the writer
// is gone and no other writer took it.
func TestATurnInFlightIsNoOrphan(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(time.Minute, 10)
	if got := o.takeRecalls(); len(got) > 0 {
		t.Fatalf("suspected although it is in flight: %v", got)
	}
	o.attend(21*time.Second, 9)
	o.recalled(underWay(10), Past{})
	o.take(events.LaneWrite)
}

// Without any writer, storing a turn again gains nothing.
func TestWithoutWritersNothingIsRepeated(t *testing.T) {
	o := begun(t, Settings{})
	o.pass(time.Hour)
	if got := o.takeRecalls(); len(got) > 0 {
		t.Fatalf("suspected without a writer: %v", got)
	}
	o.attend(21 * time.Second)
	o.recalled(underWay(10), Past{})
	o.take(events.LaneWrite)
}

// The recall finds an outcome in the stream that only this engine has missed.
func TestAnOutcomeThatWasMissedIsFound(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(12 * time.Second)
	past := underWay(10)
	past.Outcome = &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{{Status: events.Unchanged}}}
	o.recalled(past, Past{}) // which asks for a turn by itself
	if turn := o.take(events.LaneWrite); turn.expect != 10 || turn.Repeats != 0 {
		t.Errorf("the next turn is %+v", turn)
	}
}

// For a turn that cannot be decoded the engine stores an empty repetition, so that the key
// continues.
func TestAnOrphanThatCannotBeRead(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(12 * time.Second)
	o.recalled(Past{Sequence: 10}, Past{})
	again := o.take(events.LaneWrite)
	if again.Repeats != 10 || len(again.Commands) != 0 || again.Key != web || again.Controller != "toy" {
		t.Errorf("stored %+v", again)
	}
}

// One of many engines repeats a turn. The others recall the repetition and watch it. A
// repetition without an outcome is repeated less and less often.
func TestRepetitionsOfManyEngines(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(12 * time.Second)
	o.recalled(underWay(10), Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 0, bus.ErrOvertaken)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	o.recalled(underWay(12), Past{})
	o.none()
	for turn, wait := uint64(12), 10*time.Second; turn < 15; turn++ {
		o.attend(wait - time.Second)
		if got := o.takeRecalls(); len(got) > 0 {
			t.Fatalf("turn %d: suspected before %v", turn, wait)
		}
		o.attend(12 * time.Second)
		o.recalled(underWay(turn), Past{})
		if again := o.take(events.LaneWrite); again.Repeats != turn {
			t.Fatalf("stored %+v", again)
		}
		o.answer(events.LaneWrite, turn+1, nil)
		wait *= 2
	}
}

// A new engine finds the orphan as soon as the key wants something.
func TestAnOrphanOfThePastIsRepeated(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(underWay(10), Past{})
	o.none()
	o.attend(12 * time.Second)
	o.recalled(underWay(10), Past{})
	if again := o.take(events.LaneWrite); again.Repeats != 10 {
		t.Errorf("stored %+v", again)
	}
}

// A turn that has not reached a writer yet, because the writer is full, is no orphan; nor is
// one that waits in flight.
func TestWhatWaitsBehindOthersIsNoOrphan(t *testing.T) {
	for name, c := range map[string]struct {
		heartbeat report.Heartbeat
		waits     bool
	}{
		"behind a crowd":          {report.Heartbeat{Turns: map[string][]uint64{"toy": {8}}, Waiting: map[string][]uint64{"toy": {9}}, Full: []string{"toy"}}, true},
		"waiting in flight":       {report.Heartbeat{Waiting: map[string][]uint64{"toy": {10}}}, true},
		"passed over by a crowd":  {report.Heartbeat{Turns: map[string][]uint64{"toy": {8, 11}}, Full: []string{"toy"}}, false},
		"another one has a crowd": {report.Heartbeat{Turns: map[string][]uint64{"other": {8}}, Full: []string{"other"}}, false},
	} {
		o := begun(t, Settings{})
		for range 21 {
			o.pass(time.Second)
			o.engine.Heartbeat(c.heartbeat)
		}
		if got := o.takeRecalls(); (len(got) == 0) != c.waits {
			t.Errorf("%s: %d recalls, and it waits: %t", name, len(got), c.waits)
		}
		if !c.waits {
			continue
		}
		o.attend(21*time.Second, 8) // until the writers have room, without having turn 10 in flight
		if got := o.takeRecalls(); len(got) == 0 {
			t.Errorf("%s: the turn is an orphan by now, and is not recalled", name)
		}
	}
}

// However many turns heartbeats name, the engine remembers a bounded number, and has room again
// when they are no longer named.
func TestMadeUpTurnsInFlightAreBounded(t *testing.T) {
	o := begun(t, Settings{})
	turns := make([]uint64, 30_000)
	for from := range 10 {
		for i := range turns {
			turns[i] = uint64(1000 + from*len(turns) + i)
		}
		o.engine.Heartbeat(report.Heartbeat{Writer: "ghost", Turns: map[string][]uint64{"toy": turns}})
	}
	if got := len(o.engine.inFlight); got > mostInFlight {
		t.Errorf("%d turns are remembered, want %d at most", got, mostInFlight)
	}
	o.attend(time.Minute, 10)
	if got := o.engine.inFlight[10]; len(o.engine.inFlight) > inFlightKept || got.IsZero() {
		t.Errorf("a minute later %d turns are remembered, and that of a writer since %v", len(o.engine.inFlight), got)
	}
}

// A turn without an outcome is watched by one timer, and counts as work.
func TestATurnIsWatchedOnce(t *testing.T) {
	for what, c := range map[string]struct {
		lane    lane
		watched bool
		timers  int
	}{
		"under way":                     {lane{turn: 7, outcome: 6}, true, 1},
		"with an outcome":               {lane{turn: 7, outcome: 7}, false, 0},
		"with an outcome of a later":    {lane{turn: 7, outcome: 8}, false, 0},
		"under way, and watched so far": {lane{turn: 7, watched: true}, true, 0},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.write = c.lane
		o.engine.watchOutcome(e, events.LaneWrite)
		o.engine.watchOutcome(e, events.LaneWrite)
		if n := o.engine.timers.Len(); e.write.watched != c.watched || n != c.timers || o.engine.Working() != (c.timers > 0) {
			t.Errorf("%s: the lane is watched: %t, by %d timers, and counts as work: %t", what, e.write.watched, n, o.engine.Working())
		}
	}
}

// A writer counts as present up to and including two seconds after its heartbeat. A dismissed
// key is not watched.
func TestForHowLongAWriterIsThere(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*office, *entry)
		is     bool
	}{
		"two seconds": {func(o *office, _ *entry) { o.engine.writersSeen = o.now.Add(-2 * time.Second) }, true},
		"longer":      {func(o *office, _ *entry) { o.engine.writersSeen = o.now.Add(-2*time.Second - 1) }, false},
		"full two seconds ago": {func(o *office, _ *entry) {
			o.engine.writerReached, o.engine.writerFullAt = 6, o.now.Add(-2*time.Second)
		}, false},
		"full before that": {func(o *office, _ *entry) {
			o.engine.writerReached, o.engine.writerFullAt = 6, o.now.Add(-2*time.Second-1)
		}, true},
		"it is not known":         {func(o *office, e *entry) { delete(o.engine.entries, e.key) }, false},
		"another is in its place": {func(o *office, e *entry) { o.engine.entries[e.key] = &entry{key: e.key} }, false},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.known, e.write.turn, e.write.since, o.engine.writersSeen = true, 7, o.now.Add(-10*time.Second), o.now
		c.change(o, e)
		o.engine.checkOutcome(e, events.LaneWrite)
		if e.write.suspected != c.is || (len(o.recalls) == 2) != c.is {
			t.Errorf("%s: suspected: %t, recalled are %v", what, e.write.suspected, o.recalls)
		}
	}
}

// How many turns in flight are remembered without a check of their age, and at most.
func TestHowManyTurnsInFlightAreRemembered(t *testing.T) {
	o := open(t, Settings{})
	say := func(from, n uint64) {
		b := report.Heartbeat{Turns: map[string][]uint64{"toy": nil}}
		for i := range n {
			b.Turns["toy"] = append(b.Turns["toy"], from+i)
		}
		o.engine.Heartbeat(b)
	}
	is := func(what string, want int) {
		t.Helper()
		if got := len(o.engine.inFlight); got != want {
			t.Errorf("%s: %d are remembered, want %d", what, got, want)
		}
	}
	say(0, 1000)
	o.now = o.now.Add(10*time.Second + 1)
	o.engine.Advance(o.now)
	say(1000, 24)
	is("1024", 1024)
	say(1024, 1)
	is("one more", 25)
	o.now = o.now.Add(10 * time.Second)
	o.engine.Advance(o.now)
	say(2000, 1000)
	is("after ten seconds, and no longer", 1025)
	say(10_000, 70_000)
	is("without a bound", 1<<16)
	o.engine.Heartbeat(report.Heartbeat{Turns: map[string][]uint64{"toy": {90_000}}, Full: []string{"toy"}})
	if o.engine.writerReached != 90_000 {
		t.Errorf("a writer that is full of one turn has reached %d", o.engine.writerReached)
	}
}

// A suspicion whose recall failed is dropped: a recall for another reason repeats nothing. The
// engine suspects the turn again in time.
func TestASuspicionThatCouldNotBeLookedInto(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(12 * time.Second)
	if got := o.takeRecalls(); len(got) != 2 {
		t.Fatalf("recalled are %v", got)
	}
	o.engine.Recalled(web, events.LaneWrite, Past{}, errors.New("away"))
	o.engine.Recalled(web, events.LaneStatus, Past{}, nil)
	o.engine.Invalidate()
	o.pass(time.Second)
	o.recalled(underWay(10), Past{})
	o.none()
	o.attend(21 * time.Second)
	o.recalled(underWay(10), Past{})
	if o.take(events.LaneWrite).Repeats != 10 || o.engine.Storing() != 1 {
		t.Errorf("after the repeat the engine waits for %d answers, want 1", o.engine.Storing())
	}
	// A key that wants something is recalled as soon as another replica was faster.
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	o.answer(events.LaneWrite, 0, bus.ErrOvertaken)
	o.recalled(underWay(12), Past{})
	if got := o.engine.Tally().Repeats; got != 0 {
		t.Errorf("%d turns were repeated by this replica", got)
	}
	o.attend(21 * time.Second)
	o.recalled(underWay(12), Past{})
	o.take(events.LaneWrite)
	if o.answer(events.LaneWrite, 13, nil); o.engine.Tally().Repeats != 1 {
		t.Errorf("%d turns were repeated", o.engine.Tally().Repeats)
	}
}

// A key that another replica takes over while its turn is stored again is dropped when that is
// done.
func TestAKeyGivenAwayDuringARepetitionIsForgotten(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(12 * time.Second)
	o.recalled(underWay(10), Past{})
	o.take(events.LaneWrite)
	if o.engine.Own(0); len(o.engine.entries) != 1 {
		t.Fatalf("%d keys are known while the turn is on its way", len(o.engine.entries))
	}
	if o.answer(events.LaneWrite, 11, nil); len(o.engine.entries) != 0 {
		t.Errorf("%d keys are known", len(o.engine.entries))
	}
}

// A turn counts as the last one since it replaced another one.
func TestSinceWhenATurnIsTheLast(t *testing.T) {
	now := epoch.Add(time.Hour)
	for what, c := range map[string]struct {
		sequence uint64
		decided  time.Time
		since    time.Time
	}{
		"the same":             {7, epoch, epoch},
		"another":              {8, epoch, now},
		"another in its place": {7, epoch.Add(1), now},
		"one that is not read": {7, time.Time{}, epoch},
	} {
		o := open(t, Settings{})
		o.engine.now = now
		l := &lane{turn: 7, decided: epoch, since: epoch}
		if o.engine.setTurn(l, c.sequence, c.decided); l.turn != c.sequence || !l.decided.Equal(c.decided) || !l.since.Equal(c.since) {
			t.Errorf("%s: %d, decided at %v, since %v", what, l.turn, l.decided, l.since)
		}
	}
}

// A writer's heartbeat names its turns in flight, and how far a full writer has got.
func TestWhatAWriterSaysItHas(t *testing.T) {
	o := open(t, Settings{})
	heartbeat := func(full bool, turns ...uint64) {
		b := report.Heartbeat{Turns: map[string][]uint64{"toy": turns}}
		if full {
			b.Full = []string{"toy"}
		}
		o.engine.Heartbeat(b)
	}
	heartbeat(false, 7, 9)
	if d := o.engine; !d.writersSeen.Equal(d.now) || len(d.inFlight) != 2 || d.writerReached != 0 {
		t.Errorf("in flight are %v, reached is %d", d.inFlight, d.writerReached)
	}
	if heartbeat(true); o.engine.writerReached != 0 {
		t.Error("a writer that is full of nothing has reached something")
	}
	if heartbeat(true, 8, 12, 3); o.engine.writerReached != 12 || !o.engine.writerFullAt.Equal(o.engine.now) {
		t.Errorf("reached is %d", o.engine.writerReached)
	}
	for i := range uint64(inFlightKept) {
		heartbeat(false, 100+i)
	}
	o.engine.now = o.engine.now.Add(o.engine.settings.Orphan + 1)
	if heartbeat(false, 5000); len(o.engine.inFlight) != 1 {
		t.Errorf("%d turns are in flight of long ago", len(o.engine.inFlight))
	}
}
