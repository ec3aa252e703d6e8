package watcher

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

const request = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// tracedBy records a watcher's spans.
func tracedBy(r *tracetest.Recorder) func(*Config) {
	return func(c *Config) { c.Trace = r.Tracer("watcher", trace.Options{}) }
}

// spans waits until n deltas have their spans.
func spans(t *testing.T, r *tracetest.Recorder, n int) []tracetest.Span {
	t.Helper()
	watchertest.Until(t, func() bool { return len(r.Named("send EV_pods")) >= n })
	return r.Named("send EV_pods")
}

// watching waits until changes come by watch: what a relist finds has no traces.
func watching(t *testing.T, s *Service) {
	t.Helper()
	watchertest.Until(t, s.isWatching)
}

// isWatching reports whether the watcher has listed pods and watches them.
func (s *Service) isWatching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.kinds[kinds.Pods.Name]
	if r == nil {
		return false
	}
	synced, err := r.reflector.Status()
	return synced && err == nil
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
	watchertest.Until(t, func() bool {
		tell(t, b, w)
		_, ours := s.writes.TraceOf(w.UID, w.Version)
		return ours
	})
}

// TestChangesBeginTracesWhateverWatcherSeesThem: each change begins one trace, recorded once, which
// links to that of the object's previous change. A relist's finding begins none.
func TestChangesBeginTracesWhateverWatcherSeesThem(t *testing.T) {
	t.Parallel()
	s, b, r := watchertest.Serve(t), memory.New(memory.Options{}), tracetest.New()
	s.PutPod("old", 0)
	one, stop := start(t, s, b, "one", tracedBy(r))
	watching(t, one)
	s.PutPod("a", 0)
	s.Edit("pods", "a", labelled("one"))
	first := spans(t, r, 2)
	stop()
	two, _ := start(t, s, b, "two", tracedBy(r))
	watching(t, two)
	s.Edit("pods", "a", labelled("two"))
	s.RemovePod("a")
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
	for _, d := range watchertest.LogOf(t, b) {
		if told := trace.Context(d.Trace).IsValid(); told != (d.Ref.Name == "a") {
			t.Errorf("%s %s carries a trace: %t", d.Op, d.Ref.Name, told)
		}
	}
}

// TestAChangeOfOursGoesOnInItsTrace: its writer has reported it before the watcher receives it.
func TestAChangeOfOursGoesOnInItsTrace(t *testing.T) {
	t.Parallel()
	s, b, r := watchertest.Serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	cause := events.Trace{Parent: request, Writes: 3, Began: time.Now().UnixMilli()}
	known(t, b, service, trace.Write{UID: "uid-2", Version: "2", Trace: cause})
	s.Edit("pods", "early", watchertest.ByWriter(events.FieldManager))
	spans(t, r, 1)

	s.PutPod("behind", 0)
	spans(t, r, 2)
	watchertest.Eventually(t, b, "is early", "is behind")
	for _, span := range r.Named("send EV_pods") {
		ours := span.Attributes[trace.ObjectName] != "behind"
		if ours != (span.Parent.SpanID().String() == "b7ad6b7169203331") {
			t.Errorf("%s has the parent %v", span.Attributes[trace.ObjectName], span.Parent.SpanID())
		}
	}
	for _, d := range watchertest.LogOf(t, b) {
		if d.Ref.Name == "early" && (d.Trace.Writes != 4 || d.Trace.Began != cause.Began) {
			t.Errorf("the trace goes on as %+v, want 4 writes since its beginning", d.Trace)
		}
	}
}

// TestAWriterIsToldThatItIsHeard: the watcher of the kind acknowledges the write, after which the
// change waits. No watcher acknowledges a write of a kind that is not watched.
func TestAWriterIsToldThatItIsHeard(t *testing.T) {
	t.Parallel()
	s, b, r := watchertest.Serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	heard := make(chan string, 64)
	go func() { _ = b.Listen(t.Context(), trace.HeardBy("w"), func(id []byte) { heard <- string(id) }) }()
	watchertest.Until(t, func() bool { // wait until both listen
		tell(t, b, trace.Write{Writer: "w", ID: "elsewhere", About: events.Ref{Kind: "nodes", Name: "n"}, Begins: true})
		tell(t, b, trace.Write{Writer: "w", ID: "here", About: watchertest.APod("a"), Begins: true})
		return len(heard) > 0
	})
	if got := <-heard; got != "here" {
		t.Errorf("the announcement %q is heard, want \"here\"", got)
	}
	if service.writes.InFlight(watchertest.APod("a")) != 1 {
		t.Error("the write is not known, although it was announced")
	}
}

