package watcher

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

const request = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// tracedBy records a watcher's spans.
func tracedBy(r *tracetest.Recorder) func(*Config) {
	return func(c *Config) { c.Trace = r.Tracer("watcher", trace.Options{}) }
}

// spans waits until n deltas have their spans.
func spans(t *testing.T, r *tracetest.Recorder, n int) []tracetest.Span {
	t.Helper()
	until(t, func() bool { return len(r.Named("send EV_pods")) >= n })
	return r.Named("send EV_pods")
}

// watching waits until changes come by watch: what a relist finds has no traces.
func watching(t *testing.T, s *Service) {
	t.Helper()
	until(t, s.isWatching)
}

// isWatching reports whether the watcher has listed pods and watches them.
func (s *Service) isWatching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.kinds[kinds.Pods.Name]
	if r == nil {
		return false
	}
	synced, err := r.watch.status()
	return synced && err == nil
}

// byWriter puts a writer's name on a change.
func byWriter(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		now := metav1.Now()
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: name, Operation: metav1.ManagedFieldsOperationUpdate, Time: &now}}
	}
}

// labelled is a change that asks for something new.
func labelled(with string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"is": with} }
}

func tell(t *testing.T, b bus.Bus, w trace.Write) {
	t.Helper()
	if err := b.Broadcast(trace.Writes, w.Encode()); err != nil {
		t.Fatal(err)
	}
}

// known reports a write until a watcher has heard of it: at first the watcher may not listen yet.
func known(t *testing.T, b bus.Bus, s *Service, w trace.Write) {
	t.Helper()
	until(t, func() bool {
		tell(t, b, w)
		_, ours := s.writes.traceOf(version{w.UID, w.Version}, false)
		return ours
	})
}

// TestChangesBeginTracesWhateverWatcherSeesThem: each change begins one trace, recorded once, which
// links to that of the object's previous change. A relist's finding begins none.
func TestChangesBeginTracesWhateverWatcherSeesThem(t *testing.T) {
	t.Parallel()
	s, b, r := serve(t), memory.New(memory.Options{}), tracetest.New()
	s.change("ADDED", "old", 0)
	one, stop := start(t, s, b, "one", tracedBy(r))
	watching(t, one)
	s.change("ADDED", "a", 0)
	s.changeOf("pods", "MODIFIED", "a", labelled("one"))
	first := spans(t, r, 2)
	stop()
	two, _ := start(t, s, b, "two", tracedBy(r))
	watching(t, two)
	s.changeOf("pods", "MODIFIED", "a", labelled("two"))
	s.change("DELETED", "a", 0)
	all := spans(t, r, 4)
	ids := map[string]bool{}
	for i, span := range all {
		d := events.Delta{UID: "uid-3", ResourceVersion: span.Attributes[trace.ResourceVersion]}
		if got, want := span.Context.TraceID(), trace.TraceID("", d); got != want || span.Parent.IsValid() {
			t.Errorf("span %d is in %v, want %v, parent %v", i, got, want, span.Parent.IsValid())
		}
		ids[span.Context.TraceID().String()] = true
	}
	if len(ids) != 4 {
		t.Errorf("%d traces, want 4:\n%s", len(ids), r.Tree())
	}
	if len(first[1].Links) != 1 || first[1].Links[0].SpanContext.SpanID() != first[0].Context.SpanID() {
		t.Errorf("the second version has links %v", first[1].Links)
	}
	if got := len(r.Named("relist pods")); got != 1 {
		t.Errorf("%d spans of relists, want 1", got)
	}
	for _, d := range logOf(t, b) {
		if told := trace.Context(d.Trace).IsValid(); told != (d.Ref.Name == "a") {
			t.Errorf("%s %s carries a trace: %t", d.Op, d.Ref.Name, told)
		}
	}
}

