package watcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/watcher/translate"
)

// A ledger counts objects, and links each delta to the last message that is not a mark.
func TestALedgerTellsWhatIsBefore(t *testing.T) {
	t.Parallel()
	l := &logState{}
	d := events.Delta{Kind: "pods", Op: events.Is, Ref: events.Ref{Kind: "pods", Name: "a"}, UID: "u", ResourceVersion: "1"}
	l.completeDelta(&d)
	if d.Census.Known || !l.unsure || d.Before.Known {
		t.Errorf("who has not counted says %+v, %+v, torn %t", d.Census, d.Before, l.unsure)
	}
	m := events.Seal(events.EncodeDelta(d))
	if l.noteAppended(events.Is, m, 7); l.unsure || l.after.Sequence != 7 || l.after.Sum != m.Get(events.HeaderSum) {
		t.Errorf("after it comes %+v, torn %t", l.after, l.unsure)
	}
	l.counted = true
	mark := events.Delta{Kind: "pods", Op: events.Mark}
	if l.completeDelta(&mark); !mark.Census.Known || mark.Census.Objects != 1 || mark.After.Sequence != 7 {
		t.Errorf("a mark says %+v after %+v", mark.Census, mark.After)
	}
	if l.noteAppended(events.Mark, m, 8); l.after.Sequence != 7 {
		t.Errorf("after a mark comes %+v", l.after)
	}
	var none places
	none.note(events.Is, "x", 3)
	some := places{}
	some.note(events.Is, "x", 3)
	if some.note(events.Gone, "x", 4); len(none)+len(some) != 0 {
		t.Error("what has gone is somewhere")
	}
	c := contents{}
	census := c.tally.Census()
	if !c.matches(census) || (contents{unreadable: true}).matches(census) || (contents{broken: map[events.Ref]events.Delta{{}: {}}}).matches(census) {
		t.Error("contents that lack something agree")
	}
}

// The watcher remembers at most maxWriters writers, and forgets those that are silent.
func TestMadeUpWritersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRecentWrites(tracetest.New().Tracer("watcher", trace.Options{}))
		write := func(writer, id string) trace.Write {
			return trace.Write{Writer: writer, ID: id, Begins: true, About: aPod("a")}
		}
		for i := range maxWriters {
			c.receive(write(fmt.Sprint("w", i), "1"))
		}
		if c.receive(write("late", "1")); c.inFlightCount != maxWriters || len(c.lastHeard) != maxWriters {
			t.Errorf("%d writes of %d writers are under way", c.inFlightCount, len(c.lastHeard))
		}
		c.receive(write("w0", "1")) // again
		c.receive(write("w0", "2"))
		if c.inFlightCount != maxWriters+1 {
			t.Errorf("%d writes are under way", c.inFlightCount)
		}
		c.endUnlisted(trace.Roll{Writer: "w0", Open: []string{"2"}})
		if c.endUnlisted(trace.Roll{Writer: "late"}); c.inFlightCount != maxWriters {
			t.Errorf("after a roll %d writes are under way", c.inFlightCount)
		}
		time.Sleep(writerTimeout) // virtual
		if c.silent("w1") {
			t.Error("a writer is silent too soon")
		}
		time.Sleep(1)
		look := make(chan struct{}, 1)
		if !c.silent("w1") || c.await(version{"u", "1"}, false, aPod("a"), look) {
			t.Error("a silent writer is waited for")
		}
		c.receive(write("late", "1"))
		if !c.await(version{"u", "1"}, false, aPod("a"), look) || c.await(version{"u", "1"}, false, aPod("b"), look) || len(c.waiting) != 1 {
			t.Errorf("a write under way is not waited for, or another one: %d wait", len(c.waiting))
		}
		c.await(version{"u", "1"}, false, aPod("a"), look)
		if len(c.waiting) != 1 {
			t.Error("who waits twice is told twice")
		}
		c.receive(trace.Write{Writer: "late", ID: "1", About: aPod("a"), UID: "u", Version: "1", Ends: true, Trace: events.Trace{Parent: "p"}})
		if _, ours := c.traceOf(version{"u", "1"}, false); !ours || len(look) != 1 || len(c.waiting) != 0 {
			t.Error("the answer of a write is not known, or not told")
		}
		if _, ours := c.traceOf(version{"u", "2"}, false); ours {
			t.Error("another version is ours")
		}
		if _, ours := c.traceOf(version{"u", "2"}, true); !ours {
			t.Error("the end is not ours")
		}
		before := c.inFlightCount
		if c.giveUp(aPod("a")); c.inFlightCount != 0 || before == 0 {
			t.Errorf("%d writes are under way of what is despaired of, before %d", c.inFlightCount, before)
		}
		c.receive(write("late", "9"))
		if c.endAllWrites(); c.inFlightCount != 0 || len(c.inFlight) != 0 {
			t.Errorf("%d writes are under way of which no one is heard", c.inFlightCount)
		}
	})
}

