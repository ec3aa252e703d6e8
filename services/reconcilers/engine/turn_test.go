package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache/cachetest"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// scripted is an office of a controller whose decisions the test sets.
func scripted(t *testing.T, settings Settings, change func(*reconcile.Controller[cachetest.View])) (*office, *reconcile.Decision) {
	says, c := &reconcile.Decision{}, toy()
	c.Decide = func(cachetest.View, time.Time) reconcile.Decision { return *says }
	if change != nil {
		change(&c)
	}
	o := open(t, settings)
	o.memory.Register(c.Describe())
	o.engine = New(c, o.memory, o, settings, o.now)
	return o, says
}

// The commands of the scripts: a write, a report, and an Event.
var (
	makesPod = reconcile.Create(kinds.Pods.Kind, "default", "p", []byte(`{}`))
	reports  = reconcile.UpdateStatus(kinds.ReplicaSets.Kind, aSet("web", 1, 1, 0, ""))
	records  = reconcile.Record(events.Notice{About: reconcile.About(kinds.ReplicaSets.Kind, aSet("web", 1, 1, 0, "")), Reason: "Made"})
)

// decides has the engine decide about the set for the first time.
func (o *office) decides() {
	o.t.Helper()
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
}

// lanes are the lanes of the stored turns.
func (o *office) lanes() (all []events.Lane) {
	for _, s := range o.stored {
		all = append(all, s.Lane)
	}
	return all
}

// A wake in the past sets none: the key is asked again after its back-off, which starts anew
// once the key wants nothing.
func TestAWakeThatIsOverdueIsARetry(t *testing.T) {
	for what, c := range map[string]struct {
		decision reconcile.Decision
		retries  bool
		wakes    int
	}{
		"now":                 {reconcile.Decision{WakeAt: epoch}, true, 0},
		"before":              {reconcile.Decision{WakeAt: epoch.Add(-time.Hour)}, true, 0},
		"later":               {reconcile.Decision{WakeAt: epoch.Add(1)}, false, 1},
		"never":               {reconcile.Decision{}, false, 0},
		"again":               {reconcile.Decision{Retry: true}, true, 0},
		"again, and an alarm": {reconcile.Decision{Retry: true, WakeAt: epoch.Add(time.Hour)}, true, 1},
	} {
		o, says := scripted(t, Settings{}, nil)
		*says = c.decision
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
		e := o.engine.entry(web)
		if got := o.engine.Tally().Retries; (got == 1) != c.retries || (e.retries == 1) != c.retries || len(o.wakes) != c.wakes || e.dirty != c.retries {
			t.Errorf("%s: %d retries, %d wakes, and it wants a turn: %t", what, got, len(o.wakes), e.dirty)
		}
	}
	o, says := scripted(t, Settings{Backoff: time.Second, MaxBackoff: time.Hour}, nil)
	says.Retry = true
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	for _, wait := range []time.Duration{time.Second, 2 * time.Second} {
		before := o.engine.Tally().Nothing
		if o.pass(wait - 1); o.engine.Tally().Nothing != before {
			t.Errorf("the key is asked again before %v", wait)
		}
		if o.pass(1); o.engine.Tally().Nothing != before+1 {
			t.Errorf("the key is not asked again after %v", wait)
		}
	}
	says.Retry = false
	if o.pass(4 * time.Second); o.engine.entry(web).retries != 0 {
		t.Errorf("when the key wants nothing its retries are %d, want 0", o.engine.entry(web).retries)
	}
}

// The wake of a decision that acts is in its turn, and is set.
func TestAnActMayWake(t *testing.T) {
	o, says := scripted(t, Settings{}, nil)
	*says = reconcile.Do("so", makesPod)
	says.WakeAt = epoch.Add(time.Minute)
	o.decides()
	if turn := o.take(events.LaneWrite); turn.WakeAt == nil || !turn.WakeAt.Equal(epoch.Add(time.Minute)) || len(o.wakes) != 1 {
		t.Errorf("the turn wakes at %v, and %d wakes are set", turn.WakeAt, len(o.wakes))
	}
	o, says = scripted(t, Settings{}, nil)
	*says = reconcile.Do("so", makesPod)
	o.decides()
	turn := o.take(events.LaneWrite)
	if turn.WakeAt != nil || turn.Kind != kinds.ReplicaSets.Name || turn.UID != "uid-web" || turn.ResourceVersion != "1" || turn.Generation != 1 || len(o.wakes) != 0 {
		t.Errorf("the turn is %+v", turn.Turn)
	}
}

