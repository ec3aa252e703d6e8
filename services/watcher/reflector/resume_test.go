package reflector

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/versions"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// marked is a watch of pods on an ailing bus; the log has three objects, and two marks.
func marked(t *testing.T) (*Reflector, *bustest.Bus) {
	t.Helper()
	k, a := recorded(t, 3, 0)
	if k.mark(t.Context()) != nil {
		t.Fatal("mark: the mark is refused")
	}
	return k, a
}

// resumes makes a watch that knows nothing read its log.
func resumes(t *testing.T, k *Reflector) (ok bool, reason string) {
	t.Helper()
	k.logState, k.cursor, k.latest = logState{}, translate.Cursor{}, noDelta
	ok, err := k.resume(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ok, k.nextGap.Reason
}

// A watch resumes from the newest delta only if that is a position. Otherwise it notes since when
// changes may be missing.
func TestWhatAWatchGoesOnFrom(t *testing.T) {
	t.Parallel()
	appends := func(d events.Delta) func(*testing.T, *Reflector) {
		return func(t *testing.T, k *Reflector) {
			t.Helper()
			d.Kind, d.At = "pods", time.Unix(1e9, 0)
			if err := k.append(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	for what, c := range map[string]struct {
		change          func(*testing.T, *Reflector)
		reason, version string
		since           bool // it is known since when
	}{
		"a mark":             {func(*testing.T, *Reflector) {}, "", "9", false},
		"a change":           {appends(events.Delta{Op: events.Is, Ref: watchertest.APod("p0"), UID: "u0", ResourceVersion: "12"}), "", "12", true},
		"an end":             {appends(events.Delta{Op: events.Gone, Ref: watchertest.APod("p0"), UID: "u0", ResourceVersion: "13"}), "", "13", true},
		"a finding":          {appends(events.Delta{Op: events.Is, Ref: watchertest.APod("p0"), UID: "u0", ResourceVersion: "12", Sync: true}), "a relist was not finished", "", false},
		"a gap":              {appends(events.Delta{Op: events.Gap, ResourceVersion: "12", ContentType: kinds.JSON, Body: []byte("{}")}), "a relist was not finished", "", false},
		"what is not served": {appends(translate.Unserved("pods", "12", translate.Stamp{})), "the API server did not serve the kind", "", true},
		"a change behind a gap": {func(t *testing.T, k *Reflector) {
			appends(translate.Gap("pods", "12", translate.Stamp{}))(t, k)
			appends(events.Delta{Op: events.Is, Ref: watchertest.APod("p0"), UID: "u0", ResourceVersion: "13"})(t, k)
		}, "the last mark of the log is damaged or missing", "", true},
		"a change behind a gap and a mark": {func(t *testing.T, k *Reflector) {
			appends(translate.Gap("pods", "12", translate.Stamp{}))(t, k)
			appends(translate.Mark("pods", "12", translate.Stamp{}))(t, k)
			appends(events.Delta{Op: events.Is, Ref: watchertest.APod("p0"), UID: "u0", ResourceVersion: "13"})(t, k)
		}, "", "13", true},
		"a change behind a damaged mark": {func(t *testing.T, k *Reflector) {
			appends(events.Delta{Op: events.Is, Ref: watchertest.APod("p0"), UID: "u0", ResourceVersion: "12"})(t, k)
			k.bus = watchertest.Worn(k.bus, logPods, []uint64{5})
		}, "the last mark of the log is damaged or missing", "", true},
		"a mark without a position": {func(t *testing.T, k *Reflector) { k.cursor.Version = ""; _ = k.mark(t.Context()) }, "a relist was not finished", "", false},
		"what waits": {func(t *testing.T, k *Reflector) {
			k.bounds.Bound = versions.Bound{Burst: 1, PerSecond: 1}
			for _, first := range []bool{true, false} {
				k.bounds.Admits(events.Delta{UID: "x", Body: []byte("xx")}, translate.Writers{}, first, time.Now())
			}
			appends(events.Delta{Op: events.Is, Ref: watchertest.APod("p0"), UID: "u0", ResourceVersion: "12"})(t, k)
			k.bounds = versions.Bounds{}
		}, "versions that waited to be recorded were not, when their watcher ended", "", true},
	} {
		k, _ := marked(t)
		c.change(t, k)
		ok, reason := resumes(t, k)
		if ok != (c.reason == "") || reason != c.reason || k.cursor.Version != c.version {
			t.Errorf("%s: it resumes at %q: %t, %s; want %q, %q", what, k.cursor.Version, ok, reason, c.version, c.reason)
		}
		if k.nextGap.Since.Equal(time.Unix(1e9, 0)) != c.since {
			t.Errorf("%s: changes may be missing since %v", what, k.nextGap.Since)
		}
	}
}

// The watch learns the place of the last gap from the newest delta, or else from the newest mark.
func TestWhereTheLastGapLies(t *testing.T) {
	t.Parallel()
	k, _ := marked(t)
	k.gap = events.Place{Known: true}
	appends := func(d events.Delta) {
		t.Helper()
		if d.Kind, d.At = "pods", time.Now(); k.append(t.Context(), d) != nil {
			t.Fatal("append: the delta is refused")
		}
	}
	is := func(what string, want events.Place) {
		t.Helper()
		resumes(t, k)
		if k.gap != want {
			t.Errorf("%s: the last gap is at %+v, want %+v", what, k.gap, want)
		}
		k.cursor.Version = "9"
	}
	is("of marks that do not say", events.Place{})
	appends(translate.Gap("pods", "9", translate.Stamp{}))
	is("behind a gap", events.Place{Known: true, Sequence: 6})
	if err := k.mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("behind a mark", events.Place{Known: true, Sequence: 6})
	change := watchertest.ADelta("p0", 20)
	change.UID = "u0"
	appends(change)
	is("behind a change", events.Place{Known: true, Sequence: 6})
	empty, _ := recorded(t, 0, 0)
	if empty.appender.Last() != 1 {
		t.Fatalf("the log ends at %d", empty.appender.Last())
	}
	resumes(t, empty)
	if empty.gap.Known {
		t.Errorf("of a log with one mark the last gap is known: %+v", empty.gap)
	}
	empty.appender = watchertest.Opened(nil, 0)
	watchertest.Stand(empty.bus.(*bustest.Bus), logPods, bus.State{})
	if ok, _ := resumes(t, empty); ok || empty.gap != (events.Place{Known: true}) {
		t.Errorf("of an empty log the last gap is %+v, resumed: %t; want it known, and not", empty.gap, ok)
	}
}

// The watch appends a mark at once for a new rule, since writers rely on the mark.
func TestANewRuleIsMarked(t *testing.T) {
	t.Parallel()
	k, _ := marked(t)
	if ok, _ := resumes(t, k); !ok || len(watchertest.LogOf(t, k.bus)) != 5 {
		t.Errorf("without a rule %d messages are in the log, resumed: %t; want 5", len(watchertest.LogOf(t, k.bus)), ok)
	}
	k.redact = watchertest.Hides(t)
	if ok, _ := resumes(t, k); !ok || watchertest.LastOf(t, k.bus, "pods").Redaction != events.Redacted {
		t.Errorf("with a rule the last delta is %+v, resumed: %t; want a mark that says so", watchertest.LastOf(t, k.bus, "pods"), ok)
	}
}

// A log is complete if it is the one that was written, up to its end. The watcher pads what it has
// lost, up to ten thousand messages.
func TestWhetherALogIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			stored  uint64 // an offset from the log's end
			created time.Duration
			whole   bool
			reason  string
			padded  uint64
		}{
			"it ends where it did":     {0, 0, true, "", 0},
			"it has lost one":          {1, 0, false, "the log has lost its end", 1},
			"it has lost ten thousand": {maxPad, 0, false, "the log has lost its end", maxPad},
			"it has lost more":         {maxPad + 1, 0, false, "the log has lost its end", 0},
			"it is younger":            {1, time.Hour, false, "the log was made anew", 0},
		} {
			k, a := recorded(t, 3, 0)
			log := watchertest.StateOf(t, a.Bus, logPods)
			k.created, k.stored, k.latest = log.Created.Add(-c.created), log.Last+c.stored, watchertest.ADelta("p0", 1)
			last := log.Last
			k.counted = true
			whole, err := k.complete(t.Context(), log)
			if err != nil || whole != c.whole || k.nextGap.Reason != c.reason || k.appender.Last() != last+c.padded || k.damaged == c.whole {
				t.Errorf("%s: complete: %t, %v, the gap %+v, the log ends at %d", what, whole, err, k.nextGap, k.appender.Last())
			}
			if k.stored < last || !k.created.Equal(log.Created) {
				t.Errorf("%s: stored up to %d, created at %v", what, k.stored, k.created)
			}
			if anew := c.created > 0; anew != (k.latest.UID == "") || anew && k.after != (events.Link{}) {
				t.Errorf("%s: what proves its history is %+v, behind %+v", what, k.latest, k.after)
			}
			if c.padded > 0 && (k.stored != last+c.padded || k.nextGap.From != last+1 || k.nextGap.To != last+c.padded || k.counted || watchertest.LastOf(t, k.bus, "pods").Census.Known) {
				t.Errorf("%s: stored up to %d, with a hole %+v and %+v", what, k.stored, k.nextGap, watchertest.LastOf(t, k.bus, "pods").Census)
			}
		}
		// A watcher that has just started knows no log.
		k, a := recorded(t, 3, 0)
		log := watchertest.StateOf(t, a.Bus, logPods)
		k.created, k.stored = time.Time{}, 0
		if whole, err := k.complete(t.Context(), log); err != nil || !whole || k.stored != log.Last {
			t.Errorf("a log seen for the first time is complete: %t, %v, stored up to %d", whole, err, k.stored)
		}
		k, a = recorded(t, 3, 0)
		log = watchertest.StateOf(t, a.Bus, logPods)
		k.created, k.stored, k.appender = log.Created, log.Last+1, bustest.Refusing(k.appender, bus.ErrOvertaken)
		if _, err := k.complete(t.Context(), log); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("a log that refuses its pad: %v", err)
		}
		k.stored = log.Last + 1
		a.Fail(bustest.StreamState, away, logPods)
		if _, err := k.complete(t.Context(), log); !errors.Is(err, away) {
			t.Errorf("a log that is away: %v", err)
		}
	})
}

