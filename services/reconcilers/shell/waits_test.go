package shell

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestEveryWaitOfAKeyIsNamed: of a key in each sort of wait its state names the condition, what
// that is about, and, where time ends it, the moment.
func TestEveryWaitOfAKeyIsNamed(t *testing.T) {
	full := errors.New("the disk is full")
	for name, tc := range map[string]struct {
		reach func(o *office)
		waits events.Condition
		about string
		until time.Duration // from when it is asked; 0: time does not end it
	}{
		"nothing asks for a turn": {reach: func(o *office) { o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "")) }},
		"another replica has it":  {reach: func(o *office) { o.desk.Own(0) }, waits: events.OtherReplica},
		"a kind is not read": {reach: func(o *office) {
			o.desk.Shut(kinds.Pods.Name)
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
		}, waits: events.NotRead, about: "pods"},
		"an epoch is not told to its end": {reach: func(o *office) {
			o.desk.askedAll = true
			o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 1), 0), 1)
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			o.pass(time.Second)
		}, waits: events.EpochNotTold, about: "pods"},
		"another kind is told in a newer epoch": {reach: func(o *office) {
			o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "2", 0), 1)
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			o.recalled(Past{}, Past{})
			o.pass(time.Second)
		}, waits: events.EpochNotTold, about: "replicasets.apps"},
		"it is parked": {reach: func(o *office) {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
			for range 20 {
				o.pass(time.Minute)
				for _, lane := range o.takeRecalls() {
					o.desk.Recalled(web, lane, Past{}, nil)
				}
				for _, s := range o.stored {
					o.desk.Stored(web, s.Lane, 1, nil)
				}
				o.stored = nil
			}
		}, waits: events.Parked, about: "panic: a set that breaks"},
		"its turn has no outcome": {reach: func(o *office) { acted(o) }, waits: events.NoOutcome, about: "no writer says that it is there"},
		"its effects are not seen": {reach: func(o *office) {
			acted(o)
			o.outcome(events.Act, 10, born("p", "5"))
		}, waits: events.NotSeen, about: "pods"},
		"the bus does not answer": {reach: func(o *office) {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
		}, waits: events.BusRefuses, about: "it does not answer"},
		"the bus refuses": {reach: func(o *office) {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			o.recalled(Past{}, Past{})
			o.take(events.Act)
			o.answer(events.Act, 0, full)
		}, waits: events.BusRefuses, about: full.Error()},
		"it backs off": {reach: func(o *office) {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
		}, waits: events.BackingOff, until: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, Settings{})
			tc.reach(o)
			k := o.desk.Key(web)
			if k.Waits != tc.waits || k.Reason == "" {
				t.Fatalf("it waits for %q (%s), want %q; %+v", k.Waits, k.Reason, tc.waits, k.Checks)
			}
			if len(k.Checks) < len(conditions) {
				t.Errorf("it has %d checks, fewer than there are", len(k.Checks))
			}
			for _, c := range k.Checks {
				if c.Condition != tc.waits || !c.Holds {
					continue
				}
				if c.About != tc.about || c.Since == nil || c.Reason != k.Reason {
					t.Errorf("it is about %q since %v, want %q", c.About, c.Since, tc.about)
				}
				if (c.Until == nil) != (tc.until == 0) || c.Until != nil && !c.Until.Equal(o.now.Add(tc.until)) {
					t.Errorf("it ends at %v, want after %v", c.Until, tc.until)
				}
				return
			}
			if tc.waits != "" {
				t.Error("no check of that name holds")
			}
		})
	}
}

// acted has a turn of web stored, as the tenth of the stream.
func acted(o *office) {
	o.t.Helper()
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.answer(events.Act, 10, nil)
}

// TestAKeyTellsOfItsTurns: which were stored, which have an outcome, and what has not come back.
func TestAKeyTellsOfItsTurns(t *testing.T) {
	o := open(t, Settings{})
	if k := o.desk.Key(web); k.Known {
		t.Error("a key is known that there never was")
	}
	acted(o)
	o.outcome(events.Act, 10, born("p", "5"))
	want := events.LaneState{Turn: 10, Outcome: 10, Unseen: []events.Ref{{Kind: kinds.Pods.Name, Namespace: "default", Name: "p"}}}
	if k := o.desk.Key(web); !k.Known || !cmp.Equal(k.Act, want) {
		t.Errorf("it says %+v, want %+v", k.Act, want)
	}
}

// TestKeysThatWaitForLongAreCounted: after ten seconds under one condition, and not where a known
// moment ends the wait.
func TestKeysThatWaitForLongAreCounted(t *testing.T) {
	o := open(t, Settings{})
	acted(o)
	o.pass(LongWait - 1)
	if w := o.desk.Waiting(); len(w) > 0 {
		t.Errorf("too early: %+v", w)
	}
	since := o.now.Add(1 - LongWait)
	o.pass(1)
	want := map[events.Condition]Waiting{events.NoOutcome: {Keys: 1, Oldest: web, Since: since, About: "no writer says that it is there"}}
	if w := o.desk.Waiting(); !cmp.Equal(w, want) {
		t.Errorf("it says %+v, want %+v", w, want)
	}
	o.outcome(events.Act, 10, born("p", "5"))
	if w := o.desk.Waiting(); len(w) > 0 {
		t.Errorf("the outcome is there, and it says %+v", w)
	}
	slow := open(t, Settings{Backoff: time.Hour})
	slow.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
	slow.pass(2 * LongWait)
	if w := slow.desk.Waiting(); len(w) > 0 {
		t.Errorf("of a key that backs off it says %+v", w)
	}
}
