package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
)

func TestMeasuresByDefault(t *testing.T) {
	s := Settings{}.filled()
	if s.Pace != 50*time.Millisecond || s.Progress != 500*time.Millisecond || s.Patience != 2*time.Second || s.Orphan != 10*time.Second || s.Attempts != 5 ||
		s.Backoff != events.FirstBackoff || s.MaxBackoff != events.LongestBackoff || LongWait != 10*time.Second {
		t.Errorf("the default settings are %+v", s)
	}
	if s := (Settings{Pace: -1}).filled(); s.Pace != 0 || s.Progress != 0 {
		t.Errorf("without a pace the settings are %+v", s)
	}
	if s := (Settings{Pace: 1, Progress: 2, Patience: 3, Orphan: 4, Attempts: 5, Backoff: 6, MaxBackoff: 7}).filled(); s.Pace != 1 || s.Progress != 2 || s.Patience != 3 || s.Orphan != 4 || s.Backoff != 6 || s.MaxBackoff != 7 {
		t.Errorf("the given settings have become %+v", s)
	}
}

// A key that is being parked, waits, or has no entry any more, has no turn.
func TestKeysThatHaveNoTurn(t *testing.T) {
	o := open(t, Settings{Attempts: 1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "panics"))
	before := o.engine.Tally()
	o.engine.Ask(web)
	o.run()
	if got := o.engine.Tally(); got.Broken != before.Broken || o.engine.entries[web].parking == "" {
		t.Errorf("a key that is being parked has a turn: %+v", got)
	}
	o = open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	e := o.engine.entry(web)
	e.until = o.now.Add(time.Hour)
	o.engine.Ask(web)
	nothing := o.engine.Tally().Nothing
	o.run()
	if o.engine.Tally().Nothing != nothing || !e.requeueTime.Equal(e.until) {
		t.Errorf("a key has a turn before its time; the next look is in %v", e.requeueTime.Sub(o.now))
	}
	o.pass(time.Hour)
	if o.engine.Tally().Nothing != nothing+1 {
		t.Error("in its time it has no turn")
	}
	gone := &entry{key: events.Key{Name: "gone"}}
	if o.engine.enqueue(gone, workqueue.AfterChange); gone.dirty || gone.Queued {
		t.Error("a key that is not known asks for a turn")
	}
	if o.engine.Unpark(events.Key{Name: "gone"}) {
		t.Error("a key that is not parked is parked no more")
	}
}

// A key that asks for nothing is dropped if it has no object, or has never had a turn.
func TestKeysWithoutATurnAreForgotten(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Ask(web)
	o.run()
	if len(o.engine.entries) != 0 {
		t.Errorf("after a look at no object the engine has %d entries, want none", len(o.engine.entries))
	}
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	if len(o.engine.entries) != 0 {
		t.Errorf("after a look at a set that needs nothing the engine has %d entries, want none", len(o.engine.entries))
	}
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 0, ""))
	if len(o.engine.entries) != 1 {
		t.Errorf("after a look at a set that needs a pod the engine has %d entries, want one", len(o.engine.entries))
	}
}

// A write waits for earlier writes, and for reports unless the controller may be blind to the
// status.
func TestWhatAnActWaitsFor(t *testing.T) {
	for what, c := range map[string]struct {
		write, status, blind, may bool
	}{
		"for nothing": {false, false, false, true}, "for a write": {true, false, true, false}, "for a report": {false, true, false, false}, "for no report": {false, true, true, true},
	} {
		o := open(t, Settings{})
		o.engine.described.StatusBlind = c.blind
		e := o.engine.entry(web)
		if c.write {
			e.write.turn = 7
		}
		if c.status {
			e.status.turn = 7
		}
		if got := o.engine.mayWrite(e); got != c.may || e.mayReport() == c.status {
			t.Errorf("%s: the key may write: %t, want %t; and report: %t", what, got, c.may, e.mayReport())
		}
	}
}

// Doubt recalls each key with a turn in flight, in whichever lane.
func TestInDoubtWhatIsUnderWayIsRecalled(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*entry)
		again  bool
	}{
		"a write": {func(e *entry) { e.write.turn = 7 }, true}, "a report": {func(e *entry) { e.status.turn = 7 }, true}, "nothing": {func(*entry) {}, false},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.known = true
		c.change(e)
		o.engine.Invalidate()
		if e.mustRecall != c.again || e.dirty != c.again || e.known {
			t.Errorf("%s: the key is recalled: %t, want %t; known: %t", what, e.mustRecall, c.again, e.known)
		}
	}
}

// A turn without an outcome is suspected when no writer has it in flight, and there are
// writers.
func TestWhenATurnIsSuspected(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*office, *entry)
		is     bool
	}{
		"no one has it":          {func(*office, *entry) {}, true},
		"it has its outcome":     {func(_ *office, e *entry) { e.write.outcome = 7 }, false},
		"a round goes on":        {func(_ *office, e *entry) { e.round = &round{} }, false},
		"it is being recalled":   {func(_ *office, e *entry) { e.recalling = 1 }, false},
		"it is being repeated":   {func(_ *office, e *entry) { e.write.repeating = true }, false},
		"a writer has it":        {func(o *office, _ *entry) { o.engine.inFlight[7] = o.now.Add(-time.Second) }, false},
		"writers are not so far": {func(o *office, _ *entry) { o.engine.writerReached, o.engine.writerFullAt = 6, o.now }, false},
		"writers were not": {func(o *office, _ *entry) {
			o.engine.writerReached, o.engine.writerFullAt = 6, o.now.Add(-MaxHeartbeatAge-1)
		}, true},
		"writers are as far":   {func(o *office, _ *entry) { o.engine.writerReached, o.engine.writerFullAt = 7, o.now }, true},
		"no writer is there":   {func(o *office, _ *entry) { o.engine.writersSeen = o.now.Add(-MaxHeartbeatAge - 1) }, false},
		"it was stored lately": {func(o *office, e *entry) { e.write.since = o.now.Add(-9 * time.Second) }, false},
		"it was repeated once": {func(_ *office, e *entry) { e.write.repeats = 1 }, false},
		"long ago":             {func(o *office, e *entry) { e.write.repeats, e.write.since = 9, o.now.Add(-10<<5*time.Second) }, true},
		"not so long ago":      {func(o *office, e *entry) { e.write.repeats, e.write.since = 9, o.now.Add(-10<<5*time.Second+1) }, false},
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

// A key has the earliest alarm that was asked for, and is looked at then.
func TestTheEarliestAlarmOfAKeyCounts(t *testing.T) {
	o := open(t, Settings{})
	e := o.engine.entry(web)
	e.dirty = true
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	for _, s := range []int{10, 20, 10, 5} {
		o.engine.requeueAt(e, at(s))
	}
	if o.engine.timers.Len() != 2 || !e.requeueTime.Equal(at(5)) {
		t.Errorf("%d are set, and the key is looked at at %v", o.engine.timers.Len(), e.requeueTime)
	}
	if o.engine.Advance(at(5)); !e.requeueTime.IsZero() || !e.Queued {
		t.Errorf("in time it is looked at: %t, and again at %v", e.Queued, e.requeueTime)
	}
	o.engine.requeueAt(e, at(15))
	if o.engine.Advance(at(10)); !e.requeueTime.Equal(at(15)) {
		t.Errorf("an earlier one has called off a later one: %v", e.requeueTime)
	}
	e.Queued = false
	delete(o.engine.entries, web)
	if o.engine.Advance(at(15)); e.Queued {
		t.Error("a key that is not known any more is looked at")
	}
}