// Discovery runs again soon while something may have changed, and later when everything rests.
func TestWhenKindsAreLookedForAgain(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	service, _ := start(t, s, b, "one")
	now := time.Now()
	until := func(change func()) time.Duration {
		service.mu.Lock()
		service.config.Scope, service.waiting, service.discoveryErr, service.definerChangedAt = All, false, nil, now.Add(-time.Hour)
		change()
		service.mu.Unlock()
		return service.untilDiscovery(now)
	}
	if got := until(func() {}); got != discoverResting {
		t.Errorf("at rest in %v", got)
	}
	for what, change := range map[string]func(){
		"something waits":   func() { service.waiting = true },
		"it failed":         func() { service.discoveryErr = away },
		"a kind was made":   func() { service.definerChangedAt = now.Add(-discoverSettled + 1) },
		"makers are hidden": func() { service.config.Scope = Other },
	} {
		if got := until(change); got != discoverEvery && !(what == "makers are hidden" && service.watchesDefiners()) {
			t.Errorf("%s: in %v", what, got)
		}
	}
	if got := until(func() { service.definerChangedAt = now.Add(-discoverSettled) }); got != discoverResting {
		t.Errorf("when a kind was made long ago: in %v", got)
	}
}

// A watcher asks about a kind until the holder has shown itself, and not after that.
func TestAHolderIsChallenged(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 1, 0)
	s, _ := start(t, serve(t), memory.New(memory.Options{}), "one")
	service := &Service{config: Config{Bus: a}, members: s.members}
	g := service.askWatcher(t.Context(), "pods", nil)
	if g == nil || g.shown || g.from != 2 {
		t.Fatalf("at first it is %+v", g)
	}
	since := g.since
	if g = service.askWatcher(t.Context(), "pods", g); g.shown || !g.since.Equal(since) {
		t.Errorf("while nothing is shown it is %+v", g)
	}
	if err := k.mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g = service.askWatcher(t.Context(), "pods", g); !g.shown {
		t.Errorf("when it is shown it is %+v", g)
	}
	a.state[logPods] = away
	if again := service.askWatcher(t.Context(), "pods", g); again != g {
		t.Errorf("what was shown is asked for again: %+v", again)
	}
	if none := service.askWatcher(t.Context(), "pods", nil); none != nil {
		t.Errorf("of a bus that is away it is %+v", none)
	}
	delete(a.state, logPods)
	if other := service.askWatcher(t.Context(), "pods", &kindGuard{holder: "other", shown: true, from: 9}); other.shown || other.from != 3 {
		t.Errorf("of another holder it is %+v", other)
	}
}