// The next message links to the last one that is not a mark, among the last sixteen.
func TestWhatTheNextMessageComesBehind(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	link := func() uint64 {
		t.Helper()
		k.after = events.Link{Sequence: 99}
		if err := k.link(t.Context(), watchertest.StateOf(t, a.Bus, logPods)); err != nil {
			t.Fatal(err)
		}
		return k.after.Sequence
	}
	if got := link(); got != 3 {
		t.Errorf("behind a mark it is behind %d, want 3", got)
	}
	watchertest.Tear(a, 4)
	third, _, _ := a.At(t.Context(), logPods, 3)
	if got := link(); got != 3 || k.after.Sum != third.Get(events.HeaderSum) {
		t.Errorf("behind a torn one it is behind %d", got)
	}
	watchertest.Lose(a, 3)
	if got := link(); got != 2 {
		t.Errorf("after a missing message the link is %d", got)
	}
	for i := range 13 {
		if k.append(t.Context(), events.Delta{Kind: "pods", Op: events.Mark, At: time.Now()}) != nil {
			t.Fatal("append: the mark is refused")
		}
		watchertest.Tear(a, uint64(5+i))
	}
	if got := link(); got != 2 { // 17 is the last, and 2 the sixteenth from it
		t.Errorf("with sixteen marks the link is %d, want 2", got)
	}
	if k.append(t.Context(), watchertest.ADelta("x", 1)) != nil {
		t.Fatal("append: the delta is refused")
	}
	watchertest.Tear(a, 18)
	if got := link(); got != 0 {
		t.Errorf("seventeen messages back the link is %d, want none", got)
	}
	if err := k.link(t.Context(), bus.State{First: 1}); err != nil || k.after.Sequence != 0 {
		t.Errorf("of an empty log the link is %+v, %v; want none", k.after, err)
	}
	watchertest.Lose(a, 18)
	if err := k.link(t.Context(), bus.State{First: 18, Last: 18}); err != nil || k.after.Sequence != 0 {
		t.Errorf("of a log that begins behind it the link is %+v, %v; want none", k.after, err)
	}
}