// TestAChangeOfOursGoesOnInItsTrace: its writer has reported it before the watcher receives it.
func TestAChangeOfOursGoesOnInItsTrace(t *testing.T) {
	t.Parallel()
	s, b, r := serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	cause := events.Trace{Parent: request, Writes: 3, Began: time.Now().UnixMilli()}
	known(t, b, service, trace.Write{UID: "uid-2", Version: "2", Trace: cause})
	s.changeOf("pods", "ADDED", "early", byWriter(events.FieldManager))
	spans(t, r, 1)

	s.change("ADDED", "behind", 0)
	spans(t, r, 2)
	eventually(t, b, "is early", "is behind")
	for _, span := range r.Named("send EV_pods") {
		ours := span.Attributes[trace.ObjectName] != "behind"
		if ours != (span.Parent.SpanID().String() == "b7ad6b7169203331") {
			t.Errorf("%s has the parent %v", span.Attributes[trace.ObjectName], span.Parent.SpanID())
		}
	}
	for _, d := range logOf(t, b) {
		if d.Ref.Name == "early" && (d.Trace.Writes != 4 || d.Trace.Began != cause.Began) {
			t.Errorf("it goes on as %+v", d.Trace)
		}
	}
}

// meets makes a watch receive a version of a Pod.
func (k *kindWatch) meets(t *testing.T, name, version string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: version}}
	if err := k.receiveEvent(t.Context(), watch.Event{Type: watch.Added, Object: pod}); err != nil {
		t.Fatal(err)
	}
	for at := range k.held {
		k.held[at].until = time.Now().Add(time.Hour) // so that a slow machine does not end the wait
	}
}

// elapsed checks that the log has that many deltas, after the watch was signalled.
func (k *kindWatch) goesOn(t *testing.T, b bus.Bus, want int) {
	t.Helper()
	select {
	case <-k.wake:
	default:
		t.Error("the wake does not say that there is news")
	}
	if err := k.releaseHeld(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := len(logOf(t, b)); got != want {
		t.Fatalf("%d deltas went on, want %d", got, want)
	}
}

func aPod(name string) events.Ref {
	return events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name}
}

// TestAChangeWaitsForTheWriteUnderWay: later changes wait behind it, and it continues its writer's
// trace when the writer reports the answer. No other change waits.
func TestAChangeWaitsForTheWriteUnderWay(t *testing.T) {
	t.Parallel()
	b, r := memory.New(memory.Options{}), tracetest.New()
	k := traceable(t, b, r)
	k.meets(t, "before", "1")
	if got := len(logOf(t, b)); got != 1 {
		t.Fatalf("%d deltas went on, want that which no writer is writing", got)
	}
	k.writes.receive(trace.Write{ID: "w", About: aPod("late"), Begins: true})
	k.meets(t, "late", "2")
	k.meets(t, "behind", "3")
	if got := len(logOf(t, b)); got != 1 {
		t.Fatalf("%d deltas went on without waiting", got-1)
	}
	k.writes.receive(trace.Write{ID: "w", About: aPod("late"), UID: "late", Version: "2", Trace: events.Trace{Parent: request}})
	k.goesOn(t, b, 3)
	eventually(t, b, "is before", "is late", "is behind")
	if got := trace.Context(logOf(t, b)[1].Trace).TraceID(); got != trace.Context(events.Trace{Parent: request}).TraceID() {
		t.Errorf("it goes on in %v", got)
	}
}

// TestAWriteThatFailsHoldsUpNothing, nor does one of several writes when its answer, and so its
// version, is known.
func TestAWriteThatFailsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	k := traceable(t, b, tracetest.New())
	for _, id := range []string{"one", "two"} {
		k.writes.receive(trace.Write{ID: id, About: aPod("a"), Begins: true})
	}
	k.meets(t, "a", "1")
	k.writes.receive(trace.Write{ID: "one", About: aPod("a")})
	k.goesOn(t, b, 0)
	k.writes.receive(trace.Write{ID: "two", About: aPod("a")})
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
	k.writes.receive(trace.Write{ID: "killed", About: aPod("a"), Begins: true})
	k.meets(t, "a", "1")
	k.held[0].until = time.Now()
	if err := k.releaseHeld(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	k.meets(t, "a", "2")
	if got := len(logOf(t, b)); got != 2 {
		t.Fatalf("%d deltas went on, want 2", got)
	}
	k.writes.receive(trace.Write{ID: "lost", About: aPod("a"), Begins: true})
	k.meets(t, "a", "3")
	k.writes.endAllWrites()
	k.goesOn(t, b, 3)
	k.writes.receive(trace.Write{Writer: "mute", ID: "forgotten", About: aPod("b"), Begins: true})
	k.writes.lastHeard["mute"] = time.Now().Add(-2 * writerTimeout)
	k.meets(t, "b", "4")
	if got := len(logOf(t, b)); got != 4 {
		t.Errorf("%d deltas went on, want that too of whose writer nothing is heard", got)
	}
	k.writes.endUnlisted(trace.Roll{Writer: "another"})
	if _, known := k.writes.lastHeard["mute"]; known || len(k.writes.inFlight) > 0 {
		t.Errorf("it is remembered: %t, with the writes %v", known, k.writes.inFlight)
	}
}

