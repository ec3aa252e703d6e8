package causes

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// A change waits for a second at most; then its watch wakes.
func TestAChangeWaitsForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		k := traceable(t, b, tracetest.New())
		k.writes.receive(trace.Write{Writer: "w", ID: "1", Begins: true, About: watchertest.APod("a")})
		k.writes.receive(trace.Write{Writer: "w", ID: "2", Begins: true, About: watchertest.APod("b")})
		receives := func(name string, version int) {
			t.Helper()
			if err := k.Receive(t.Context(), watch.Event{Type: watch.Added, Object: watchertest.AVersion(name, version)}, k.record); err != nil {
				t.Fatal(err)
			}
		}
		receives("a", 1)
		time.Sleep(300 * time.Millisecond) // virtual
		receives("b", 2)
		receives("c", 3)
		time.Sleep(699 * time.Millisecond)
		if watchertest.Rings(k.wake) || len(watchertest.LogOf(t, b)) != 0 {
			t.Errorf("before a second is over %d changes are recorded, want none", len(watchertest.LogOf(t, b)))
		}
		if time.Sleep(time.Millisecond); !watchertest.Rings(k.wake) {
			t.Error("the watch is not woken after a second")
		}
		if err := k.Release(t.Context(), false, k.record); err != nil || len(watchertest.LogOf(t, b)) != 1 || len(k.held) != 2 {
			t.Errorf("after a second %d changes are recorded and %d wait, %v; want 1 and 2", len(watchertest.LogOf(t, b)), len(k.held), err)
		}
		if time.Sleep(300 * time.Millisecond); !watchertest.Rings(k.wake) {
			t.Error("the watch is not woken for the second change")
		}
		if err := k.Release(t.Context(), false, k.record); err != nil || len(watchertest.LogOf(t, b)) != 3 || k.held != nil {
			t.Errorf("after another second %d changes are recorded and %d wait, %v; want 3 and none", len(watchertest.LogOf(t, b)), len(k.held), err)
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
	k.writes.receive(trace.Write{Writer: "w", ID: "1", Begins: true, About: watchertest.APod("a")})
	for i := range maxHeld - 1 {
		k.meets(t, "a", fmt.Sprint(i+1))
	}
	if len(k.held) != 1023 || len(watchertest.LogOf(t, b)) != 0 {
		t.Errorf("%d changes wait", len(k.held))
	}
	if k.meets(t, "a", "1024"); len(k.held) != 1023 || len(watchertest.LogOf(t, b)) != 1 {
		t.Errorf("%d changes wait, and %d are recorded", len(k.held), len(watchertest.LogOf(t, b)))
	}
	k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
	if err := k.Release(t.Context(), true, k.record); !errors.Is(err, bus.ErrOvertaken) || k.held != nil {
		t.Errorf("a change that cannot be stored: %v, and %d wait; want the error, and none", err, len(k.held))
	}
	k.held = make([]held, 3)
	if k.EndLast(t.Context(), k.bus, k.appender); k.held != nil {
		t.Errorf("at the end of a session %d wait", len(k.held))
	}
}