// TestAWriterThatDoesNotTell holds up nothing: its changes begin traces, and a change that it
// reports too late is counted.
func TestAWriterThatDoesNotTell(t *testing.T) {
	t.Parallel()
	s, b, r := watchertest.Serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	known(t, b, service, trace.Write{UID: "another", Version: "1"})
	s.Edit("pods", "a", watchertest.ByWriter(events.FieldManager))
	if span := spans(t, r, 1)[0]; span.Parent.IsValid() || !strings.Contains(span.Attributes[trace.Outcome], "missed") {
		t.Errorf("the span has a parent: %v, and the outcome %q; want none, and missed", span.Parent.IsValid(), span.Attributes[trace.Outcome])
	}
	if !service.writes.Heard() {
		t.Error("Heard is false, although writers announce their writes")
	}
	if got := testutil.CollectAndCount(missedOf(service)); got != 0 {
		t.Errorf("%d kinds have missed causes, although no writer has told of any", got)
	}
	watchertest.Eventually(t, b, "is a")
	for _, d := range watchertest.LogOf(t, b) {
		if d.Op == events.Is {
			tell(t, b, trace.Write{UID: d.UID, Version: d.ResourceVersion})
		}
	}
	watchertest.Until(t, func() bool {
		return testutil.ToFloat64(missedOf(service).WithLabelValues("pods", "unheard")) == 1
	})
}

func TestAWriteThatIsNotSampledBeginsNoTrace(t *testing.T) {
	t.Parallel()
	s, b, r := watchertest.Serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	known(t, b, service, trace.Write{UID: "uid-2", Version: "2"})
	s.Edit("pods", "ours", watchertest.ByWriter(events.FieldManager))
	s.PutPod("theirs", 0)
	if got := spans(t, r, 1); len(got) != 1 || got[0].Attributes[trace.ObjectName] != "theirs" {
		t.Errorf("the traces are\n%s", r.Tree())
	}
}

// TestTheEndOfAnObjectIsOurs when one of our writes caused it, however much later and in whatever
// version.
func TestTheEndOfAnObjectIsOurs(t *testing.T) {
	t.Parallel()
	s, b, r := watchertest.Serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	s.PutPod("a", 0)
	s.PutPod("b", 0)
	known(t, b, service, trace.Write{UID: "uid-2", Version: "2", Ends: true, Trace: events.Trace{Parent: request}})
	known(t, b, service, trace.Write{UID: "uid-3", Version: "3", Trace: events.Trace{Parent: request}})
	s.RemovePod("a")
	s.RemovePod("b")
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

// TestAReportGoesOnInTheTraceOfWhatItReportsOn, and a change that asks for something new does not.
func TestAReportGoesOnInTheTraceOfWhatItReportsOn(t *testing.T) {
	t.Parallel()
	s, b, r := watchertest.Serve(t), memory.New(memory.Options{}), tracetest.New()
	service, _ := start(t, s, b, "one", tracedBy(r))
	watching(t, service)
	cause := events.Trace{Parent: request, Writes: 3, Began: time.Now().UnixMilli()}
	known(t, b, service, trace.Write{UID: "uid-2", Version: "2", Trace: cause})
	s.PutPod("a", 0)
	s.PutPod("a", 1) // it is bound
	s.Edit("pods", "a", func(p *corev1.Pod) {
		watchertest.ByWriter("kubelet")(p)
		p.ManagedFields[0].Subresource, p.Status.Phase = "status", corev1.PodRunning
	})
	s.Edit("pods", "a", labelled("otherwise"))
	all := spans(t, r, 4)
	for i, span := range all[1:3] {
		if span.Parent.SpanID() != all[i].Context.SpanID() || span.Context.TraceID() != all[0].Context.TraceID() {
			t.Errorf("report %d is below %v, want %v", i+1, span.Parent.SpanID(), all[i].Context.SpanID())
		}
	}
	if last := all[3]; last.Parent.IsValid() || len(last.Links) != 1 {
		t.Errorf("the label is below %v, with links %v", last.Parent.SpanID(), last.Links)
	}
	watchertest.Eventually(t, b, "is a", "is a", "is a", "is a")
	for _, d := range watchertest.LogOf(t, b) {
		if d.ResourceVersion == "4" && d.Trace.Writes != 6 {
			t.Errorf("the second report is %d writes away, want 6", d.Trace.Writes)
		}
	}
}

// missedOf is the metric of the writes that were not reported in time.
func missedOf(s *Service) *prometheus.CounterVec {
	return s.writes.Collectors()[0].(*prometheus.CounterVec)
}
