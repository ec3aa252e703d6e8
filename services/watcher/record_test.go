package watcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

// marked is a watch of pods on an ailing bus; the log has three objects, and two marks.
func marked(t *testing.T) (*kindWatch, *ailing) {
	t.Helper()
	k, a := recorded(t, 3, 0)
	if k.mark(t.Context()) != nil {
		t.Fatal("it cannot be marked")
	}
	return k, a
}

// resumes makes a watch that knows nothing read its log.
func resumes(t *testing.T, k *kindWatch) (ok bool, reason string) {
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
	appends := func(d events.Delta) func(*testing.T, *kindWatch) {
		return func(t *testing.T, k *kindWatch) {
			t.Helper()
			d.Kind, d.At = "pods", time.Unix(1e9, 0)
			if err := k.append(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	for what, c := range map[string]struct {
		change          func(*testing.T, *kindWatch)
		reason, version string
		since           bool // it is known since when
	}{
		"a mark":             {func(*testing.T, *kindWatch) {}, "", "9", false},
		"a change":           {appends(events.Delta{Op: events.Is, Ref: aPod("p0"), UID: "u0", ResourceVersion: "12"}), "", "12", true},
		"an end":             {appends(events.Delta{Op: events.Gone, Ref: aPod("p0"), UID: "u0", ResourceVersion: "13"}), "", "13", true},
		"a finding":          {appends(events.Delta{Op: events.Is, Ref: aPod("p0"), UID: "u0", ResourceVersion: "12", Sync: true}), "a relist was not finished", "", false},
		"a gap":              {appends(events.Delta{Op: events.Gap, ResourceVersion: "12", ContentType: kinds.JSON, Body: []byte("{}")}), "a relist was not finished", "", false},
		"what is not served": {appends(translate.Unserved("pods", "12", translate.Stamp{})), "the API server did not serve the kind", "", true},
		"a change behind a gap": {func(t *testing.T, k *kindWatch) {
			appends(translate.Gap("pods", "12", translate.Stamp{}))(t, k)
			appends(events.Delta{Op: events.Is, Ref: aPod("p0"), UID: "u0", ResourceVersion: "13"})(t, k)
		}, "the last mark of the log is damaged or missing", "", true},
		"a change behind a gap and a mark": {func(t *testing.T, k *kindWatch) {
			appends(translate.Gap("pods", "12", translate.Stamp{}))(t, k)
			appends(translate.Mark("pods", "12", translate.Stamp{}))(t, k)
			appends(events.Delta{Op: events.Is, Ref: aPod("p0"), UID: "u0", ResourceVersion: "13"})(t, k)
		}, "", "13", true},
		"a change behind a damaged mark": {func(t *testing.T, k *kindWatch) {
			appends(events.Delta{Op: events.Is, Ref: aPod("p0"), UID: "u0", ResourceVersion: "12"})(t, k)
			k.bus = &worn{Bus: k.bus, damaged: map[string]bool{at(logPods, 5): true}}
		}, "the last mark of the log is damaged or missing", "", true},
		"a mark without a position": {func(t *testing.T, k *kindWatch) { k.cursor.Version = ""; _ = k.mark(t.Context()) }, "a relist was not finished", "", false},
		"what waits": {func(t *testing.T, k *kindWatch) {
			k.bounds.waits = 1
			appends(events.Delta{Op: events.Is, Ref: aPod("p0"), UID: "u0", ResourceVersion: "12"})(t, k)
			k.bounds.waits = 0
		}, "versions that waited to be recorded were not, when their watcher ended", "", true},
	} {
		k, _ := marked(t)
		c.change(t, k)
		ok, reason := resumes(t, k)
		if ok != (c.reason == "") || reason != c.reason || k.cursor.Version != c.version {
			t.Errorf("%s: it is resumed at %q: %t, %s", what, k.cursor.Version, ok, reason)
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
			t.Fatal("it cannot be appended")
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
	change := aDelta("p0", 20)
	change.UID = "u0"
	appends(change)
	is("behind a change", events.Place{Known: true, Sequence: 6})
	empty, _ := recorded(t, 0, 0)
	if empty.appender.Last() != 1 {
		t.Fatalf("the log ends at %d", empty.appender.Last())
	}
	resumes(t, empty)
	if empty.gap.Known {
		t.Errorf("of a log with one mark the gap is known: %+v", empty.gap)
	}
	empty.appender = &opened{nil, 0}
	empty.bus.(*ailing).states[logPods] = bus.State{}
	if ok, _ := resumes(t, empty); ok || empty.gap != (events.Place{Known: true}) {
		t.Errorf("of an empty log it is at %+v, resumed: %t", empty.gap, ok)
	}
}

// The watch appends a mark at once for a new rule, since writers rely on the mark.
func TestANewRuleIsMarked(t *testing.T) {
	t.Parallel()
	k, _ := marked(t)
	if ok, _ := resumes(t, k); !ok || len(logOf(t, k.bus)) != 5 {
		t.Errorf("without a rule %d messages are in the log, resumed: %t", len(logOf(t, k.bus)), ok)
	}
	config := Config{}
	hides(t)(&config)
	k.redact = config.Hide
	if ok, _ := resumes(t, k); !ok || lastOf(t, k.bus, "pods").Redaction != events.Redacted {
		t.Errorf("with a rule the last is %+v, resumed: %t", lastOf(t, k.bus, "pods"), ok)
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
			log := a.stands(t, logPods)
			k.created, k.stored, k.latest = log.Created.Add(-c.created), log.Last+c.stored, aDelta("p0", 1)
			last := log.Last
			k.counted = true
			whole, err := k.complete(t.Context(), log)
			if err != nil || whole != c.whole || k.nextGap.Reason != c.reason || k.appender.Last() != last+c.padded || k.damaged == c.whole {
				t.Errorf("%s: whole %t, %v, %+v, it ends at %d", what, whole, err, k.nextGap, k.appender.Last())
			}
			if k.stored < last || !k.created.Equal(log.Created) {
				t.Errorf("%s: it is stored up to %d, and was made at %v", what, k.stored, k.created)
			}
			if anew := c.created > 0; anew != (k.latest.UID == "") || anew && k.after != (events.Link{}) {
				t.Errorf("%s: what proves its history is %+v, behind %+v", what, k.latest, k.after)
			}
			if c.padded > 0 && (k.stored != last+c.padded || k.nextGap.From != last+1 || k.nextGap.To != last+c.padded || k.counted || lastOf(t, k.bus, "pods").Census.Known) {
				t.Errorf("%s: stored up to %d, with a hole %+v and %+v", what, k.stored, k.nextGap, lastOf(t, k.bus, "pods").Census)
			}
		}
		// A watcher that has just started knows no log.
		k, a := recorded(t, 3, 0)
		log := a.stands(t, logPods)
		k.created, k.stored = time.Time{}, 0
		if whole, err := k.complete(t.Context(), log); err != nil || !whole || k.stored != log.Last {
			t.Errorf("of a log that is seen for the first time: whole %t, %v, stored up to %d", whole, err, k.stored)
		}
		k, a = recorded(t, 3, 0)
		log = a.stands(t, logPods)
		k.created, k.stored, k.appender = log.Created, log.Last+1, &refusing{k.appender, bus.ErrOvertaken}
		if _, err := k.complete(t.Context(), log); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("a log that refuses its pad: %v", err)
		}
		k.stored = log.Last + 1
		a.state[logPods] = away
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
		if err := k.link(t.Context(), a.stands(t, logPods)); err != nil {
			t.Fatal(err)
		}
		return k.after.Sequence
	}
	if got := link(); got != 3 {
		t.Errorf("behind a mark it is behind %d, want 3", got)
	}
	a.torn[4] = true
	third, _, _ := a.At(t.Context(), logPods, 3)
	if got := link(); got != 3 || k.after.Sum != third.Get(events.HeaderSum) {
		t.Errorf("behind a torn one it is behind %d", got)
	}
	a.missing[3] = true
	if got := link(); got != 2 {
		t.Errorf("behind one that is not there it is behind %d", got)
	}
	for i := range 13 {
		if k.append(t.Context(), events.Delta{Kind: "pods", Op: events.Mark, At: time.Now()}) != nil {
			t.Fatal("it cannot be appended")
		}
		a.torn[uint64(5+i)] = true
	}
	if got := link(); got != 2 { // 17 is the last, and 2 the sixteenth from it
		t.Errorf("sixteen back it is behind %d, want 2", got)
	}
	if k.append(t.Context(), aDelta("x", 1)) != nil {
		t.Fatal("it cannot be appended")
	}
	a.torn[18] = true
	if got := link(); got != 0 {
		t.Errorf("seventeen back it is behind %d", got)
	}
	if err := k.link(t.Context(), bus.State{First: 1}); err != nil || k.after.Sequence != 0 {
		t.Errorf("of an empty log it is behind %+v, %v", k.after, err)
	}
	delete(a.torn, 18)
	a.missing[18] = true
	if err := k.link(t.Context(), bus.State{First: 18, Last: 18}); err != nil || k.after.Sequence != 0 {
		t.Errorf("of a log that begins behind it, it is behind %+v, %v", k.after, err)
	}
}

// The watch compares what the log tells with the census of its newest delta, without reading it if
// the tally is known.
func TestWhetherTheLogTellsOfAll(t *testing.T) {
	t.Parallel()
	more := func(k *kindWatch, d *events.Delta) {
		mark := translate.Mark("pods", "9", k.stamp(false))
		if mark.Census = d.Census; true {
			mark.Census.Objects++
		}
		_ = k.append(t.Context(), mark)
		d.Census = mark.Census
	}
	for what, c := range map[string]struct {
		change func(*kindWatch, *ailing, *events.Delta)
		whole  bool
		reason string
		err    error
	}{
		"as the log says": {func(*kindWatch, *ailing, *events.Delta) {}, true, "", nil},
		"the log does not say": {func(k *kindWatch, _ *ailing, d *events.Delta) {
			_ = k.append(t.Context(), translate.Mark("pods", "9", k.stamp(false)))
			d.Census = events.Census{}
		}, true, "", nil},
		"fewer than the log says": {func(k *kindWatch, _ *ailing, d *events.Delta) { more(k, d) }, false, "the log tells of 3 objects, 0 of them damaged, where its last message says 4", nil},
		"fewer, and the log is on": {func(_ *kindWatch, a *ailing, d *events.Delta) {
			a.states[logPods] = bus.State{Last: 9}
			d.Census.Objects++
		}, false, "", bus.ErrOvertaken},
		"one of them damaged": {func(k *kindWatch, a *ailing, _ *events.Delta) {
			k.bus = &worn{Bus: a, damaged: map[string]bool{at(logPods, 2): true}}
		}, false, "the log tells of 3 objects, 1 of them damaged, where its last message says 3", nil},
		"damaged, and the log does not say": {func(k *kindWatch, a *ailing, d *events.Delta) {
			_ = k.append(t.Context(), translate.Mark("pods", "9", k.stamp(false)))
			d.Census = events.Census{}
			k.bus = &worn{Bus: a, damaged: map[string]bool{at(logPods, 2): true}}
		}, false, "the log tells of 3 objects, 1 of them damaged, where its last message says 0", nil},
		"it cannot be read": {func(_ *kindWatch, a *ailing, _ *events.Delta) { a.follow = events.ErrDamaged }, false, unreadable, nil},
		"it cannot be read, nor does it say": {func(k *kindWatch, a *ailing, d *events.Delta) {
			_ = k.append(t.Context(), translate.Mark("pods", "9", k.stamp(false)))
			d.Census = events.Census{}
			a.follow = events.ErrDamaged
		}, false, unreadable, nil},
		"away": {func(_ *kindWatch, a *ailing, _ *events.Delta) { a.follow = away }, false, "", away},
	} {
		k, a := recorded(t, 3, 0)
		newest := events.Delta{Census: k.tally.Census()}
		k.logState = logState{}
		c.change(k, a, &newest)
		ctx, _ := logged(t)
		whole, err := k.count(ctx, ends(k), newest, 1)
		if whole != c.whole || !errors.Is(err, c.err) || k.nextGap.Reason != c.reason || k.damaged != (c.reason != "") {
			t.Errorf("%s: whole %t, %v, %+v", what, whole, err, k.nextGap)
		}
		if c.err == nil && (!k.counted || k.places == nil) {
			t.Errorf("%s: it is not counted", what)
		}
	}
	k, a := recorded(t, 3, 0)
	newest := events.Delta{Census: k.tally.Census()}
	a.follow = away // the watch must not read it
	if whole, err := k.count(t.Context(), ends(k), newest, 1); err != nil || !whole {
		t.Errorf("what has been counted all along is whole: %t, %v", whole, err)
	}
	for what, change := range map[string]func(*kindWatch, *events.Delta){
		"not counted": func(k *kindWatch, _ *events.Delta) { k.counted = false }, "another census": func(_ *kindWatch, d *events.Delta) { d.Census.Objects++ },
		"an unknown census": func(_ *kindWatch, d *events.Delta) { d.Census.Known = false },
	} {
		k, a := recorded(t, 3, 0)
		newest := events.Delta{Census: k.tally.Census()}
		a.follow = away
		change(k, &newest)
		if _, err := k.count(t.Context(), ends(k), newest, 1); !errors.Is(err, away) {
			t.Errorf("%s: the log is not read: %v", what, err)
		}
	}
}

// ends is the state of a log that nothing has been dropped from.
func ends(k *kindWatch) bus.State {
	return bus.State{First: 1, Last: k.appender.Last(), Messages: k.appender.Last()}
}

// A session that fails is followed by one that knows the reason; a session whose context has ended
// is followed by none.
func TestHowASessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 1, 0)
		overtaken := 0
		k.overtaken = func() { overtaken++ }
		k.want = func() kinds.Kind { return kinds.Nodes.Kind }
		k.epoch, k.reports = storageepoch.New(), make(chan struct{}, 1)
		ends := func(err error, within time.Duration) string {
			t.Helper()
			logging, log := logged(t)
			ctx, cancel := context.WithTimeout(logging, within) // virtual
			defer cancel()
			k.ensured, k.kind, a.ensure, k.expired, k.nextGap, k.damaged = false, kinds.Pods.Kind, err, false, events.Hole{}, false
			k.run(ctx)
			return log()
		}
		if log := ends(fmt.Errorf("x: %w", bus.ErrOvertaken), 10*time.Millisecond); overtaken != 1 || !strings.Contains(log, "Resuming") || k.expired {
			t.Errorf("overtaken %d times, expired %t:\n%s", overtaken, k.expired, log)
		}
		if log := ends(fmt.Errorf("x: %w", bus.ErrTooLarge), 10*time.Millisecond); overtaken != 1 || !strings.Contains(log, "Resuming") {
			t.Errorf("of what is too large:\n%s", log)
		}
		if log := ends(fmt.Errorf("x: %w", errEnded), 10*time.Millisecond); !strings.Contains(log, "Resuming") {
			t.Errorf("of a watch that has ended:\n%s", log)
		}
		if log := ends(fmt.Errorf("y: %w", events.ErrDamaged), 10*time.Millisecond); !k.expired || !k.damaged || k.nextGap.Reason != "y: "+events.ErrDamaged.Error() || !strings.Contains(log, "The record is damaged") {
			t.Errorf("of damage: %+v:\n%s", k.nextGap, log)
		}
		if log := ends(fmt.Errorf("z: %w", errRewound), 10*time.Millisecond); !k.expired || k.nextGap.Reason != "z: "+errRewound.Error() || !strings.Contains(log, "Relisting in a new epoch") {
			t.Errorf("of a storage that went back: %+v:\n%s", k.nextGap, log)
		}
		if epoch, _ := k.epoch.Now(); epoch != k.cursor.Epoch+1 {
			t.Errorf("the epoch is %d behind %d", epoch, k.cursor.Epoch)
		}
		if log := ends(errors.New("odd"), 5*time.Second); strings.Count(log, "Cannot watch") != 1 || k.kind.Name != "pods" {
			t.Errorf("of what is odd:\n%s", log)
		}
		if _, err := k.status(); err == nil {
			t.Error("what is odd is not told of")
		}
		if ends(fmt.Errorf("x: %w", bus.ErrNoStream), 10*time.Millisecond); k.kind.Name != "nodes" || k.ensured {
			t.Errorf("without a stream it is wanted as %s", k.kind.Name)
		}
		ended, cancel := context.WithCancel(t.Context())
		if cancel(); true {
			k.run(ended)
		}
	})
}