// TestAWordThatIsLostHoldsUpNothingAfterTheRoll: the writes that the roll names stay in flight, and
// so do the writes of other writers.
func TestAWordThatIsLostHoldsUpNothingAfterTheRoll(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	k := traceable(t, b, tracetest.New())
	for _, id := range []string{"lost", "open"} {
		k.writes.receive(trace.Write{Writer: "w", ID: id, About: aPod(id), Begins: true})
	}
	k.writes.receive(trace.Write{Writer: "other", ID: "lost", About: aPod("theirs"), Begins: true})
	for i, name := range []string{"lost", "open"} {
		k.meets(t, name, fmt.Sprint(i+1))
	}
	k.writes.endUnlisted(trace.Roll{Writer: "w", Open: []string{"lost", "open"}})
	if err := k.releaseHeld(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := len(logOf(t, b)); got != 0 {
		t.Fatalf("%d deltas went on, although the roll names their writes", got)
	}
	k.writes.endUnlisted(trace.Roll{Writer: "w", Open: []string{"open"}})
	k.goesOn(t, b, 1)
	k.meets(t, "theirs", "3")
	k.writes.receive(trace.Write{Writer: "w", ID: "open", About: aPod("open"), UID: "open", Version: "2"})
	k.goesOn(t, b, 2)
	k.writes.receive(trace.Write{Writer: "other", ID: "lost", About: aPod("theirs")})
	k.goesOn(t, b, 3)
}

func TestMissedCausesAreCountedByReason(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	k := traceable(t, b, tracetest.New())
	answer := func(name, version string) {
		k.writes.receive(trace.Write{ID: name, About: aPod(name), UID: types.UID(name), Version: version})
	}
	begin := func(name string) { k.writes.receive(trace.Write{ID: name, About: aPod(name), Begins: true}) }
	k.meets(t, "unheard", "1")
	answer("unheard", "1")
	k.meets(t, "late", "2")
	begin("late")
	answer("late", "2")
	begin("waited")
	k.meets(t, "waited", "3")
	k.held[0].until = time.Now()
	if err := k.releaseHeld(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	answer("waited", "3")
	begin("hurried")
	k.meets(t, "hurried", "4")
	if err := k.releaseHeld(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	answer("hurried", "4")
	begin("in time")
	k.meets(t, "in time", "5")
	answer("in time", "5")
	if err := k.releaseHeld(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := len(logOf(t, b)); got != 5 {
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

// TestAWriterIsToldThatItIsHeard: the watcher of the kind acknowledges the write, after which the
// change waits. No watcher acknowledges a write of a kind that is not watched.
func TestAWriterIsToldThatItIsHeard(t *testing.T) {
	t.Parallel()
	s, b, r := serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	heard := make(chan string, 64)
	go func() { _ = b.Listen(t.Context(), trace.HeardBy("w"), func(id []byte) { heard <- string(id) }) }()
	until(t, func() bool { // wait until both listen
		tell(t, b, trace.Write{Writer: "w", ID: "elsewhere", About: events.Ref{Kind: "nodes", Name: "n"}, Begins: true})
		tell(t, b, trace.Write{Writer: "w", ID: "here", About: aPod("a"), Begins: true})
		return len(heard) > 0
	})
	if got := <-heard; got != "here" {
		t.Errorf("%q is heard", got)
	}
	service.writes.mu.Lock()
	defer service.writes.mu.Unlock()
	if !service.writes.inFlight[aPod("a")][flight{"w", "here"}] {
		t.Error("it is not known, although that was said")
	}
}

// TestAWriterThatDoesNotTell holds up nothing: its changes begin traces, and a change that it
// reports too late is counted.
func TestAWriterThatDoesNotTell(t *testing.T) {
	t.Parallel()
	s, b, r := serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	known(t, b, service, trace.Write{UID: "another", Version: "1"})
	s.changeOf("pods", "MODIFIED", "a", byWriter(events.FieldManager))
	if span := spans(t, r, 1)[0]; span.Parent.IsValid() || !strings.Contains(span.Attributes[trace.Outcome], "missed") {
		t.Errorf("parent %v, %q", span.Parent.IsValid(), span.Attributes[trace.Outcome])
	}
	if !service.writes.writersReport() {
		t.Error("it does not know that writers tell of their writes")
	}
	if got := testutil.CollectAndCount(service.writes.missed); got != 0 {
		t.Errorf("%d kinds have missed causes, although no writer has told of any", got)
	}
	eventually(t, b, "is a")
	for _, d := range logOf(t, b) {
		if d.Op == events.Is {
			tell(t, b, trace.Write{UID: d.UID, Version: d.ResourceVersion})
		}
	}
	until(t, func() bool {
		return testutil.ToFloat64(service.writes.missed.WithLabelValues("pods", string(unheard))) == 1
	})
}

func TestAWriteThatIsNotSampledBeginsNoTrace(t *testing.T) {
	t.Parallel()
	s, b, r := serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	known(t, b, service, trace.Write{UID: "uid-2", Version: "2"})
	s.changeOf("pods", "ADDED", "ours", byWriter(events.FieldManager))
	s.change("ADDED", "theirs", 0)
	if got := spans(t, r, 1); len(got) != 1 || got[0].Attributes[trace.ObjectName] != "theirs" {
		t.Errorf("the traces are\n%s", r.Tree())
	}
}

// TestTheEndOfAnObjectIsOurs when one of our writes caused it, however much later and in whatever
// version.
func TestTheEndOfAnObjectIsOurs(t *testing.T) {
	t.Parallel()
	s, b, r := serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	s.change("ADDED", "a", 0)
	s.change("ADDED", "b", 0)
	known(t, b, service, trace.Write{UID: "uid-2", Version: "2", Ends: true, Trace: events.Trace{Parent: request}})
	known(t, b, service, trace.Write{UID: "uid-3", Version: "3", Trace: events.Trace{Parent: request}})
	s.change("DELETED", "a", 0)
	s.change("DELETED", "b", 0)
	spans(t, r, 4)
	for _, span := range r.Named("send EV_pods") {
		if span.Attributes[trace.Op] != string(events.Gone) {
			continue
		}
		if name := span.Attributes[trace.ObjectName]; span.Parent.IsValid() != (name == "a") {
			t.Errorf("the end of %s has a parent: %t", name, span.Parent.IsValid())
		}
	}
}

// refusing is a bus whose log refuses each append until the test makes it store.
type refusing struct {
	bus.Appender
	err error
}

func (r *refusing) Append(ctx context.Context, m events.Message) error {
	if r.err != nil {
		return r.err
	}
	return r.Appender.Append(ctx, m)
}

// TestWhatIsNotStoredHasNoSpan, and a stored delta has one although the log did not confirm it.
func TestWhatIsNotStoredHasNoSpan(t *testing.T) {
	t.Parallel()
	b, r := memory.New(memory.Options{}), tracetest.New()
	k := traceable(t, b, r)
	log := k.appender
	k.appender = &refusing{log, bus.ErrOvertaken}
	pod := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u", ResourceVersion: version}}
	}
	if err := k.appendObject(t.Context(), events.Is, pod("1"), k.stamp(false)); err == nil {
		t.Fatal("the log takes it")
	}
	k.endLastSpans(t.Context())
	if got := len(r.Spans()); got != 0 {
		t.Errorf("%d spans of what was refused", got)
	}
	k.appender = log
	if err := k.appendObject(t.Context(), events.Is, pod("2"), k.stamp(false)); err != nil {
		t.Fatal(err)
	}
	if got := len(r.Spans()); got != 0 {
		t.Errorf("%d spans of what is not known to be stored", got)
	}
	if err := log.Close(); err != nil { // Flush fails from now on
		t.Fatal(err)
	}
	k.endLastSpans(t.Context())
	k.endLastSpans(t.Context())
	if got := len(r.Spans()); got != 1 {
		t.Errorf("%d spans of what was stored, want 1", got)
	}
}

// traceable is a watch of Pods with an open log, without a Service around it.
func traceable(t *testing.T, b bus.Bus, r *tracetest.Recorder) *kindWatch {
	t.Helper()
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	log, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	return &kindWatch{
		kind: kinds.Pods.Kind, bus: b, metrics: newMetrics(), appender: log,
		tracing: newTracing(newRecentWrites(r.Tracer("watcher", trace.Options{}))),
	}
}
