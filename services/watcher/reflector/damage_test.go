package reflector

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// TestASuspicionIsLookedIntoOnceAMinute, and it is no reason to record everything again.
func TestASuspicionIsLookedIntoOnceAMinute(t *testing.T) {
	t.Parallel()
	k := &Reflector{}
	suspicion := report.Damage{Kind: "pods", End: 9, Suspected: true}
	if err := k.reportedDamage(suspicion); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("the first: %v", err)
	}
	for range 3 {
		if err := k.reportedDamage(suspicion); err != nil || k.recordAll {
			t.Errorf("again: %v, all again %t", err, k.recordAll)
		}
	}
	k.reportActedOn = time.Now().Add(-repairEvery)
	if err := k.reportedDamage(suspicion); !errors.Is(err, events.ErrDamaged) || k.recordAll {
		t.Errorf("a report after a minute: %v, all again: %t; want ErrDamaged, and not", err, k.recordAll)
	}
}

// A session looks every second while its kind changes, and every two minutes while it does not,
// until it is woken.
func TestASessionRestsUntilItIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newCheckTimer()
		after := func() time.Duration {
			began := time.Now()
			<-l.timer.C
			return time.Since(began)
		}
		if got := after(); got != time.Second {
			t.Errorf("at first it looks after %v", got)
		}
		l.again(false)
		time.Sleep(700 * time.Millisecond) // virtual
		l.wake()                           // it looks before that anyway
		if got := after(); got != 300*time.Millisecond {
			t.Errorf("while something happens the next look is in %v, want 300ms", got)
		}
		l.again(true)
		if got := after(); got != 2*time.Minute {
			t.Errorf("at rest it looks after %v", got)
		}
		l.again(true)
		time.Sleep(time.Minute)
		l.wake()
		time.Sleep(700 * time.Millisecond)
		l.wake()
		if got := after(); got != 300*time.Millisecond {
			t.Errorf("when it is woken the next look is in %v, want 300ms", got)
		}
		l.again(false)
		if got := after(); got != time.Second {
			t.Errorf("after that the next look is in %v, want 1s", got)
		}
	})
	k, _ := recorded(t, 1, 0)
	for looked, rests := range map[uint64]bool{2: true, 1: false} {
		if k.checkedEnd = looked; k.atRest() != rests {
			t.Errorf("looked at up to %d, the log is at rest: %t, want %t", looked, !rests, rests)
		}
	}
}

// TestTheLogIsReadThrough: the scrubber finds holes that no gap reports yet, and the session
// records each once.
func TestTheLogIsReadThrough(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	for i := range 20 {
		s.PutPod(fmt.Sprint("p", i), 0)
	}
	watch, _ := runs(t, s.Source(t), b)
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 21 })
	stream := subject.LogStream("pods")
	w := watchertest.Worn(b, stream, []uint64{5}, 9, 10)
	pass := func() []events.Hole {
		found, err := kindlog.Holes(t.Context(), w, "pods", 0)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	found := pass()
	if len(found) != 3 || found[0].From != 5 || found[1].From != 5 || found[2].From != 9 || found[2].To != 10 {
		t.Fatalf("found %+v", found)
	}
	watch.mu.Lock()
	watch.findings = found
	watch.mu.Unlock()
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 25 })
	if got := fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, b)[21:])); got != "[gap gap gap mark]" {
		t.Errorf("recorded was %s", got)
	}
	if again := pass(); len(again) != 0 {
		t.Errorf("found again: %+v", again)
	}
}

// TestASuspicionThatTheLogHasAnsweredIsNone: a reader that has read nothing for long, since no
// watcher ran, suspects damage although the log by now agrees with the API server.
func TestASuspicionThatTheLogHasAnsweredIsNone(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	s.PutPod("b", 0)
	runs(t, s.Source(t), b)
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 3 })
	s.RemovePod("b")
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 4 })
	log := watchertest.LogOf(t, b)
	suspicion := func(name string, removed bool) report.Damage {
		i := slices.IndexFunc(log, func(d events.Delta) bool { return d.Ref.Name == name })
		return report.Damage{Kind: "pods", Suspected: true, About: log[i].Ref, UID: log[i].UID, Removed: removed}
	}
	k := &Reflector{bus: b, kind: kinds.Pods.Kind}
	recreated := suspicion("a", true)
	recreated.UID = "another"
	before, behind := suspicion("b", false), suspicion("b", false)
	before.Version, behind.Version = log[1].ResourceVersion, "1"+log[3].ResourceVersion // the log does not reach the latter
	earlier := suspicion("b", true)
	earlier.About, earlier.UID = events.Ref{}, ""
	for name, c := range map[string]struct {
		damage   report.Damage
		answered bool
	}{
		"it is gone, and the log says so":           {suspicion("b", true), true},
		"it is gone, and the log does not say so":   {suspicion("a", true), false},
		"it is there, and the log says so":          {suspicion("a", false), true},
		"it is there, and the log says it is gone":  {suspicion("b", false), false},
		"it was there, and then the log says gone":  {before, true},
		"it is there, where the log does not reach": {behind, false},
		"it is gone, and the log has another of it": {recreated, true},
		"an earlier version does not say what":      {earlier, false},
		"the log has never had it":                  {report.Damage{Kind: "pods", Suspected: true, About: events.Ref{Kind: "pods", Namespace: "default", Name: "c"}, UID: "c", Removed: true}, false},
		"it is damage, and no suspicion":            {report.Damage{Kind: "pods", About: suspicion("b", true).About, UID: suspicion("b", true).UID, Removed: true}, false},
	} {
		if got := k.agreesByNow(t.Context(), c.damage); got != c.answered {
			t.Errorf("%s: answered %t, want %t", name, got, c.answered)
		}
	}
	// A bus without a leader for a moment is no reason for a gap: the reader reports again.
	k.bus = bustest.Wrap(b).Fail(bustest.Last, away, logPods)
	if !k.agreesByNow(t.Context(), suspicion("a", true)) {
		t.Error("a suspicion is taken for damage while the log cannot be asked")
	}
}

