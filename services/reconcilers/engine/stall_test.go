package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// stalls demands that the engine names a condition after [report.StallAfter] and not before;
// lasted is how long the wait has lasted already.
func (o *office) stalls(lasted time.Duration, condition report.Condition, detail string) {
	o.t.Helper()
	o.pass(report.StallAfter - lasted - 1)
	o.flows()
	o.pass(1)
	s, stalled := o.engine.Stall()
	if !stalled || s.Condition != condition || s.Detail != detail || s.Controller != "toy" || !s.Since.Equal(o.now.Add(-report.StallAfter)) {
		o.t.Errorf("at %v the stall is %+v (%t), want %s about %q since 30 s ago", o.now, s, stalled, condition, detail)
	}
	if !o.engine.Working() {
		o.t.Error("Working is false, want that the engine has work")
	}
}

// flows demands that the engine names nothing.
func (o *office) flows() {
	o.t.Helper()
	if s, stalled := o.engine.Stall(); stalled {
		o.t.Errorf("at %v it says that it stalls: %+v", o.now, s)
	}
}

func TestAnEngineAtRestDoesNotStall(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	o.pass(time.Hour)
	o.flows()
	if o.engine.Working() {
		t.Error("Working is true, want that the engine has no work")
	}
}

// A key that wants a turn waits since it asked, not since its previous turn, whether or not
// Stall was called in between.
func TestAKeyWaitsSinceItWantsSomething(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	o.pass(time.Hour)
	o.engine.Ask(web)
	o.flows()
	o.now = o.now.Add(report.StallAfter)
	o.engine.Advance(o.now)
	if s, stalled := o.engine.Stall(); !stalled || s.Condition != report.KeysWait {
		t.Errorf("a key has waited for %v, and it says %+v (stalled: %t)", report.StallAfter, s, stalled)
	}
}

// No writer runs: the turn is stored, and no outcome comes.
func TestATurnWithoutAnOutcomeStalls(t *testing.T) {
	o := begun(t, Settings{})
	o.stalls(0, report.NoOutcome, "no writer says that it is there")
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.flows()
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.engine.Recalled(web, events.LaneStatus, Past{}, nil)
	o.flows()
}

// A writer that has the turn in flight is working, however long that takes.
func TestATurnInAWritersHandDoesNotStall(t *testing.T) {
	o := begun(t, Settings{})
	for range 100 {
		o.engine.Heartbeat(report.Heartbeat{Turns: map[string][]uint64{"toy": {10}}})
		o.pass(time.Second)
		o.flows()
	}
}

// The writer has applied the turn, and no watcher reports the effects.
func TestAnEffectThatIsNotSeenStalls(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.stalls(0, report.NotSeen, "pods")
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.flows()
}

// A kind that its watcher may not list is never complete. There is work until the engine has
// been open once.
func TestAKindThatIsNeverReadStalls(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Shut(kinds.Pods.Name)
	o.stalls(0, report.NotRead, "pods")
	o.engine.Open(kinds.Pods.Name)
	o.flows()
	o.engine.Shut(kinds.Pods.Name)
	o.pass(time.Hour)
	o.flows() // nothing asks for a turn
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.stalls(0, report.NotRead, "pods")
}

// The watcher begins to list a kind in a new epoch, and does not finish.
func TestAnEpochThatIsNotToldToItsEndStalls(t *testing.T) {
	o := open(t, Settings{})
	o.engine.askedAll = true
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 1), 0), 1)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.stalls(0, report.EpochNotTold, "pods")
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "2", 0), 1)
	o.flows()
}

// The cache of a kind is damaged, and no watcher repairs it.
func TestADamagedKindStalls(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	o.engine.Shut(kinds.Pods.Name)
	o.engine.Forgot(kinds.Pods.Name, []events.Key{web})
	o.stalls(0, report.CacheInconsistent, "pods")
}

