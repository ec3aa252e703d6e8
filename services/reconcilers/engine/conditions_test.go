package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
)

// TestEveryWaitOfAKeyIsNamed: for each sort of wait, the key's state names the condition, its
// subject, and, where time ends it, the moment.
func TestEveryWaitOfAKeyIsNamed(t *testing.T) {
	full := errors.New("the disk is full")
	for name, tc := range map[string]struct {
		reach func(o *office)
		waits report.Condition
		about string
		until time.Duration // after the question; 0: time does not end it
	}{
		"nothing asks for a turn": {reach: func(o *office) { o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "")) }},
		"another replica has it":  {reach: func(o *office) { o.engine.Own(0) }, waits: report.OtherReplica},
		"a kind is not read": {reach: func(o *office) {
			o.engine.Shut(kinds.Pods.Name)
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
		}, waits: report.NotRead, about: "pods"},
		"an epoch is not told to its end": {reach: func(o *office) {
			o.engine.askedAll = true
			o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 1), 0), 1)
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			o.pass(time.Second)
		}, waits: report.EpochNotTold, about: "pods"},
		"another kind is told in a newer epoch": {reach: func(o *office) {
			o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "2", 0), 1)
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			o.recalled(Past{}, Past{})
			o.pass(time.Second)
		}, waits: report.EpochNotTold, about: "replicasets.apps"},
		"it is parked": {reach: func(o *office) {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
			for range 20 {
				o.pass(time.Minute)
				for _, lane := range o.takeRecalls() {
					o.engine.Recalled(web, lane, Past{}, nil)
				}
				for _, s := range o.stored {
					o.engine.Stored(web, s.Lane, 1, nil)
				}
				o.stored = nil
			}
		}, waits: report.Parked, about: "panic: a set that breaks"},
		"its turn has no outcome": {reach: func(o *office) { acted(o) }, waits: report.NoOutcome, about: "no writer says that it is there"},
		"its effects are not seen": {reach: func(o *office) {
			acted(o)
			o.outcome(events.LaneWrite, 10, created("p", "5"))
		}, waits: report.NotSeen, about: "pods"},
		"the bus does not answer": {reach: func(o *office) {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
		}, waits: report.BusRefuses, about: "it does not answer"},
		"the bus refuses": {reach: func(o *office) {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			o.recalled(Past{}, Past{})
			o.take(events.LaneWrite)
			o.answer(events.LaneWrite, 0, full)
		}, waits: report.BusRefuses, about: full.Error()},
		"it backs off": {reach: func(o *office) {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
		}, waits: report.BackingOff, until: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, Settings{})
			tc.reach(o)
			k := o.engine.Key(web)
			if k.Waits != tc.waits || k.Reason == "" {
				t.Fatalf("the key waits for %q (%s), want %q; %+v", k.Waits, k.Reason, tc.waits, k.Checks)
			}
			if len(k.Checks) < len(conditions) {
				t.Errorf("the key has %d checks, fewer than there are conditions", len(k.Checks))
			}
			for _, c := range k.Checks {
				if c.Condition != tc.waits || !c.Holds {
					continue
				}
				if c.About != tc.about || c.Since == nil || c.Reason != k.Reason {
					t.Errorf("the check is about %q since %v, want %q", c.About, c.Since, tc.about)
				}
				if (c.Until == nil) != (tc.until == 0) || c.Until != nil && !c.Until.Equal(o.now.Add(tc.until)) {
					t.Errorf("the wait ends at %v, want after %v", c.Until, tc.until)
				}
				return
			}
			if tc.waits != "" {
				t.Error("no check of that name holds")
			}
		})
	}
}

// acted stores a turn of web as the tenth of the stream.
func acted(o *office) {
	o.t.Helper()
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
}