// A later wake does not fire when an earlier one replaces it, and the earlier one fires once.
func TestTheEarlierWakeRings(t *testing.T) {
	o, says := scripted(t, Settings{}, nil)
	wake := func(version int, after time.Duration) {
		says.WakeAt = o.now.Add(after)
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", version, 1, 0, ""))
		for _, w := range o.wakes {
			o.engine.Scheduled(web, w.At, nil)
		}
		o.wakes = nil
	}
	wake(1, time.Hour)
	wake(2, time.Minute)
	says.WakeAt = time.Time{}
	turns := o.engine.Tally().Nothing
	o.pass(time.Minute)
	if e := o.engine.entry(web); o.engine.Tally().Nothing != turns+1 || !e.wake.IsZero() {
		t.Errorf("in a minute there were %d turns, and the next wake is at %v", o.engine.Tally().Nothing-turns, e.wake)
	}
	if o.pass(2 * time.Hour); o.engine.Tally().Nothing != turns+1 {
		t.Errorf("in two hours there were %d turns", o.engine.Tally().Nothing-turns)
	}
	// A wake whose time has come does not keep another one from being set.
	o.engine.entry(web).wake = o.now.Add(-1)
	says.WakeAt = o.now.Add(time.Hour)
	if o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 1, 0, "")); len(o.wakes) != 1 {
		t.Errorf("%d wakes are set", len(o.wakes))
	}
}

// The engine records that the bus refused a wake, and a refused wake does not replace another
// one.
func TestAWakeThatIsRefusedIsNoticed(t *testing.T) {
	o, says := scripted(t, Settings{}, nil)
	says.WakeAt = epoch.Add(time.Hour)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	away := errors.New("away")
	o.engine.Scheduled(web, epoch.Add(time.Minute), away) // of another moment
	if e := o.engine.entries[web]; !errors.Is(o.engine.storeRefusal.err, away) || e.wake.IsZero() {
		t.Errorf("the bus says %v, and the wake is at %v", o.engine.storeRefusal.err, e.wake)
	}
	o.engine.Scheduled(events.Key{Name: "gone"}, epoch, nil)
	if o.engine.storeRefusal.err != nil {
		t.Errorf("the bus says %v", o.engine.storeRefusal.err)
	}
}

// A report that comes first goes alone; only an Event does not hold back the write.
func TestWhatGoesOutTogether(t *testing.T) {
	first := func(d reconcile.Decision) reconcile.Decision { d.ReportFirst = true; return d }
	sure := func(d reconcile.Decision) reconcile.Decision { d.Sure = true; return d }
	for what, c := range map[string]struct {
		decision reconcile.Decision
		want     []events.Lane
		shut     int
	}{
		"a write":                         {reconcile.Do("so", makesPod), []events.Lane{events.LaneWrite}, 0},
		"a report":                        {reconcile.Do("so", reports), []events.Lane{events.LaneStatus}, 0},
		"both":                            {reconcile.Do("so", makesPod, reports), []events.Lane{events.LaneWrite, events.LaneStatus}, 0},
		"a report first":                  {first(reconcile.Do("so", makesPod, reports)), []events.Lane{events.LaneStatus}, 1},
		"an Event first":                  {first(reconcile.Do("so", makesPod, records)), []events.Lane{events.LaneWrite, events.LaneStatus}, 0},
		"a report and an Event first":     {first(reconcile.Do("so", makesPod, records, reports)), []events.Lane{events.LaneStatus}, 1},
		"a report first and no write":     {first(reconcile.Do("so", reports)), []events.Lane{events.LaneStatus}, 0},
		"a write and a sure Event":        {sure(reconcile.Do("so", makesPod, records)), []events.Lane{events.LaneWrite, events.LaneStatus}, 0},
		"a write that is to come, and it": {first(sure(reconcile.Do("so", makesPod, records, reports))), []events.Lane{events.LaneStatus}, 1},
	} {
		o, says := scripted(t, Settings{}, nil)
		*says = c.decision
		if o.decides(); !slices.Equal(o.lanes(), c.want) || o.engine.Tally().Shut != c.shut {
			t.Errorf("%s: stored are %v, and %d were held back; want %v, %d", what, o.lanes(), o.engine.Tally().Shut, c.want, c.shut)
		}
		if e := o.engine.entries[web]; e.dirty != (c.shut > 0) {
			t.Errorf("%s: the key wants a turn: %t, want %t", what, e.dirty, c.shut > 0)
		}
	}
}