// The bus refuses all turns.
func TestABusThatRefusesTurnsStalls(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	full := errors.New("the disk is full")
	for end := o.now.Add(report.StallAfter); o.now.Before(end); {
		o.flows()
		if len(o.stored) > 0 {
			o.take(events.LaneWrite)
			o.answer(events.LaneWrite, 0, full)
		}
		if len(o.recalls) > 0 {
			o.recalled(Past{}, Past{})
		}
		o.pass(time.Second)
	}
	if s, stalled := o.engine.Stall(); !stalled || s.Condition != report.BusRefuses || s.Detail != full.Error() {
		t.Errorf("the stall is %+v (%t), want that the bus refuses because it is full", s, stalled)
	}
}

// A key that panics is parked, which is reported elsewhere. A key that waits for its back-off
// or its wake is no stall.
func TestWhatIsParkedOrWaitsForATimeDoesNotStall(t *testing.T) {
	for _, annotation := range []string{"panics", "wakes", "lies"} {
		o := open(t, Settings{})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, annotation))
		for range 120 {
			for _, lane := range o.takeRecalls() {
				o.engine.Recalled(web, lane, Past{}, nil)
			}
			for _, s := range o.stored {
				o.engine.Stored(web, s.Lane, 1, nil)
			}
			o.stored = nil
			for _, w := range o.wakes {
				o.engine.Scheduled(w.Key, w.At, nil)
			}
			o.wakes = nil
			o.pass(time.Second)
			o.flows()
		}
		if parked := len(o.engine.Parked()) == 1; parked != (annotation != "wakes") {
			t.Errorf("%s: parked is %t", annotation, parked)
		}
	}
}

// A key that broke is retried at a known time, however late that is.
func TestABackOffDoesNotStall(t *testing.T) {
	o := open(t, Settings{Backoff: time.Minute})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
	o.pass(time.Minute - 1)
	o.flows()
}

// An engine has work while a key wants something or waits for a consistent snapshot, and until
// it has been open once.
func TestWhatIsWork(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Engine)
		is     bool
	}{
		"nothing":                 {func(*Engine) {}, false},
		"a key that wants a turn": {func(d *Engine) { d.markPending(d.entry(web)) }, true},
		"a key that sees nothing": {func(d *Engine) { d.inconsistent = []*entry{{}} }, true},
		"a kind to be read first": {func(d *Engine) { d.Shut("pods") }, true},
		"a kind to be read again": {func(d *Engine) { d.askedAll = true; d.Shut("pods") }, false},
	} {
		d := open(t, Settings{}).engine
		if c.change(d); d.Working() != c.is {
			t.Errorf("%s: Working is %t, want %t", what, !c.is, c.is)
		}
	}
}

// A key wants something while it waits for a turn, has a round, or waits for the outcome or
// effects of its last turn.
func TestWhatAKeyWants(t *testing.T) {
	under, due := lane{turn: 7, outcome: 6}, lane{effects: []effect{{}}}
	for what, c := range map[string]struct {
		entry entry
		wants bool
	}{
		"nothing":                           {entry{known: true}, false},
		"a turn":                            {entry{dirty: true}, true},
		"the end of a round":                {entry{round: &round{}}, true},
		"what the streams know":             {entry{recalling: 1}, true},
		"to be set aside":                   {entry{parking: "it breaks"}, true},
		"the outcome of a write":            {entry{known: true, write: under}, true},
		"the outcome of a report":           {entry{known: true, status: under}, true},
		"to see what was done":              {entry{known: true, write: due}, true},
		"to see what was reported":          {entry{known: true, status: due}, true},
		"nothing, as it is in doubt":        {entry{write: under, status: under}, false},
		"an outcome, in doubt, and watched": {entry{write: lane{turn: 7, watched: true}}, true},
		"nothing, though it is watched":     {entry{write: lane{turn: 7, outcome: 7, watched: true}}, false},
	} {
		if c.entry.wants() != c.wants {
			t.Errorf("%s: the entry wants something: %t, want %t", what, !c.wants, c.wants)
		}
	}
}

// Work waits since the oldest key that still wants something; the others are dropped.
func TestSinceWhenThereIsWork(t *testing.T) {
	d := open(t, Settings{}).engine
	d.now = epoch.Add(time.Hour)
	if since, some := d.work(); some || !since.Equal(d.now) {
		t.Errorf("with nothing to do there is work since %v", since)
	}
	for n, called := range []string{"c", "a", "b", "at rest"} {
		e := d.entry(events.Key{Name: called})
		e.dirty = n < 3
		d.pending[e] = epoch.Add(time.Duration(n%3) * time.Minute)
	}
	d.pending[&entry{key: events.Key{Name: "a"}, dirty: true}] = epoch.Add(-time.Hour) // forgotten
	if since, some := d.work(); !some || !since.Equal(epoch) || len(d.pending) != 3 {
		t.Errorf("there is work since %v, of %d keys", since, len(d.pending))
	}
}