// The session records the scrubber's findings as gaps, and a mark behind them.
func TestFindingsBecomeGaps(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 1, 0)
	if err := k.record(t.Context()); err != nil || len(logOf(t, k.bus)) != 2 {
		t.Errorf("of no findings the log has %d messages, %v", len(logOf(t, k.bus)), err)
	}
	k.findings = []events.Hole{{Reason: "a", From: 3, To: 4}, {Reason: "b", From: 7, To: 7}}
	if err := k.record(t.Context()); err != nil || len(k.findings) != 0 {
		t.Errorf("%d findings are left, %v", len(k.findings), err)
	}
	log := logOf(t, k.bus)[2:]
	if got := fmt.Sprint(ops(log)); got != "[gap gap mark]" {
		t.Fatalf("recorded is %s", got)
	}
	for i, want := range []events.Hole{{Reason: "a", From: 3, To: 4}, {Reason: "b", From: 7, To: 7}} {
		var h events.Hole
		if err := json.Unmarshal(log[i].Body, &h); err != nil || h.From != want.From || h.To != want.To || h.Reason != want.Reason {
			t.Errorf("the gap says %+v, %v", h, err)
		}
	}
	k.findings = []events.Hole{{Reason: "c"}}
	k.appender = &refusing{k.appender, bus.ErrOvertaken}
	if err := k.record(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("of a log that refuses: %v", err)
	}
	k.findings = []events.Hole{{Reason: "c"}}
	if err := k.checkStreams(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("a look that finds a log that refuses: %v", err)
	}
}