// The watch compares what the log tells with the census of its newest delta, without reading it if
// the tally is known.
func TestWhetherTheLogTellsOfAll(t *testing.T) {
	t.Parallel()
	more := func(k *Reflector, d *events.Delta) {
		mark := translate.Mark("pods", "9", k.stamp(false))
		if mark.Census = d.Census; true {
			mark.Census.Objects++
		}
		_ = k.append(t.Context(), mark)
		d.Census = mark.Census
	}
	for what, c := range map[string]struct {
		change func(*Reflector, *bustest.Bus, *events.Delta)
		whole  bool
		reason string
		err    error
	}{
		"as the log says": {func(*Reflector, *bustest.Bus, *events.Delta) {}, true, "", nil},
		"the log does not say": {func(k *Reflector, _ *bustest.Bus, d *events.Delta) {
			_ = k.append(t.Context(), translate.Mark("pods", "9", k.stamp(false)))
			d.Census = events.Census{}
		}, true, "", nil},
		"fewer than the log says": {func(k *Reflector, _ *bustest.Bus, d *events.Delta) { more(k, d) }, false, "the log tells of 3 objects, 0 of them damaged, where its last message says 4", nil},
		"fewer, and the log is on": {func(_ *Reflector, a *bustest.Bus, d *events.Delta) {
			watchertest.Stand(a, logPods, bus.State{Last: 9})
			d.Census.Objects++
		}, false, "", bus.ErrOvertaken},
		"one of them damaged": {func(k *Reflector, a *bustest.Bus, _ *events.Delta) {
			k.bus = watchertest.Worn(a, logPods, []uint64{2})
		}, false, "the log tells of 3 objects, 1 of them damaged, where its last message says 3", nil},
		"damaged, and the log does not say": {func(k *Reflector, a *bustest.Bus, d *events.Delta) {
			_ = k.append(t.Context(), translate.Mark("pods", "9", k.stamp(false)))
			d.Census = events.Census{}
			k.bus = watchertest.Worn(a, logPods, []uint64{2})
		}, false, "the log tells of 3 objects, 1 of them damaged, where its last message says 0", nil},
		"it cannot be read": {func(_ *Reflector, a *bustest.Bus, _ *events.Delta) { a.Fail(bustest.Follow, events.ErrDamaged) }, false, unreadable, nil},
		"it cannot be read, nor does it say": {func(k *Reflector, a *bustest.Bus, d *events.Delta) {
			_ = k.append(t.Context(), translate.Mark("pods", "9", k.stamp(false)))
			d.Census = events.Census{}
			a.Fail(bustest.Follow, events.ErrDamaged)
		}, false, unreadable, nil},
		"away": {func(_ *Reflector, a *bustest.Bus, _ *events.Delta) { a.Fail(bustest.Follow, away) }, false, "", away},
	} {
		k, a := recorded(t, 3, 0)
		newest := events.Delta{Census: k.tally.Census()}
		k.logState = logState{}
		c.change(k, a, &newest)
		ctx, _ := watchertest.Logged(t)
		whole, err := k.count(ctx, ends(k), newest, 1)
		if whole != c.whole || !errors.Is(err, c.err) || k.nextGap.Reason != c.reason || k.damaged != (c.reason != "") {
			t.Errorf("%s: whole %t, %v, the gap %+v; want %t, %v, %q", what, whole, err, k.nextGap, c.whole, c.err, c.reason)
		}
		if c.err == nil && (!k.counted || k.places == nil) {
			t.Errorf("%s: the log is not counted", what)
		}
	}
	k, a := recorded(t, 3, 0)
	newest := events.Delta{Census: k.tally.Census()}
	a.Fail(bustest.Follow, away) // the watch must not read it
	if whole, err := k.count(t.Context(), ends(k), newest, 1); err != nil || !whole {
		t.Errorf("a log that was counted all along is whole: %t, %v; want true", whole, err)
	}
	for what, change := range map[string]func(*Reflector, *events.Delta){
		"not counted": func(k *Reflector, _ *events.Delta) { k.counted = false }, "another census": func(_ *Reflector, d *events.Delta) { d.Census.Objects++ },
		"an unknown census": func(_ *Reflector, d *events.Delta) { d.Census.Known = false },
	} {
		k, a := recorded(t, 3, 0)
		newest := events.Delta{Census: k.tally.Census()}
		a.Fail(bustest.Follow, away)
		change(k, &newest)
		if _, err := k.count(t.Context(), ends(k), newest, 1); !errors.Is(err, away) {
			t.Errorf("%s: the log is not read: %v", what, err)
		}
	}
}

