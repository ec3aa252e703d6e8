package watcher

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// generations remembers at least the last half of its limit, and at most its limit.
func TestWhatGenerationsRemember(t *testing.T) {
	t.Parallel()
	g := generations[int, string]{limit: 8}
	if _, known := g.get(1); known {
		t.Error("something is known before anything was put")
	}
	for i := range 100 {
		g.put(i, fmt.Sprint(i))
		known := 0
		for j := range 100 {
			if v, ok := g.get(j); ok {
				if known++; v != fmt.Sprint(j) {
					t.Fatalf("%d is known as %s", j, v)
				}
			} else if j > i-4 && j <= i {
				t.Fatalf("%d is not known after %d", j, i)
			}
		}
		if known > 8 {
			t.Fatalf("%d are known after %d", known, i)
		}
	}
	g.put(99, "new")
	if v, _ := g.get(99); v != "new" {
		t.Errorf("what is put again is %s", v)
	}
	for _, i := range []int{99, 97} { // of both generations
		g.drop(i)
		if _, known := g.get(i); known {
			t.Errorf("%d is known although it was dropped", i)
		}
	}
}

// causes remembers a bounded number of writes in flight, and counts a write that begins twice once.
func TestHowManyWritesAreRemembered(t *testing.T) {
	t.Parallel()
	c := newRecentWrites(tracetest.New().Tracer("watcher", trace.Options{}))
	begins := func(id string) { c.receive(trace.Write{Writer: "w", ID: id, Begins: true, About: aPod("a")}) }
	for i := range maxWritesInFlight - 1 {
		begins(fmt.Sprint(i))
	}
	begins("0")
	if begins("last"); c.inFlightCount != 16384 {
		t.Errorf("%d writes are remembered", c.inFlightCount)
	}
	if begins("more"); c.inFlightCount != 16384 || len(c.inFlight[aPod("a")]) != 16384 {
		t.Errorf("%d writes are remembered, where there is room for one less", c.inFlightCount)
	}
}

// A waiting change is woken when a write in flight ends, and only then.
func TestWhoWaitsIsToldOfWhatEnds(t *testing.T) {
	t.Parallel()
	c := newRecentWrites(tracetest.New().Tracer("watcher", trace.Options{}))
	look := make(chan struct{}, 1)
	begins := func(id string) { c.receive(trace.Write{Writer: "w", ID: id, Begins: true, About: aPod("a")}) }
	begins("1")
	begins("2")
	waits := func() bool { return c.await(version{"u", "1"}, false, aPod("a"), look) }
	if !waits() {
		t.Fatal("it does not wait for a write under way")
	}
	if c.endUnlisted(trace.Roll{Writer: "w", Open: []string{"1", "2"}}); len(look) != 0 || c.inFlightCount != 2 {
		t.Errorf("a roll that names all tells of news, and %d are under way", c.inFlightCount)
	}
	if c.endUnlisted(trace.Roll{Writer: "w", Open: []string{"2"}}); len(look) != 1 || c.inFlightCount != 1 || len(c.inFlight) != 1 {
		t.Errorf("a roll that names one of two tells no news, and %d are under way", c.inFlightCount)
	}
	<-look
	if !waits() {
		t.Fatal("it does not wait for the other write")
	}
	if c.receive(trace.Write{Writer: "w", ID: "2", About: aPod("a")}); len(look) != 1 || c.inFlightCount != 0 || len(c.inFlight) != 0 {
		t.Errorf("the end of the last one is not told, and %d are under way", c.inFlightCount)
	}
	if _, ours := c.traceOf(version{"", ""}, false); ours {
		t.Error("a write without a version makes one")
	}
	if waits() {
		t.Error("it waits for nothing")
	}
	begins("3")
	c.receive(trace.Write{Writer: "w", ID: "4", About: aPod("b"), UID: "u", Version: "1"})
	if waits() {
		t.Error("it waits although its cause is known")
	}
}

// A change waits for a second at most; then its watch wakes.
func TestAChangeWaitsForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		k := traceable(t, b, tracetest.New())
		k.writes.receive(trace.Write{Writer: "w", ID: "1", Begins: true, About: aPod("a")})
		k.writes.receive(trace.Write{Writer: "w", ID: "2", Begins: true, About: aPod("b")})
		receives := func(name string, version int) {
			t.Helper()
			if err := k.receiveEvent(t.Context(), watch.Event{Type: watch.Added, Object: aVersion(name, version)}); err != nil {
				t.Fatal(err)
			}
		}
		receives("a", 1)
		time.Sleep(300 * time.Millisecond) // virtual
		receives("b", 2)
		receives("c", 3)
		time.Sleep(699 * time.Millisecond)
		if rings(k.wake) || len(logOf(t, b)) != 0 {
			t.Errorf("before a second is over %d changes go on", len(logOf(t, b)))
		}
		if time.Sleep(time.Millisecond); !rings(k.wake) {
			t.Error("the watch is not woken after a second")
		}
		if err := k.releaseHeld(t.Context(), false); err != nil || len(logOf(t, b)) != 1 || len(k.held) != 2 {
			t.Errorf("after a second %d changes go on, and %d wait, %v", len(logOf(t, b)), len(k.held), err)
		}
		if time.Sleep(300 * time.Millisecond); !rings(k.wake) {
			t.Error("the watch is not woken for the second change")
		}
		if err := k.releaseHeld(t.Context(), false); err != nil || len(logOf(t, b)) != 3 || k.held != nil {
			t.Errorf("after another second %d changes go on, and %d wait, %v", len(logOf(t, b)), len(k.held), err)
		}
		if k.writes.inFlightCount != 0 {
			t.Errorf("%d writes are waited for that did not end in time", k.writes.inFlightCount)
		}
	})
}