// The scrubber reads windows of a thousand messages, two seconds apart. It reports neither messages
// that gaps report nor expired ones.
func TestHowALogIsReadThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 2500, 0)
		began := time.Now()
		s := scrubber{bus: k.bus, kind: "pods", pause: scrubPause}
		if found, err := s.pass(t.Context()); err != nil || len(found) != 0 || time.Since(began) != 3*scrubPause || s.next != 2502 {
			t.Errorf("it finds %+v, %v, in %v, up to %d", found, err, time.Since(began), s.next)
		}
		k, a = recorded(t, 5, 0)
		w := &worn{Bus: a, lost: map[string]bool{at(logPods, 1): true, at(logPods, 2): true}}
		pass := func() []events.Hole {
			t.Helper()
			found, err := (&scrubber{bus: w, kind: "pods"}).pass(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		if found := pass(); len(found) != 0 {
			t.Errorf("of what comes before the first that is there %+v is found", found)
		}
		w.lost = map[string]bool{at(logPods, 3): true, at(logPods, 4): true}
		if found := pass(); len(found) != 1 || found[0].From != 3 || found[0].To != 4 {
			t.Errorf("of two that are lost %+v is found", found)
		}
		for first, want := range map[uint64]string{1: "[3-4]", 4: "[4-4]", 5: "[]"} {
			s, got := scrubber{bus: a, kind: "pods"}, []string{}
			for _, sequence := range []uint64{2, 5} {
				log := a.stands(t, logPods)
				log.First = first // so when the scrubber asks
				a.states[logPods] = log
				m, _, err := a.At(t.Context(), logPods, sequence)
				if err != nil || s.check(t.Context(), m) != nil {
					t.Fatal("it cannot be checked", err)
				}
			}
			for _, h := range s.found {
				got = append(got, fmt.Sprint(h.From, "-", h.To))
			}
			if fmt.Sprint(got) != want {
				t.Errorf("of a log that begins with %d by now %v is found, want %s", first, got, want)
			}
		}
		clear(a.states)
		s = scrubber{bus: w, kind: "pods", next: 1}
		a.state[logPods] = away
		if err := s.window(t.Context(), 6); !errors.Is(err, away) {
			t.Errorf("of a log that is away: %v", err)
		}
		if _, there, _ := a.Bus.Last(t.Context(), logPods, subject.Mark("pods")); !there {
			t.Error("there is no mark")
		}
	})
}