// ends is the state of a log that nothing has been dropped from.
func ends(k *Reflector) bus.State {
	return bus.State{First: 1, Last: k.appender.Last(), Messages: k.appender.Last()}
}

// What a starting watch concludes from the end of a log.
func TestWhatTheEndOfALogTells(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*Reflector, *bustest.Bus)
		reason string // of the hole; "": it is resumed
		err    error
	}{
		"all is there":           {func(*Reflector, *bustest.Bus) {}, "", nil},
		"the last is torn":       {func(_ *Reflector, a *bustest.Bus) { watchertest.Tear(a, 5) }, "the end of the log is damaged", nil},
		"the last is not there":  {func(_ *Reflector, a *bustest.Bus) { watchertest.Lose(a, 5) }, "the end of the log is not there any more", nil},
		"the one before is torn": {func(_ *Reflector, a *bustest.Bus) { watchertest.Tear(a, 3) }, "a message at the end of the log is lost or damaged", nil},
		"the one before is gone": {func(_ *Reflector, a *bustest.Bus) { watchertest.Lose(a, 3) }, "a message at the end of the log is lost or damaged", nil},
		"the log has gone on": {func(_ *Reflector, a *bustest.Bus) {
			watchertest.Stand(a, logPods, bus.State{First: 1, Last: 6, Messages: 6})
		}, "", bus.ErrOvertaken},
	} {
		k, a := recorded(t, 3, 0)
		if k.mark(t.Context()) != nil {
			t.Fatal("mark: the mark is refused")
		}
		k.logState = logState{}
		c.change(k, a)
		resumed, err := k.resume(t.Context())
		if !errors.Is(err, c.err) || resumed != (c.reason == "" && c.err == nil) || k.nextGap.Reason != c.reason {
			t.Errorf("%s: resumed %t, %v, the hole is %+v", what, resumed, err, k.nextGap)
		}
	}
}