// One of the kinds that a holder has shown stands for all of them; when its log stands still, the
// watcher doubts all.
func TestOneKindStandsForItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 1, 0)
		service := &Service{config: Config{Bus: a}}
		held := map[kinds.Name]*kindGuard{"pods": {holder: "x", shown: true}, "services": {holder: "x", shown: true}, "nodes": {holder: "y"}}
		witnesses := map[string]*replicaLog{}
		hear := func() { service.checkReplicas(t.Context(), held, witnesses) }
		hear()
		if w := witnesses["x"]; len(witnesses) != 1 || w.kind != "pods" || w.end != 2 {
			t.Fatalf("the witnesses are %+v", witnesses)
		}
		time.Sleep(unshownAfter - 1) // virtual
		if hear(); len(held) != 3 {
			t.Errorf("before three seconds are over there are %d", len(held))
		}
		if err := k.mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		hear()
		time.Sleep(unshownAfter - 1)
		if hear(); len(held) != 3 {
			t.Errorf("after a word there are %d", len(held))
		}
		time.Sleep(1)
		if hear(); len(held) != 1 || held["nodes"] == nil {
			t.Errorf("after three seconds of silence there are %d", len(held))
		}
		if hear(); len(witnesses) != 0 {
			t.Errorf("of nothing that is shown there are witnesses %v", witnesses)
		}
	})
}