// TestAKeyTellsOfItsTurns: the last turn and outcome of each lane, and the effects that have
// not come back.
func TestAKeyTellsOfItsTurns(t *testing.T) {
	o := open(t, Settings{})
	if k := o.engine.Key(web); k.Known {
		t.Error("a key is known that there never was")
	}
	acted(o)
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	want := report.LaneState{Turn: 10, Outcome: 10, Unseen: []events.Ref{{Kind: kinds.Pods.Name, Namespace: "default", Name: "p"}}}
	if k := o.engine.Key(web); !k.Known || !cmp.Equal(k.Write, want) {
		t.Errorf("the write lane is %+v, want %+v", k.Write, want)
	}
}

// TestKeysThatWaitForLongAreCounted: after ten seconds under one condition, and not where a known
// moment ends the wait.
func TestKeysThatWaitForLongAreCounted(t *testing.T) {
	o := open(t, Settings{})
	acted(o)
	o.pass(LongWait - 1)
	if w := o.engine.Waiting(); len(w) > 0 {
		t.Errorf("too early: %+v", w)
	}
	since := o.now.Add(1 - LongWait)
	o.pass(1)
	want := map[report.Condition]Waiting{report.NoOutcome: {Keys: 1, Oldest: web, Since: since, About: "no writer says that it is there"}}
	if w := o.engine.Waiting(); !cmp.Equal(w, want) {
		t.Errorf("the waiting keys are %+v, want %+v", w, want)
	}
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	if w := o.engine.Waiting(); len(w) > 0 {
		t.Errorf("the outcome is there, and it says %+v", w)
	}
	slow := open(t, Settings{Backoff: time.Hour})
	slow.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
	slow.pass(2 * LongWait)
	if w := slow.engine.Waiting(); len(w) > 0 {
		t.Errorf("a key that backs off is reported as waiting: %+v", w)
	}
}

// The conditions that hold a key, beside those of each single sort of wait.
func TestWhichConditionsHoldAKey(t *testing.T) {
	away := errors.New("away")
	hour := func(d *Engine) time.Time { return d.now.Add(time.Hour) }
	for what, c := range map[string]struct {
		change func(*Engine, *entry)
		name   report.Condition
		about  string
		until  bool
	}{
		"at rest":                     {func(*Engine, *entry) {}, "", "", false},
		"at rest, and the bus away":   {func(d *Engine, _ *entry) { d.storeRefusal.err, d.recallRefusal.err = away, away }, "", "", false},
		"at rest, to be looked at":    {func(d *Engine, e *entry) { e.requeueTime = hour(d) }, "", "", false},
		"it wants a turn":             {func(_ *Engine, e *entry) { e.dirty = true }, report.KeysWait, web.String(), false},
		"parked":                      {func(_ *Engine, e *entry) { e.parked = &Parked{Reason: "it breaks"} }, report.Parked, "it breaks", false},
		"parked, and asked for":       {func(_ *Engine, e *entry) { e.parked, e.dirty = &Parked{}, true }, report.KeysWait, web.String(), false},
		"a report without an outcome": {func(_ *Engine, e *entry) { e.status.turn = 7 }, report.NoOutcome, "no writer says that it is there", false},
		"a turn that is being stored": {func(d *Engine, e *entry) { e.status.turn, e.status.storing, e.round = 7, d.now, &round{} }, report.BusRefuses, "it does not answer", false},
		"a report that is not seen":   {func(_ *Engine, e *entry) { e.status.effects = []effect{of("nodes", "n", "u", "5", false)} }, report.NotSeen, "nodes", false},
		"no turn is taken":            {func(d *Engine, e *entry) { e.dirty, d.storeRefusal.err = true, away }, report.BusRefuses, "away", false},
		"nothing is recalled":         {func(d *Engine, e *entry) { e.dirty, d.recallRefusal.err = true, away }, report.BusRefuses, "away", false},
		"a round goes on":             {func(_ *Engine, e *entry) { e.round = &round{} }, report.BusRefuses, "it does not answer", false},
		"it is being set aside":       {func(_ *Engine, e *entry) { e.parking = "it breaks" }, report.BusRefuses, "it does not answer", false},
		"a kind is inconsistent": {func(d *Engine, e *entry) {
			e.dirty, d.inconsistent = true, []*entry{e}
			disagree(d.cache, kinds.Pods.Kind)
		}, report.CacheInconsistent, "pods", false},
		"another key waits for it":    {func(d *Engine, e *entry) { e.dirty, d.inconsistent = true, []*entry{{}} }, report.KeysWait, web.String(), false},
		"its write backs off":         {func(d *Engine, e *entry) { e.dirty, e.write.notBefore = true, hour(d) }, report.BackingOff, "", true},
		"its report backs off":        {func(d *Engine, e *entry) { e.dirty, e.status.notBefore = true, hour(d) }, report.BackingOff, "", true},
		"it is to be looked at later": {func(d *Engine, e *entry) { e.dirty, e.requeueTime = true, hour(d) }, report.BackingOff, "", true},
		"it was to be looked at now":  {func(d *Engine, e *entry) { e.dirty, e.until = true, d.now }, report.KeysWait, web.String(), false},
	} {
		d := open(t, Settings{}).engine
		e := d.entry(web)
		e.known = true
		c.change(d, e)
		name, h, ok := d.firstHold(e, epoch)
		if name != c.name || ok != (c.name != "") || h.about != c.about || h.until.Equal(hour(d)) != c.until {
			t.Errorf("%s: the key waits under %q, %+v", what, name, h)
		}
	}
}