// The wait for a log that may grow ends after a second, or with an error as soon as the log grows.
func TestALogThatGoesOnIsAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 3, 0)
		began := time.Now()
		if err := k.staysShorter(t.Context(), watchertest.StateOf(t, a.Bus, logPods), 9); err != nil || time.Since(began) < shorterLogPatience {
			t.Errorf("staysShorter with a log at rest: %v after %v, want after the patience", err, time.Since(began))
		}
		if err := k.staysShorter(t.Context(), bus.State{Last: 3}, 9); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("staysShorter with a log that has gone on: %v, want ErrOvertaken", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := k.staysShorter(ended, watchertest.StateOf(t, a.Bus, logPods), 9); !errors.Is(err, context.Canceled) {
			t.Errorf("staysShorter with an ended context: %v, want Canceled", err)
		}
	})
}

// The position of a log is that of its newest delta with a version.
func TestThePastOfALog(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	if c, err := k.knownPosition(t.Context()); err != nil || c.Version != "9" {
		t.Errorf("where it is known: %+v, %v", c, err)
	}
	k.cursor = translate.Cursor{}
	watchertest.Tear(a, 4)
	if c, err := k.knownPosition(t.Context()); err != nil || c.Version != "7" {
		t.Errorf("behind a message that is torn: %+v, %v", c, err)
	}
	for at := range uint64(5) {
		watchertest.Lose(a, at)
	}
	if c, err := k.knownPosition(t.Context()); err != nil || c.Version != "" {
		t.Errorf("the known position of an empty log is %+v, %v; want none", c, err)
	}
}