// The scrubber does not report lost messages that a gap in the log reports, or that have expired.
func TestTheScrubberFindsHoles(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 5, 0)
	pass := func() []events.Hole {
		t.Helper()
		found, err := (&scrubber{bus: k.bus, kind: "pods"}).pass(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := pass(); len(found) != 0 {
		t.Errorf("of a whole log %+v is found", found)
	}
	s := &scrubber{bus: k.bus, kind: "pods", next: 1}
	a.missing[6], a.missing[5] = true, true
	if held, err := s.lastHeld(t.Context(), 6); err != nil || held != 4 {
		t.Errorf("it holds up to %d, %v", held, err)
	}
	a.follow = events.ErrDamaged
	if found := pass(); len(found) != 1 || found[0].From != 1 || found[0].To != 4 {
		t.Errorf("of a log that cannot be read %+v is found", found)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a.follow = nil
	if _, err := (&scrubber{bus: k.bus, kind: "pods"}).pass(ended); err == nil {
		t.Error("what is ended is read through")
	}
}

// A fight is found when two managers write back and forth ten times in a row, within ten minutes.
func TestWhenAFightIsOne(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for what, c := range map[string]struct {
		managers []string
		proven   bool
		texts    []string
		each     time.Duration
		found    int
	}{
		"two":             {[]string{"a", "b"}, true, []string{`{"x":1}`, `{"x":2}`}, time.Second, 1},
		"one":             {[]string{"a"}, true, []string{`{"x":1}`, `{"x":2}`}, time.Second, 0},
		"not proven":      {[]string{"a", "b"}, false, []string{`{"x":1}`, `{"x":2}`}, time.Second, 0},
		"never the same":  {[]string{"a", "b"}, true, []string{`{"x":1}`, `{"x":2}`, `{"x":3}`}, time.Second, 0},
		"too slowly":      {[]string{"a", "b"}, true, []string{`{"x":1}`, `{"x":2}`}, fightWindow, 0},
		"always the same": {[]string{"a", "b"}, true, []string{`{"x":1}`}, time.Second, 0},
	} {
		f, found := fights{}, 0
		for i := range fightReturns + 2 {
			d := events.Delta{UID: "u", Generation: int64(i + 2), At: now.Add(time.Duration(i) * c.each), Proven: c.proven, By: events.Manager{Name: c.managers[i%len(c.managers)]}}
			if one, ok := f.observe(d, func() []byte { return []byte(c.texts[i%len(c.texts)]) }); ok {
				if found++; one.times != fightReturns || strings.Join(one.managers, "") != "ab" || strings.Join(one.fields, "") != ".spec.x" {
					t.Errorf("%s: it is %+v", what, one)
				}
			}
		}
		if found != c.found {
			t.Errorf("%s: %d are found", what, found)
		}
	}
	f := fights{}
	for what, d := range map[string]events.Delta{"the first generation": {UID: "u", Generation: 1}, "no spec": {UID: "v", Generation: 3}} {
		if _, ok := f.observe(d, func() []byte { return nil }); ok {
			t.Errorf("%s is a fight", what)
		}
		if _, known := f.specs.get(d.UID); known {
			t.Errorf("%s is remembered", what)
		}
	}
	if got := strings.Join(changedFields([]byte(`{"a":1,"b":{"c":1},"d":1,"e":1}`), []byte(`{"a":2,"b":{"c":2},"d":2,"e":2}`)), " "); got != ".spec.a .spec.b.c .spec.d" {
		t.Errorf("between them are %s", got)
	}
	if changedFields([]byte("{"), []byte("{}")) != nil || changedFields([]byte("{}"), []byte("{")) != nil {
		t.Error("what cannot be read differs")
	}
}

// A storage position before the cursor belongs to another history.
func TestAPositionThatLiesBefore(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.change("ADDED", "a", 0)
	service, _ := start(t, s, memory.New(memory.Options{}), "one")
	from, err := service.source.Kind(kinds.Pods.Kind)
	if err != nil {
		t.Fatal(err)
	}
	ref := events.Ref{Kind: "pods", Namespace: "default", Name: "a"}
	for what, c := range map[string]struct {
		cursor  translate.Cursor
		latest  events.Delta
		rewound bool
	}{
		"as it was":                     {translate.Cursor{Version: "2"}, events.Delta{Ref: ref, UID: "uid-2", ResourceVersion: "2"}, false},
		"the position lies before":      {translate.Cursor{Version: "3"}, noDelta, true},
		"the object lies before":        {translate.Cursor{Version: "1"}, events.Delta{Ref: ref, UID: "uid-2", ResourceVersion: "3"}, true},
		"another object lies before":    {translate.Cursor{Version: "1"}, events.Delta{Ref: ref, UID: "uid-9", ResourceVersion: "3"}, false},
		"the object, of an older epoch": {translate.Cursor{Version: "1", Epoch: 2}, events.Delta{Ref: ref, UID: "uid-2", ResourceVersion: "3"}, false},
		"an object that is not there":   {translate.Cursor{Version: "1"}, events.Delta{Ref: events.Ref{Kind: "pods", Namespace: "default", Name: "b"}, UID: "uid-2", ResourceVersion: "3"}, false},
	} {
		k := &kindWatch{source: from, cursor: c.cursor, latest: c.latest}
		if err := k.prove(t.Context()); errors.Is(err, errRewound) != c.rewound || !c.rewound && err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.set(func() { s.refuse["pods"] = 403 })
	if err := (&kindWatch{source: from}).prove(t.Context()); err == nil {
		t.Error("a refusal proves something")
	}
}

// An intent does not depend on the order of labels, annotations, finalizers and owners.
func TestAnIntentHasNoOrder(t *testing.T) {
	t.Parallel()
	with := func(change func(*metav1.ObjectMeta)) intent {
		m := &metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}
		change(m)
		return intentIn(m)
	}
	plain := with(func(*metav1.ObjectMeta) {})
	for what, change := range map[string]func(*metav1.ObjectMeta){
		"a label": func(m *metav1.ObjectMeta) { m.Labels["a"] = "c" }, "an annotation": func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{"a": "b"} },
		"a finalizer": func(m *metav1.ObjectMeta) { m.Finalizers = []string{"a"} }, "an owner": func(m *metav1.ObjectMeta) { m.OwnerReferences = []metav1.OwnerReference{{UID: "u"}} },
		"a generation": func(m *metav1.ObjectMeta) { m.Generation = 3 }, "a deletion": func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &metav1.Time{} },
	} {
		if with(change) == plain {
			t.Errorf("%s changes nothing", what)
		}
	}
	if with(func(m *metav1.ObjectMeta) { m.ResourceVersion = "7" }) != plain {
		t.Error("a version changes what is wanted")
	}
}