// Of several conditions that hold a key the first is named, and all are reported. A key that
// was not asked for waits since now.
func TestTheFirstConditionIsNamed(t *testing.T) {
	o := open(t, Settings{})
	acted(o)
	o.pass(time.Minute)
	o.engine.entries[web].dirty = true
	o.engine.Shut(kinds.Pods.Name)
	k := o.engine.Key(web)
	var holds []report.Condition
	for _, c := range k.Checks {
		if c.Holds {
			holds = append(holds, c.Condition)
		} else if c.Since != nil || c.About != "" {
			t.Errorf("a check that does not hold is %+v, want without a time and a text", c)
		}
	}
	if k.Waits != report.NotRead || !cmp.Equal(holds, []report.Condition{report.NotRead, report.NoOutcome, report.KeysWait}) {
		t.Errorf("the key waits for %s, and %v hold", k.Waits, holds)
	}
	if k.Checks[4].Since == nil || !k.Checks[4].Since.Equal(epoch) {
		t.Errorf("the key waits for its outcome since %v, want since it was stored", k.Checks[4].Since)
	}
	o.engine.Own(0)
	if k := o.engine.Key(events.Key{Name: "other"}); k.Known || k.Checks[2].Since == nil || !k.Checks[2].Since.Equal(o.now) {
		t.Errorf("the checks of an unknown key are %+v, want that it is another replica's", k.Checks)
	}
}

// Of the keys that wait under one condition the one that has waited longest is named. Keys that
// want nothing any more, or were dropped, do not count.
func TestWhichKeyHasWaitedLongest(t *testing.T) {
	o := open(t, Settings{})
	o.pass(time.Minute)
	for n, called := range []string{"c", "a", "b"} {
		e := o.engine.entry(events.Key{Name: called})
		e.known, e.write.turn = true, 7
		o.engine.pending[e] = epoch.Add(time.Duration((n+1)%3) * time.Second)
	}
	o.engine.pending[o.engine.entry(events.Key{Name: "at rest"})] = epoch
	o.engine.pending[&entry{key: events.Key{Name: "forgotten"}, dirty: true}] = epoch
	parked := o.engine.entry(events.Key{Name: "parked"})
	parked.parked, parked.known, parked.write.turn = &Parked{}, true, 7
	o.engine.pending[parked] = epoch
	want := map[report.Condition]Waiting{report.NoOutcome: {Keys: 3, Oldest: events.Key{Name: "b"}, Since: epoch, About: "no writer says that it is there"}}
	if w := o.engine.Waiting(); !cmp.Equal(w, want) {
		t.Errorf("the waiting keys are %+v, want %+v", w, want)
	}
}