// The engine checks what a controller may write before it stores anything, against the key's
// own object.
func TestWhatIsBeyondTheWritesIsNotStored(t *testing.T) {
	other := aSet("other", 1, 1, 0, "")
	bound := func(c *reconcile.Controller[cachetest.View]) {
		c.Writes = reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.Pods.Name, On: reconcile.Namesake},
			{Verb: events.VerbUpdate, Kind: kinds.ReplicaSets.Name, Subresource: "status", On: reconcile.Itself},
		}
	}
	for what, c := range map[string]struct {
		command events.Command
		breaks  string
	}{
		"what it may":                {reconcile.Create(kinds.Pods.Kind, "default", "web", []byte(`{}`)), ""},
		"its own report":             {reports, ""},
		"of another name":            {makesPod, "is beyond what the controller may write"},
		"a report of another object": {reconcile.UpdateStatus(kinds.ReplicaSets.Kind, other), "is beyond what the controller may write"},
		"of another sort":            {reconcile.Delete(kinds.Pods.Kind, aPod("web", "", 1)), "is not among what the controller may write"},
	} {
		o, says := scripted(t, Settings{}, bound)
		*says = reconcile.Do("so", c.command)
		if o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "")); c.breaks == "" {
			o.recalled(Past{}, Past{})
		}
		e := o.engine.entries[web]
		broken := o.engine.outsidePromise(web, answer{object: aSet("web", 1, 1, 0, "")}, []events.Command{c.command})
		if !strings.Contains(broken, c.breaks) || (broken == "") != (c.breaks == "") || (e.broken == 1) != (c.breaks != "") || (len(o.stored) == 1) != (c.breaks == "") || len(o.takeRecalls()) != 0 {
			t.Errorf("%s: broken %d times, because %q; %d turns are stored", what, e.broken, broken, len(o.stored))
		}
	}
}

// The state that a turn leaves behind for the next one.
func TestWhatATurnRemembers(t *testing.T) {
	o, says := scripted(t, Settings{}, nil)
	*says = reconcile.Do("so", makesPod, makesPod)
	o.fold(kinds.Pods.Kind, events.Is, aPod("other", "", 1))
	o.decides()
	turn, e := o.take(events.LaneWrite), o.engine.entries[web]
	if len(turn.Shapes) != 1 || turn.Commands[0].Body != nil {
		t.Errorf("the commands are not packed: %+v", turn.Commands)
	}
	if e.write.tried != "1" || e.write.saw[kinds.Pods.Name] != 1 || !e.write.storing.Equal(epoch) || !e.since.IsZero() || e.retries != 0 || o.engine.Storing() != 1 {
		t.Errorf("the lane is %+v; it waits since %v", e.write, e.since)
	}
	if e.dirty || len(e.Oldest) != 0 || e.round == nil || len(e.round.waiting) != 1 {
		t.Errorf("while it is stored it wants a turn: %t, waiting are %v, round %+v", e.dirty, e.Oldest, e.round)
	}
	// A turn that is not stored leaves its changes waiting.
	o.pass(time.Second)
	o.answer(events.LaneWrite, 0, bus.ErrOvertaken)
	if b := o.engine.Backlog()[kinds.ReplicaSets.Name]; b.Sequence != 1 || !e.dirty {
		t.Errorf("after it was overtaken %+v waits, and it wants a turn: %t", b, e.dirty)
	}
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	if b := o.engine.Backlog(); len(b) != 0 || len(e.Triggers) != 0 || !e.since.IsZero() || !o.engine.decidedAt.Equal(o.now) {
		t.Errorf("when the turn is stored %v still waits, because of %v", b, e.Triggers)
	}
	// A decision without commands is a decision, too.
	*says = reconcile.Nothing("all is well")
	o.pass(time.Second)
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Unchanged})
	if !o.engine.decidedAt.Equal(o.now) {
		t.Errorf("the last decision was at %v, want now", o.engine.decidedAt)
	}
}

// A turn that was to begin a trace and is not stored leaves that to the next one.
func TestATurnThatIsNotStoredBeganNoTrace(t *testing.T) {
	o, says := scripted(t, Settings{}, nil)
	*says = reconcile.Do("so", makesPod)
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.engine.Ask(web)
	o.run()
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	e := o.engine.entries[web]
	if e.first || !e.round.first {
		t.Errorf("while a turn is stored the next may begin a trace: %t, want false", e.first)
	}
	if o.answer(events.LaneWrite, 0, bus.ErrOvertaken); !e.first {
		t.Error("after a turn was overtaken the next begins no trace")
	}
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	if o.answer(events.LaneWrite, 10, nil); e.first {
		t.Error("after a turn was stored the next begins another trace")
	}
}