// At maxHeld waiting changes, the first one goes on. When a change cannot be stored, the next
// session meets all of them again.
func TestHowManyChangesWait(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	k := traceable(t, b, tracetest.New())
	k.writes.receive(trace.Write{Writer: "w", ID: "1", Begins: true, About: aPod("a")})
	for i := range maxHeld - 1 {
		k.meets(t, "a", fmt.Sprint(i+1))
	}
	if len(k.held) != 1023 || len(logOf(t, b)) != 0 {
		t.Errorf("%d changes wait", len(k.held))
	}
	if k.meets(t, "a", "1024"); len(k.held) != 1023 || len(logOf(t, b)) != 1 {
		t.Errorf("%d changes wait, and %d go on", len(k.held), len(logOf(t, b)))
	}
	k.appender = &refusing{k.appender, bus.ErrOvertaken}
	if err := k.releaseHeld(t.Context(), true); !errors.Is(err, bus.ErrOvertaken) || k.held != nil {
		t.Errorf("what is not stored: %v, and %d wait", err, len(k.held))
	}
	k.held = make([]held, 3)
	if k.endLastSpans(t.Context()); k.held != nil {
		t.Errorf("at the end of a session %d wait", len(k.held))
	}
}

// A watch also records changes that cannot be traced, and without traces it waits for nothing.
func TestAWatchWithoutTraces(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 0, 0)
	if err := k.receiveEvent(t.Context(), watch.Event{Type: watch.Added, Object: aVersion("a", 10)}); err != nil || len(logOf(t, k.bus)) != 2 || len(k.held) != 0 {
		t.Errorf("%d messages are in the log, and %d wait, %v", len(logOf(t, k.bus)), len(k.held), err)
	}
	if span := newRecentWrites(nil).relist("pods"); span != nil {
		t.Error("without traces a relist has a span")
	}
	traced := traceable(t, memory.New(memory.Options{}), tracetest.New())
	if err := traced.receiveEvent(t.Context(), watch.Event{Type: watch.Added, Object: &metav1.Status{}}); err == nil {
		t.Error("what is no object is heard")
	}
}

// A stored delta ends its span, with its sequence. For a delta that is not known to be stored, the
// watch reads the log.
func TestSpansOfWhatIsStored(t *testing.T) {
	t.Parallel()
	b, r := memory.New(memory.Options{}), tracetest.New()
	k := traceable(t, b, r)
	says := func(name string, version int) {
		t.Helper()
		if err := k.appendObject(t.Context(), events.Is, aVersion(name, version), k.stamp(false)); err != nil {
			t.Fatal(err)
		}
	}
	says("a", 1)
	if len(k.sending) != 1 || len(r.Spans()) != 0 {
		t.Fatalf("%d spans are open, and %d have ended", len(k.sending), len(r.Spans()))
	}
	if err := k.flush(t.Context()); err != nil || len(k.sending) != 0 || len(r.Spans()) != 1 {
		t.Errorf("when it is stored %d are open, and %d have ended, %v", len(k.sending), len(r.Spans()), err)
	}
	says("b", 2)
	says("c", 3)
	k.sending[1].link.Sum = "another"
	k.appender = &unflushed{k.appender}
	if k.endLastSpans(t.Context()); len(r.Spans()) != 2 || len(k.sending) != 0 {
		t.Errorf("of two of which one is stored %d spans have ended", len(r.Spans())-1)
	}
	if _, known := k.versions.get("u-b"); !known {
		t.Error("what is stored is not remembered")
	}
	if _, known := k.versions.get("u-c"); known {
		t.Error("what is not stored is remembered")
	}
	k.appender = k.appender.(*unflushed).Appender
	says("d", 4)
	if k.endLastSpans(t.Context()); len(r.Spans()) != 3 {
		t.Errorf("of what is flushed %d spans have ended", len(r.Spans())-2)
	}
	if span := k.beginSpan(&events.Delta{Sync: true, UID: "x"}, aVersion("x", 5)); span != nil {
		t.Error("what a relist finds has a span")
	}
	k.appender = &refusing{k.appender, bus.ErrOvertaken}
	if err := k.appendObject(t.Context(), events.Is, aVersion("b", 6), k.stamp(false)); err == nil {
		t.Fatal("it is not refused")
	}
	if _, known := k.versions.get("u-b"); known {
		t.Error("what was refused is remembered")
	}
}

// A watcher has the metrics of its kinds, of the watchers that it hears, and of causes.
func TestWhichMetricsThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, _ := idle(t, memory.New(memory.Options{}), tracedBy(tracetest.New()))
		registry := prometheus.NewRegistry()
		for _, c := range service.Collectors() {
			if err := registry.Register(c); err != nil {
				t.Fatal(err)
			}
		}
		service.metrics.begin("pods")
		service.writes.missed.WithLabelValues("pods", "late").Inc()
		for name, want := range map[string]int{
			"millrace_watcher_members": 1, "millrace_watcher_missed_causes_total": 1, "millrace_watcher_relists_total": 1, "millrace_watcher_taken_kinds": 1,
			"millrace_watcher_left_out_versions_total": 1, "millrace_watcher_active": 1,
		} {
			if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
				t.Errorf("of %s there are %d, %v", name, got, err)
			}
		}
	})
}