// The bus refuses since the first of its errors in a row; the last error is the reason.
func TestSinceWhenTheBusRefuses(t *testing.T) {
	o := open(t, Settings{})
	var r refusal
	say := func(err error, want refusal) {
		t.Helper()
		o.now = o.now.Add(time.Second)
		o.engine.Advance(o.now)
		if o.engine.recordReply(&r, err); !errors.Is(r.err, want.err) || want.err != nil && !r.since.Equal(want.since) || !o.engine.repliedAt.Equal(o.now) {
			t.Errorf("the bus refuses since %v: %v; it answered at %v", r.since, r.err, o.engine.repliedAt)
		}
	}
	first, second := errors.New("full"), errors.New("away")
	say(nil, refusal{})
	say(first, refusal{first, epoch.Add(2 * time.Second)})
	say(second, refusal{second, epoch.Add(2 * time.Second)})
	say(nil, refusal{})
	say(second, refusal{second, epoch.Add(5 * time.Second)})
}

// Why an engine is shut: a kind in a new epoch comes before a damaged one, and that before one
// that has not been read.
func TestWhyAnEngineIsShut(t *testing.T) {
	for range 20 { // maps have no order
		d := open(t, Settings{}).engine
		for _, kind := range []kinds.Name{"pods", unfound, "nodes", "events"} {
			d.Shut(kind)
		}
		is := func(want report.Condition) {
			t.Helper()
			if w := d.whyShut(epoch); w.condition != want || !slices.Equal(w.about, []string{"events", "nodes", "pods", "the kinds that there are"}) || !w.since.Equal(epoch) {
				t.Fatalf("the engine is shut with %+v, want %s", w, want)
			}
		}
		is(report.NotRead)
		d.forgotten["nodes"] = true
		is(report.CacheInconsistent)
		d.listingEpoch["pods"] = true
		is(report.EpochNotTold)
	}
}

// A shut engine stalls since it was shut. Once it has been open, it stalls no longer than there
// has been work.
func TestSinceWhenAShutEngineWaits(t *testing.T) {
	at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
	for what, c := range map[string]struct {
		asked     bool
		shut, key int // in minutes; 0: there is no key
		want      int // 0: it does not wait
	}{
		"at first":                    {false, 1, 5, 1},
		"at first, without a key":     {false, 1, 0, 1},
		"later":                       {true, 1, 5, 5},
		"later, with an older key":    {true, 5, 1, 5},
		"later, and without a key":    {true, 1, 0, 0},
		"at first, with an older key": {false, 9, 1, 9},
	} {
		d := open(t, Settings{}).engine
		d.now = at(60)
		d.Shut("pods")
		d.shutSince, d.askedAll = at(c.shut), c.asked
		if c.key > 0 {
			e := d.entry(web)
			e.dirty, d.pending[e] = true, at(c.key)
		}
		waits := d.waits()
		if c.want == 0 && len(waits) != 0 || c.want > 0 && (len(waits) != 1 || waits[0].condition != report.NotRead || !waits[0].since.Equal(at(c.want))) {
			t.Errorf("%s: the waits are %+v", what, waits)
		}
	}
}