// An effect that has been folded does not hold back a key, even if the engine has not been told
// yet.
func TestATurnLooksAtTheMemory(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	o.none()
	o.memory.Fold(kinds.Pods.Name, []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("p", "", 5), 1)})
	o.engine.Ask(web)
	o.run()
	o.take(events.LaneWrite)
}

// A key of which a stream has lost messages is recalled once before the engine decides about
// it.
func TestAKeyIsInquiredAboutBeforeItIsDecidedAbout(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	nothing := o.engine.Tally().Nothing
	o.engine.entry(web).mustRecall = true
	o.engine.Ask(web)
	if o.run(); o.engine.Tally().Nothing != nothing || len(o.recalls) != 2 {
		t.Errorf("the key was decided about %d times, and recalled are %v; want 0, and both lanes", o.engine.Tally().Nothing-nothing, o.recalls)
	}
	o.engine.Ask(web)
	o.run()
	o.recalled(Past{}, Past{})
	if o.engine.Tally().Nothing != nothing+1 || len(o.recalls) != 0 {
		t.Errorf("the key was decided about %d times, want once", o.engine.Tally().Nothing-nothing)
	}
	o.engine.Ask(web)
	if o.run(); len(o.recalls) != 0 {
		t.Error("the key is recalled again")
	}
}

// Keys with commands on an inconsistent view wait since the first of them had to; a key without
// commands does not.
func TestSinceWhenKeysWaitForAView(t *testing.T) {
	o, says := scripted(t, Settings{}, nil)
	*says = reconcile.Do("so", makesPod)
	for _, called := range []string{"web", "db"} {
		e := o.engine.entry(events.Key{Namespace: "default", Name: called})
		e.known = true
	}
	disagree(o.memory, kinds.Pods.Kind)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.pass(time.Minute)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("db", 2, 1, 0, ""))
	if !o.engine.heldSince.Equal(epoch) || len(o.engine.inconsistent) != 2 || len(o.stored) != 0 {
		t.Errorf("%d keys wait since %v, and %d turns are stored", len(o.engine.inconsistent), o.engine.heldSince, len(o.stored))
	}
	*says = reconcile.Nothing("all is well")
	o.engine.inconsistent = nil
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 1, 0, ""))
	if len(o.engine.inconsistent) != 0 {
		t.Error("a key that wants nothing waits")
	}
}

// A round is over when all of its answers have come, and a key that asked meanwhile is looked
// at then.
func TestWhenARoundIsOver(t *testing.T) {
	o, says := scripted(t, Settings{}, nil)
	*says = reconcile.Do("so", makesPod, reports)
	o.decides()
	o.take(events.LaneWrite)
	o.take(events.LaneStatus)
	o.answer(events.LaneWrite, 10, nil)
	e := o.engine.entries[web]
	if e.round == nil || o.engine.Storing() != 1 {
		t.Fatalf("one answer is to come, and the round is %+v", e.round)
	}
	*says = reconcile.Nothing("all is well")
	nothing := o.engine.Tally().Nothing
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 0, ""))
	if o.engine.Tally().Nothing != nothing || !e.missed {
		t.Error("a turn is made during the round")
	}
	o.engine.answerRound(&entry{}, true) // an answer for a round that is over
	shut := o.engine.Tally().Shut
	if o.answer(events.LaneStatus, 11, nil); e.round != nil || e.missed || o.engine.Tally().Nothing != nothing || o.engine.Tally().Shut != shut+1 {
		t.Errorf("after the answer the round is %+v, and the key was looked at %d times; want none and 1", e.round, o.engine.Tally().Shut-shut)
	}
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Unchanged})
	o.outcome(events.LaneStatus, 11, events.Result{Status: events.Unchanged})
	if o.engine.Tally().Nothing == nothing {
		t.Error("a change that came during the round has had no turn")
	}
}