// A watch also records changes that cannot be traced, and without traces it waits for nothing.
func TestAWatchWithoutTraces(t *testing.T) {
	t.Parallel()
	k := watchOf(t, memory.New(memory.Options{}), nil)
	if err := k.Receive(t.Context(), watch.Event{Type: watch.Added, Object: watchertest.AVersion("a", 10)}, k.record); err != nil || len(watchertest.LogOf(t, k.bus)) != 1 || len(k.held) != 0 {
		t.Errorf("%d messages are in the log and %d wait, %v; want 1 and 0", len(watchertest.LogOf(t, k.bus)), len(k.held), err)
	}
	if span := NewWrites(nil).Relist("pods"); span != nil {
		t.Error("without traces a relist has a span")
	}
	traced := traceable(t, memory.New(memory.Options{}), tracetest.New())
	if err := traced.Receive(t.Context(), watch.Event{Type: watch.Added, Object: &metav1.Status{}}, traced.record); err == nil {
		t.Error("Receive takes an event without an object")
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
		if err := k.append(t.Context(), events.Is, watchertest.AVersion(name, version)); err != nil {
			t.Fatal(err)
		}
	}
	says("a", 1)
	if len(k.sending) != 1 || len(r.Spans()) != 0 {
		t.Fatalf("%d spans are open and %d have ended, want 1 and 0", len(k.sending), len(r.Spans()))
	}
	if err := k.flush(t.Context()); err != nil || len(k.sending) != 0 || len(r.Spans()) != 1 {
		t.Errorf("after the flush %d spans are open and %d have ended, %v; want 0 and 1", len(k.sending), len(r.Spans()), err)
	}
	says("b", 2)
	says("c", 3)
	k.sending[1].link.Sum = "another"
	k.appender = bustest.Unflushed(k.appender, watchertest.ErrAway)
	if k.EndLast(t.Context(), k.bus, k.appender); len(r.Spans()) != 2 || len(k.sending) != 0 {
		t.Errorf("of two changes of which one is stored %d spans have ended, want 1", len(r.Spans())-1)
	}
	if _, known := k.versions.Get("u-b"); !known {
		t.Error("the version of a stored change is not remembered")
	}
	if _, known := k.versions.Get("u-c"); known {
		t.Error("the version of a change that was not stored is remembered")
	}
	k.appender = k.appender.(*bustest.Appender).Appender
	says("d", 4)
	if k.EndLast(t.Context(), k.bus, k.appender); len(r.Spans()) != 3 {
		t.Errorf("of a flushed change %d spans have ended, want 1", len(r.Spans())-2)
	}
	if span := k.Begin(&events.Delta{Sync: true, UID: "x"}, watchertest.AVersion("x", 5)); span != nil {
		t.Error("a change that a relist finds has a span")
	}
	k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
	if err := k.append(t.Context(), events.Is, watchertest.AVersion("b", 6)); err == nil {
		t.Fatal("append to a log that refuses returns no error")
	}
	if _, known := k.versions.Get("u-b"); known {
		t.Error("the version of a refused change is remembered")
	}
}

// meets makes a watch receive a version of a Pod.
func (k *traced) meets(t *testing.T, name, version string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: version}}
	if err := k.Receive(t.Context(), watch.Event{Type: watch.Added, Object: pod}, k.record); err != nil {
		t.Fatal(err)
	}
	for at := range k.held {
		k.held[at].until = time.Now().Add(time.Hour) // so that a slow machine does not end the wait
	}
}

// elapsed checks that the log has that many deltas, after the watch was signalled.
func (k *traced) goesOn(t *testing.T, b bus.Bus, want int) {
	t.Helper()
	select {
	case <-k.wake:
	default:
		t.Error("the wake does not say that there is news")
	}
	if err := k.Release(t.Context(), false, k.record); err != nil {
		t.Fatal(err)
	}
	if got := len(watchertest.LogOf(t, b)); got != want {
		t.Fatalf("%d deltas went on, want %d", got, want)
	}
}

// TestAChangeWaitsForTheWriteUnderWay: later changes wait behind it, and it continues its writer's
// trace when the writer reports the answer. No other change waits.
func TestAChangeWaitsForTheWriteUnderWay(t *testing.T) {
	t.Parallel()
	b, r := memory.New(memory.Options{}), tracetest.New()
	k := traceable(t, b, r)
	k.meets(t, "before", "1")
	if got := len(watchertest.LogOf(t, b)); got != 1 {
		t.Fatalf("%d deltas went on, want that which no writer is writing", got)
	}
	k.writes.receive(trace.Write{ID: "w", About: watchertest.APod("late"), Begins: true})
	k.meets(t, "late", "2")
	k.meets(t, "behind", "3")
	if got := len(watchertest.LogOf(t, b)); got != 1 {
		t.Fatalf("%d deltas went on without waiting", got-1)
	}
	k.writes.receive(trace.Write{ID: "w", About: watchertest.APod("late"), UID: "late", Version: "2", Trace: events.Trace{Parent: request}})
	k.goesOn(t, b, 3)
	watchertest.Eventually(t, b, "is before", "is late", "is behind")
	if got := trace.Context(watchertest.LogOf(t, b)[1].Trace).TraceID(); got != trace.Context(events.Trace{Parent: request}).TraceID() {
		t.Errorf("the change is recorded in the trace %v, want that of the request", got)
	}
}