// Why keys wait for a consistent snapshot: the controller reads kinds of other epochs, or
// inconsistent ones.
func TestWhyAViewIsUnclear(t *testing.T) {
	pods, sets, nodes := kinds.Pods.Kind, kinds.ReplicaSets.Kind, kinds.Nodes.Kind
	marked := func(c *cache.Cache, kind kinds.Kind, epoch uint64) {
		c.Fold(kind.Name, []events.Message{inEpoch(markAt(kind, "1", 1), epoch)})
	}
	for what, c := range map[string]struct {
		change    func(*cache.Cache)
		condition report.Condition
		about     []string
	}{
		"one is inconsistent": {func(c *cache.Cache) { disagree(c, pods); disagree(c, nodes) }, report.CacheInconsistent, []string{"pods"}},
		"two are":             {func(c *cache.Cache) { disagree(c, pods); disagree(c, sets) }, report.CacheInconsistent, []string{"pods", "replicasets.apps"}},
		"one lags":            {func(c *cache.Cache) { marked(c, pods, 1); disagree(c, sets) }, report.EpochNotTold, []string{"replicasets.apps"}},
		"one lags unmarked": {func(c *cache.Cache) {
			c.Fold(pods.Name, []events.Message{inEpoch(delta(pods, events.Is, aPod("p", "", 1), 1), 2)})
			marked(c, sets, 2)
		}, report.EpochNotTold, []string{"pods"}},
		"both lag": {func(c *cache.Cache) { marked(c, nodes, 1) }, report.EpochNotTold, []string{"pods", "replicasets.apps"}},
	} {
		for range 5 {
			o := open(t, Settings{})
			o.memory.Follow(kinds.Nodes.Kind)
			c.change(o.memory)
			o.engine.heldSince = epoch.Add(-time.Minute)
			o.engine.inconsistent = []*entry{{}}
			if w := o.engine.waits(); len(w) != 1 || w[0].condition != c.condition || !slices.Equal(w[0].about, c.about) || !w[0].since.Equal(epoch.Add(-time.Minute)) {
				t.Fatalf("%s: the waits are %+v", what, w)
			}
		}
	}
}

// Of the keys that wait under one condition the oldest counts, and each subject is named once,
// in order. A key that waits for a consistent snapshot, or under a condition of its own, is not
// among them.
func TestWhatHoldsSingleKeys(t *testing.T) {
	o := open(t, Settings{})
	d := o.engine
	o.pass(time.Minute)
	add := func(called string, since time.Duration, change func(*entry)) *entry {
		e := d.entry(events.Key{Namespace: "default", Name: called})
		e.known = true
		change(e)
		d.pending[e] = epoch.Add(since)
		return e
	}
	under := func(e *entry) { e.write.turn = 7 }
	add("a", 2*time.Second, under)
	add("b", time.Second, under)
	add("c", 3*time.Second, under)
	waits := func(kind kinds.Name) func(*entry) {
		return func(e *entry) { e.write.effects = []effect{of(kind, "p", "u", "5", false)} }
	}
	add("d", 4*time.Second, waits(kinds.ReplicaSets.Name))
	add("e", 5*time.Second, waits(kinds.Pods.Name))
	add("f", 6*time.Second, waits(kinds.Pods.Name))
	add("parked", 0, func(e *entry) { e.parked = &Parked{} })
	d.inconsistent = []*entry{add("inconsistent", -time.Hour, under)}
	all := d.keyHolds()
	if len(all) != 2 {
		t.Fatalf("the keys wait under %+v, want two conditions", all)
	}
	for i, want := range []wait{
		{report.NoOutcome, epoch.Add(time.Second), []string{"no writer says that it is there"}},
		{report.NotSeen, epoch.Add(4 * time.Second), []string{"pods", "replicasets.apps"}},
	} {
		if got := all[i]; got.condition != want.condition || !got.since.Equal(want.since) || !slices.Equal(got.about, want.about) {
			t.Errorf("the keys wait under %+v, want %+v", got, want)
		}
	}
	for since, there := range map[time.Duration]bool{MaxHeartbeatAge: true, MaxHeartbeatAge + 1: false} {
		if d.writersSeen = d.now.Add(-since); (d.describeWriters() == "writers are there, and none has its turns") != there {
			t.Errorf("%v after a writer was heard: %s", since, d.describeWriters())
		}
	}
}

// A wait's detail names three subjects, and how many more there are.
func TestAWaitNamesThree(t *testing.T) {
	for want, about := range map[string][]string{"": nil, "a": {"a"}, "a, b, c": {"a", "b", "c"}, "a, b, c and 1 more": {"a", "b", "c", "d"}} {
		if got := (wait{about: about}).detail(); got != want {
			t.Errorf("%v: %q, want %q", about, got, want)
		}
	}
}