// An entry is deleted when it holds no state that is needed.
func TestWhichKeysAreForgotten(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*office, *entry)
		ok     bool
		kept   bool
	}{
		"nothing is there":         {func(*office, *entry) {}, false, false},
		"it never had a turn":      {func(*office, *entry) {}, true, false},
		"it had a turn":            {func(_ *office, e *entry) { e.write.turn, e.write.outcome = 7, 7 }, true, true},
		"it had a report":          {func(_ *office, e *entry) { e.status.turn, e.status.outcome = 7, 7 }, true, true},
		"its turn expired":         {func(_ *office, e *entry) { e.write.remember = true }, true, true},
		"its turn is being stored": {func(_ *office, e *entry) { e.status.storing = epoch }, true, true},
		"its turn is in doubt":     {func(_ *office, e *entry) { e.write.suspected = true }, true, true},
		"its turn is stored again": {func(_ *office, e *entry) { e.write.repeating = true }, true, true},
		"it is being recalled":     {func(_ *office, e *entry) { e.recalling = 1 }, true, true},
		"it has to be recalled":    {func(_ *office, e *entry) { e.mustRecall = true }, true, true},
		"the bus failed":           {func(_ *office, e *entry) { e.until = epoch }, true, true},
		"an attempt broke":         {func(_ *office, e *entry) { e.broken = 1 }, true, true},
		"it is being parked":       {func(_ *office, e *entry) { e.parking = "broken" }, true, true},
		"it is parked":             {func(_ *office, e *entry) { e.parked = &Parked{} }, true, true},
		"its object is unreadable": {func(_ *office, e *entry) { e.message = true }, true, true},
		"it wants a turn":          {func(_ *office, e *entry) { e.dirty = true }, false, true},
		"a round goes on":          {func(_ *office, e *entry) { e.round = &round{} }, false, true},
		"a write is under way":     {func(_ *office, e *entry) { e.write.turn = 7 }, false, true},
		"a report is under way":    {func(_ *office, e *entry) { e.status.turn = 7 }, false, true},
		"a wake is set":            {func(_ *office, e *entry) { e.wake = epoch }, false, true},
		"it stands in the queue":   {func(_ *office, e *entry) { e.Queued = true }, false, true},
		"another is in its place":  {func(o *office, e *entry) { o.engine.entries[e.key] = &entry{key: e.key} }, false, true},
		"its turns have all ended": {func(_ *office, e *entry) { e.write.turn, e.write.outcome = 7, 7 }, false, false},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		c.change(o, e)
		if o.engine.forget(e, answer{ok: c.ok}); (len(o.engine.entries) == 1) != c.kept {
			t.Errorf("%s: %d keys are known", what, len(o.engine.entries))
		}
	}
}

// While both lanes are shut, the engine asks nothing, except for a report that only its pace
// holds back: it asks for that in time.
func TestWhatIsAskedWhileLanesAreShut(t *testing.T) {
	asked := 0
	settings := Settings{Pace: time.Second, Progress: time.Minute, Shared: func(events.Key, []reconcile.Figure) { asked++ }}
	for what, c := range map[string]struct {
		status bool // a report is under way
		told   time.Duration
		asked  int
		alarm  time.Duration // 0: none
	}{
		"a report is under way": {true, 0, 0, 0}, "a report is paced": {false, 0, 0, time.Minute}, "it is time for a report": {false, -time.Minute, 1, 0},
	} {
		o, says := scripted(t, settings, nil)
		*says = reconcile.Do("so", makesPod)
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
		e := o.engine.entries[web]
		e.known, e.recalling, e.write.turn, e.lastReport = true, 0, 7, epoch.Add(c.told)
		if c.status {
			e.status.turn = 8
		}
		asked = 0
		before := o.engine.Tally().Shut
		o.engine.Ask(web)
		o.run()
		alarm := time.Duration(0)
		if !e.requeueTime.IsZero() {
			alarm = e.requeueTime.Sub(epoch)
		}
		if asked != c.asked || o.engine.Tally().Shut != before+1 || alarm != c.alarm {
			t.Errorf("%s: asked %d times, held back %d times, to be looked at in %v", what, asked, o.engine.Tally().Shut-before, alarm)
		}
	}
}

// A key that waits only for a moment is looked at then.
func TestWhatWaitsForItsTimeIsLookedAtThen(t *testing.T) {
	o, says := scripted(t, Settings{Backoff: time.Minute, MaxBackoff: time.Hour, Pace: time.Hour}, nil)
	*says = reconcile.Do("so", makesPod, reports)
	o.decides()
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 11, nil)
	o.outcome(events.LaneStatus, 11, events.Result{Status: events.Applied})
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Failed})
	if o.pass(time.Minute - 1); len(o.stored) != 0 {
		t.Fatalf("before a minute is over %v is stored, want nothing", o.lanes())
	}
	o.pass(1)
	if got := o.lanes(); !cmp.Equal(got, []events.Lane{events.LaneWrite}) {
		t.Fatalf("after a minute %v is stored, want a write turn", got)
	}
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 12, nil)
	o.outcome(events.LaneWrite, 12, events.Result{Status: events.Applied})
	o.take(events.LaneWrite)
	if !o.engine.entries[web].dirty {
		t.Error("the report that is paced is wanted no more")
	}
}