// TestAnAnsweredSuspicionIsNoDamage: the watcher continues, and its log gets no gap.
func TestAnAnsweredSuspicionIsNoDamage(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	watch, _ := runs(t, s.Source(t), b)
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 2 })
	of := watchertest.LogOf(t, b)[0]
	suspect := func(removed bool) {
		watch.Report(report.Damage{Kind: "pods", Suspected: true, About: of.Ref, UID: of.UID, Removed: removed, End: 9})
		watchertest.Until(t, func() bool {
			watch.mu.Lock()
			defer watch.mu.Unlock()
			return watch.reported == nil
		})
	}
	suspect(false)
	s.PutPod("b", 0)
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 3 })
	suspect(true) // which the log does not say
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) > 4 })
	if got := fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, b))[2:5]); got != "[is b gap mark]" {
		t.Errorf("the log goes on with %s", got)
	}
}

// The session records the scrubber's findings as gaps, and a mark behind them.
func TestFindingsBecomeGaps(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 1, 0)
	if err := k.record(t.Context()); err != nil || len(watchertest.LogOf(t, k.bus)) != 2 {
		t.Errorf("without findings the log has %d messages, %v; want 2", len(watchertest.LogOf(t, k.bus)), err)
	}
	k.findings = []events.Hole{{Reason: "a", From: 3, To: 4}, {Reason: "b", From: 7, To: 7}}
	if err := k.record(t.Context()); err != nil || len(k.findings) != 0 {
		t.Errorf("%d findings are left, %v", len(k.findings), err)
	}
	log := watchertest.LogOf(t, k.bus)[2:]
	if got := fmt.Sprint(watchertest.Ops(log)); got != "[gap gap mark]" {
		t.Fatalf("recorded is %s", got)
	}
	for i, want := range []events.Hole{{Reason: "a", From: 3, To: 4}, {Reason: "b", From: 7, To: 7}} {
		var h events.Hole
		if err := json.Unmarshal(log[i].Body, &h); err != nil || h.From != want.From || h.To != want.To || h.Reason != want.Reason {
			t.Errorf("the gap says %+v, %v", h, err)
		}
	}
	k.findings = []events.Hole{{Reason: "c"}}
	k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
	if err := k.record(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("record findings in a log that refuses: %v, want ErrOvertaken", err)
	}
	k.findings = []events.Hole{{Reason: "c"}}
	if err := k.checkStreams(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("a look that finds a log that refuses: %v", err)
	}
}

// look notices a log that is not what this watcher wrote.
func TestALookFindsALogOfAnother(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(log *bus.State)
		err    error
	}{
		"all is as it was":          {func(*bus.State) {}, nil},
		"the log was made anew":     {func(log *bus.State) { log.Created = log.Created.Add(1) }, bus.ErrOvertaken},
		"the log goes on":           {func(log *bus.State) { log.Last++ }, bus.ErrOvertaken},
		"the log has lost its end":  {func(log *bus.State) { log.Last-- }, bus.ErrOvertaken},
		"the log has lost an older": {func(log *bus.State) { log.First, log.Messages = 2, 3 }, events.ErrDamaged},
	} {
		k, a := recorded(t, 3, 0)
		log := watchertest.StateOf(t, a.Bus, logPods)
		k.created = log.Created
		c.change(&log)
		watchertest.Stand(a, logPods, log)
		k.checkedAt = time.Now().Add(-checkStreamsIdle)
		if err := k.checkStreams(t.Context()); !errors.Is(err, c.err) {
			t.Errorf("%s: the check of the streams ends with %v, want %v", what, err, c.err)
		}
	}
	for what, err := range map[string]error{"is gone": bus.ErrNoStream, "is away": away} {
		k, a := recorded(t, 1, 0)
		a.Fail(bustest.StreamState, err, logPods)
		k.checkedAt = time.Now().Add(-checkStreamsIdle)
		if got := k.checkStreams(t.Context()); errors.Is(got, bus.ErrNoStream) != (err == bus.ErrNoStream) || err == away && got != nil {
			t.Errorf("the log %s: %v", what, got)
		}
	}
}