// TestAWriteThatFailsHoldsUpNothing, nor does one of several writes when its answer, and so its
// version, is known.
func TestAWriteThatFailsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	k := traceable(t, b, tracetest.New())
	for _, id := range []string{"one", "two"} {
		k.writes.receive(trace.Write{ID: id, About: watchertest.APod("a"), Begins: true})
	}
	k.meets(t, "a", "1")
	k.writes.receive(trace.Write{ID: "one", About: watchertest.APod("a")})
	k.goesOn(t, b, 0)
	k.writes.receive(trace.Write{ID: "two", About: watchertest.APod("a")})
	k.goesOn(t, b, 1)
	if len(k.writes.inFlight) != 0 {
		t.Errorf("under way are still %v", k.writes.inFlight)
	}
}

// TestAWriterThatIsKilledHoldsUpOneChange, and for no longer than grace. A writer that is no longer
// heard holds up none.
func TestAWriterThatIsKilledHoldsUpOneChange(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	k := traceable(t, b, tracetest.New())
	k.writes.receive(trace.Write{ID: "killed", About: watchertest.APod("a"), Begins: true})
	k.meets(t, "a", "1")
	k.held[0].until = time.Now()
	if err := k.Release(t.Context(), false, k.record); err != nil {
		t.Fatal(err)
	}
	k.meets(t, "a", "2")
	if got := len(watchertest.LogOf(t, b)); got != 2 {
		t.Fatalf("%d deltas went on, want 2", got)
	}
	k.writes.receive(trace.Write{ID: "lost", About: watchertest.APod("a"), Begins: true})
	k.meets(t, "a", "3")
	k.writes.endAllWrites()
	k.goesOn(t, b, 3)
	k.writes.receive(trace.Write{Writer: "mute", ID: "forgotten", About: watchertest.APod("b"), Begins: true})
	k.writes.lastHeard["mute"] = time.Now().Add(-2 * writerTimeout)
	k.meets(t, "b", "4")
	if got := len(watchertest.LogOf(t, b)); got != 4 {
		t.Errorf("%d changes are recorded, want also the one whose writer is not heard", got)
	}
	k.writes.endUnlisted(trace.Roll{Writer: "another"})
	if _, known := k.writes.lastHeard["mute"]; known || len(k.writes.inFlight) > 0 {
		t.Errorf("the writer is remembered: %t, with the writes %v; want neither", known, k.writes.inFlight)
	}
}

// TestAWordThatIsLostHoldsUpNothingAfterTheRoll: the writes that the roll names stay in flight, and
// so do the writes of other writers.
func TestAWordThatIsLostHoldsUpNothingAfterTheRoll(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	k := traceable(t, b, tracetest.New())
	for _, id := range []string{"lost", "open"} {
		k.writes.receive(trace.Write{Writer: "w", ID: id, About: watchertest.APod(id), Begins: true})
	}
	k.writes.receive(trace.Write{Writer: "other", ID: "lost", About: watchertest.APod("theirs"), Begins: true})
	for i, name := range []string{"lost", "open"} {
		k.meets(t, name, fmt.Sprint(i+1))
	}
	k.writes.endUnlisted(trace.Roll{Writer: "w", Open: []string{"lost", "open"}})
	if err := k.Release(t.Context(), false, k.record); err != nil {
		t.Fatal(err)
	}
	if got := len(watchertest.LogOf(t, b)); got != 0 {
		t.Fatalf("%d deltas went on, although the roll names their writes", got)
	}
	k.writes.endUnlisted(trace.Roll{Writer: "w", Open: []string{"open"}})
	k.goesOn(t, b, 1)
	k.meets(t, "theirs", "3")
	k.writes.receive(trace.Write{Writer: "w", ID: "open", About: watchertest.APod("open"), UID: "open", Version: "2"})
	k.goesOn(t, b, 2)
	k.writes.receive(trace.Write{Writer: "other", ID: "lost", About: watchertest.APod("theirs")})
	k.goesOn(t, b, 3)
}

func TestMissedCausesAreCountedByReason(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	k := traceable(t, b, tracetest.New())
	answer := func(name, version string) {
		k.writes.receive(trace.Write{ID: name, About: watchertest.APod(name), UID: types.UID(name), Version: version})
	}
	begin := func(name string) {
		k.writes.receive(trace.Write{ID: name, About: watchertest.APod(name), Begins: true})
	}
	k.meets(t, "unheard", "1")
	answer("unheard", "1")
	k.meets(t, "late", "2")
	begin("late")
	answer("late", "2")
	begin("waited")
	k.meets(t, "waited", "3")
	k.held[0].until = time.Now()
	if err := k.Release(t.Context(), false, k.record); err != nil {
		t.Fatal(err)
	}
	answer("waited", "3")
	begin("hurried")
	k.meets(t, "hurried", "4")
	if err := k.Release(t.Context(), true, k.record); err != nil {
		t.Fatal(err)
	}
	answer("hurried", "4")
	begin("in time")
	k.meets(t, "in time", "5")
	answer("in time", "5")
	if err := k.Release(t.Context(), false, k.record); err != nil {
		t.Fatal(err)
	}
	if got := len(watchertest.LogOf(t, b)); got != 5 {
		t.Fatalf("%d deltas went on, want 5", got)
	}
	for _, reason := range []attribution{unheard, late, waited, hurried} {
		if got := testutil.ToFloat64(k.writes.missed.WithLabelValues("pods", string(reason))); got != 1 {
			t.Errorf("%v causes are counted as %s, want 1", got, reason)
		}
	}
	if got := testutil.CollectAndCount(k.writes.missed); got != 4 {
		t.Errorf("%d reasons are counted, want 4", got)
	}
}

// TestWhatIsNotStoredHasNoSpan, and a stored delta has one although the log did not confirm it.
func TestWhatIsNotStoredHasNoSpan(t *testing.T) {
	t.Parallel()
	b, r := memory.New(memory.Options{}), tracetest.New()
	k := traceable(t, b, r)
	log := k.appender
	k.appender = bustest.Refusing(log, bus.ErrOvertaken)
	pod := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u", ResourceVersion: version}}
	}
	if err := k.append(t.Context(), events.Is, pod("1")); err == nil {
		t.Fatal("the log takes it")
	}
	k.EndLast(t.Context(), k.bus, k.appender)
	if got := len(r.Spans()); got != 0 {
		t.Errorf("%d spans of what was refused", got)
	}
	k.appender = log
	if err := k.append(t.Context(), events.Is, pod("2")); err != nil {
		t.Fatal(err)
	}
	if got := len(r.Spans()); got != 0 {
		t.Errorf("%d spans of what is not known to be stored", got)
	}
	if err := log.Close(); err != nil { // Flush fails from now on
		t.Fatal(err)
	}
	k.EndLast(t.Context(), k.bus, k.appender)
	k.EndLast(t.Context(), k.bus, k.appender)
	if got := len(r.Spans()); got != 1 {
		t.Errorf("%d spans of what was stored, want 1", got)
	}
}