// A log that has dropped an object that exists has everything recorded again, once a minute.
func TestALogThatHasDroppedWhatExists(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*Reflector)
		first  uint64
		since  uint64 // which the watch knows afterwards
		err    error
	}{
		"it has all of them":           {func(*Reflector) {}, 1, 1, nil},
		"it has dropped the oldest":    {func(*Reflector) {}, 2, 1, events.ErrDamaged},
		"it is empty":                  {func(*Reflector) {}, 5, 1, events.ErrDamaged},
		"the oldest was changed since": {func(k *Reflector) { k.places.Note(events.Is, subject.Delta(watchertest.APod("p0")), 5) }, 2, 2, nil},
		"nothing exists":               {func(k *Reflector) { k.places, k.since = kindlog.Places{}, 0 }, 5, 0, nil},
		"all have gone since":          {func(k *Reflector) { k.places = kindlog.Places{} }, 5, 0, nil},
		"it is not counted":            {func(k *Reflector) { k.counted = false }, 2, 1, nil},
		"a moment ago, too":            {func(k *Reflector) { k.reportActedOn = time.Now().Add(-time.Second) }, 2, 1, nil},
		"a minute ago, too":            {func(k *Reflector) { k.reportActedOn = time.Now().Add(-repairEvery) }, 2, 1, events.ErrDamaged},
	} {
		k, _ := recorded(t, 3, 0)
		c.change(k)
		acted := k.reportActedOn
		err := k.checkDropped(bus.State{First: c.first, Last: 4})
		if !errors.Is(err, c.err) || k.since != c.since || (c.err != nil) != k.reportActedOn.After(acted) {
			t.Errorf("%s: the report ends with %v, everything is there since %d; want %v, %d", what, err, k.since, c.err, c.since)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprint("message 1, and it begins with ", c.first)) {
			t.Errorf("%s: the error is %v, want one that says where the log begins", what, err)
		}
	}
}

// The watcher checks the streams every ten seconds, and every two minutes while nothing happens.
func TestHowOftenTheStreamsAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 1, 0)
		k.created = watchertest.StateOf(t, a.Bus, logPods).Created
		looks := func() bool {
			t.Helper()
			before := k.checkedAt
			if err := k.checkStreams(t.Context()); err != nil {
				t.Fatal(err)
			}
			return !before.IsZero() && k.checkedAt.After(before)
		}
		if looks() {
			t.Error("the log that the session has just read is looked at")
		}
		time.Sleep(checkStreamsEvery - 1) // virtual
		if looks() {
			t.Error("the log is looked at before ten seconds are over")
		}
		time.Sleep(1)
		if !looks() || !k.atRest() {
			t.Error("the log is not looked at after ten seconds")
		}
		time.Sleep(checkStreamsIdle - 1)
		if looks() {
			t.Error("at rest it is looked at before two minutes are over")
		}
		time.Sleep(1)
		if !looks() {
			t.Error("at rest it is not looked at after two minutes")
		}
	})
}

// The second of two reports within a minute makes the watcher record every object again, unless it is
// a suspicion or older than the repair; once a minute.
func TestAReportIsLookedInto(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		heard, all     time.Duration // ago; 0: never
		damage         report.Damage
		damaged, again bool
	}{
		"the first":                      {0, 0, report.Damage{End: 9}, true, false},
		"before what has been mended":    {0, 0, report.Damage{End: 4}, false, false},
		"at what has been mended":        {0, 0, report.Damage{End: 5}, true, false},
		"again":                          {time.Second, 0, report.Damage{End: 9}, true, true},
		"a suspicion, again":             {time.Second, 0, report.Damage{End: 9, Suspected: true}, false, false},
		"again, and just said again":     {time.Second, time.Second, report.Damage{End: 9}, false, false},
		"again, and said again before":   {time.Second, repairEvery, report.Damage{End: 9}, true, true},
		"after a minute":                 {repairEvery, 0, report.Damage{End: 9}, true, false},
		"a suspicion, after a minute":    {repairEvery, 0, report.Damage{End: 9, Suspected: true}, true, false},
		"a suspicion, before the repair": {0, 0, report.Damage{End: 4, Suspected: true}, false, false},
	} {
		k := &Reflector{}
		k.repairedAt = 5
		if c.heard > 0 {
			k.reportActedOn = time.Now().Add(-c.heard)
		}
		if c.all > 0 {
			k.recordAllAt = time.Now().Add(-c.all)
		}
		if err := k.reportedDamage(c.damage); errors.Is(err, events.ErrDamaged) != c.damaged || k.recordAll != c.again {
			t.Errorf("%s: %v, all is to be said again: %t", what, err, k.recordAll)
		}
		if k.recordAll && k.reportedDamage(c.damage) != nil {
			t.Errorf("%s: one more report has all said again once more", what)
		}
	}
}
