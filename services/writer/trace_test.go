package writer_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/writer"
)

const (
	sent     = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	creating = "POST /api/v1/namespaces/{namespace}/pods"
)

// tracedBy records a writer's spans.
func tracedBy(r *tracetest.Recorder, limits trace.Limits) func(*writer.Config) {
	return func(c *writer.Config) { c.Trace = r.Tracer("writer", trace.Options{Limits: limits}) }
}

// heard returns the successful writes that a writer announced; it checks that each was announced
// before it began and when it ended.
func (s *scene) heard() func() []trace.Write {
	var mu sync.Mutex
	var all []trace.Write
	under := map[string]bool{} // announced writes, and whether they are in flight
	listening := false
	go func() {
		_ = s.bus.Listen(s.Context(), trace.Writes, func(data []byte) {
			w, ok := trace.DecodeWrite(data)
			if !ok {
				if _, ok := trace.DecodeRoll(data); !ok {
					s.Errorf("a writer tells %q", data)
				}
				mu.Lock()
				defer mu.Unlock()
				listening = true
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if _, twice := under[w.ID]; w.Begins == twice {
				s.Errorf("a writer tells %+v, begun %t", w, twice)
			}
			if under[w.ID] = w.Begins; !w.Begins && w.UID != "" {
				all = append(all, w)
			}
		})
	}()
	eventually.True(s, eventually.Long, "listener", func() bool { // what is said before that is lost
		s.must(s.bus.Broadcast(trace.Writes, trace.Roll{Writer: "another", Open: []string{}}.Encode()))
		mu.Lock()
		defer mu.Unlock()
		return listening
	})
	return func() []trace.Write {
		mu.Lock()
		defer mu.Unlock()
		return append([]trace.Write(nil), all...)
	}
}

// quietCreates are creates without a notice: an Event is a write as well.
func quietCreates(key string, n int) []events.Command {
	commands := creates(key, n)
	for i := range commands {
		commands[i].OnApplied, commands[i].OnFailed = nil, nil
	}
	return commands
}

// TestARequestIsInTheTraceOfItsTurn: the API server and the watchers get the trace, and the
// outcome continues it. A retry is one more request.
func TestARequestIsInTheTraceOfItsTurn(t *testing.T) {
	t.Parallel()
	s, r := newScene(t), tracetest.New()
	heard := s.heard()
	var mu sync.Mutex
	broken, parents := 0, map[string]bool{}
	s.api.Break(func(q apiservertest.Request) apiservertest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if q.Method == http.MethodPost {
			parents[q.Header.Get("traceparent")] = true
			if broken++; broken == 1 {
				return apiservertest.Fault{Code: http.StatusServiceUnavailable}
			}
		}
		return apiservertest.Fault{}
	})
	s.writer(tracedBy(r, trace.Limits{}))
	sequence := s.store("web", func(turn *events.Turn) { turn.Trace = events.Trace{Parent: sent, Writes: 2} }, quietCreates("web", 2)...)
	o := s.outcome("web")
	eventually.True(s, eventually.Long, "span of the turn", func() bool { return len(r.Named("process TURN_"+controller)) == 1 })
	turn := r.Named("process TURN_" + controller)[0]
	if turn.Parent.SpanID().String() != "b7ad6b7169203331" || turn.Attributes[trace.Sequence] != fmt.Sprint(sequence) || turn.Attributes[trace.Outcome] != "applied" || turn.Failure != "" {
		t.Errorf("the turn's span is %+v", turn)
	}
	if got := trace.Context(o.Trace).SpanID(); got != turn.Context.SpanID() || o.Trace.Writes != 2 {
		t.Errorf("the outcome goes on behind %v as %+v", got, o.Trace)
	}
	requests := r.Named(creating)
	if len(requests) != 3 {
		t.Fatalf("the traces are\n%s", r.Tree())
	}
	failed := 0
	for _, q := range requests {
		if q.Parent.SpanID() != turn.Context.SpanID() || !strings.HasPrefix(q.Attributes[trace.AuditID], "TURN_"+controller+".") {
			t.Errorf("a request's span is %+v", q)
		}
		if q.Failure != "" {
			failed++
		}
		if id := fmt.Sprintf("00-%v-%v-01", q.Context.TraceID(), q.Context.SpanID()); !parents[id] {
			t.Errorf("the API server was not told of %s, but of %v", id, parents)
		}
	}
	if failed != 1 {
		t.Errorf("%d requests failed, want 1", failed)
	}
	eventually.True(s, eventually.Long, "two writes are told of", func() bool { return len(heard()) >= 2 })
	for i, w := range heard() {
		if w.UID != o.Results[i].UID && w.UID != o.Results[1-i].UID || trace.Context(w.Trace).TraceID() != turn.Context.TraceID() || w.Ends {
			t.Errorf("the write is announced as %+v, want it with the uid and the trace of its result", w)
		}
	}
}

// TestCommandsBeyondTheLimitHaveTracesOfTheirOwn: commands beyond the fan-out limit have traces of
// their own, and all are announced.
func TestCommandsBeyondTheLimitHaveTracesOfTheirOwn(t *testing.T) {
	t.Parallel()
	s, r := newScene(t), tracetest.New()
	s.writer(tracedBy(r, trace.Limits{Fanout: 2}))
	s.store("web", func(turn *events.Turn) { turn.Trace = events.Trace{Parent: sent} }, quietCreates("web", 5)...)
	s.outcome("web")
	eventually.True(s, eventually.Long, "span of the turn", func() bool { return len(r.Named("process TURN_"+controller)) == 1 })
	want := "(orphan) writer: process TURN_" + controller + "\n  writer: " + creating + " ×2\nwriter: " + creating + " [1 links] ×3\n"
	if got := r.Tree(); got != want {
		t.Errorf("the traces are\n%swant\n%s", got, want)
	}
}

// TestWhatIsNotSampledIsToldOf: writes that are not sampled are announced, and have no span;
// without traces none is announced.
func TestWhatIsNotSampledIsToldOf(t *testing.T) {
	t.Parallel()
	s, r := newScene(t), tracetest.New()
	heard := s.heard()
	stop := s.writer()
	s.store("silent", nil, quietCreates("silent", 1)...)
	s.outcome("silent")
	stop()
	s.writer(tracedBy(r, trace.Limits{}))
	s.store("web", nil, quietCreates("web", 1)...)
	o := s.outcome("web")
	eventually.True(s, eventually.Long, "the write is told of", func() bool { return len(heard()) > 0 })
	if w := heard(); len(w) != 1 || w[0].UID != o.Results[0].UID || w[0].Trace != (events.Trace{}) || len(r.Spans()) != 0 {
		t.Errorf("without a trace the write is announced as %+v, and the spans are\n%s", w, r.Tree())
	}
}

// TestAnEndIsTold: a deletion is announced by uid, even if the answer has no version.
func TestAnEndIsTold(t *testing.T) {
	t.Parallel()
	s, r := newScene(t), tracetest.New()
	heard := s.heard()
	s.api.Put(pods+"web-0", "u0", map[string]any{})
	s.writer(tracedBy(r, trace.Limits{}))
	s.store("web", func(turn *events.Turn) { turn.Trace = events.Trace{Parent: sent} }, events.Command{
		Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: "web-0", If: &events.If{UID: "u0"},
	})
	s.outcome("web")
	eventually.True(s, eventually.Long, "the write is told of", func() bool { return len(heard()) > 0 })
	if w := heard()[0]; w.UID != "u0" || !w.Ends || w.Trace.Parent == "" {
		t.Errorf("the delete is announced as %+v, want the end of u0 with its trace", w)
	}
}

// TestAWriteThatIsRefusedIsToldToHaveEnded: the watchers would otherwise hold back changes of the
// object.
func TestAWriteThatIsRefusedIsToldToHaveEnded(t *testing.T) {
	t.Parallel()
	s, r := newScene(t), tracetest.New()
	said, listening := make(chan trace.Write, 16), make(chan bool, 1)
	go func() {
		_ = s.bus.Listen(s.Context(), trace.Writes, func(data []byte) {
			if w, ok := trace.DecodeWrite(data); ok {
				said <- w
				return
			}
			select {
			case listening <- true:
			default:
			}
		})
	}()
	eventually.True(s, eventually.Long, "listener", func() bool { // what is said before that is lost
		s.must(s.bus.Broadcast(trace.Writes, trace.Roll{Writer: "another", Open: []string{}}.Encode()))
		return len(listening) > 0
	})
	s.api.Break(func(q apiservertest.Request) apiservertest.Fault {
		if q.Method == http.MethodPost {
			return apiservertest.Fault{Code: http.StatusForbidden}
		}
		return apiservertest.Fault{}
	})
	s.writer(tracedBy(r, trace.Limits{}))
	s.store("web", func(turn *events.Turn) { turn.Trace = events.Trace{Parent: sent} }, quietCreates("web", 1)...)
	s.outcome("web")
	begun, ended := <-said, <-said
	if !begun.Begins || begun.ID == "" || begun.About.Kind != "pods" || begun.About.Name == "" {
		t.Errorf("the beginning of the write is announced as %+v", begun)
	}
	if want := (trace.Write{Writer: begun.Writer, ID: begun.ID, About: begun.About}); ended != want {
		t.Errorf("the end of a write without an answer is announced as %+v, want %+v", ended, want)
	}
}

// TestAnotherDeliveryIsAnotherSpan: each delivery of a turn has its own span.
func TestAnotherDeliveryIsAnotherSpan(t *testing.T) {
	t.Parallel()
	s, r := newScene(t), tracetest.New()
	taken, held := make(chan struct{}, 8), make(chan struct{})
	s.api.Hold(func(q apiservertest.Request) {
		if q.Method == http.MethodPost {
			taken <- struct{}{}
			<-held
		}
	})
	stop := s.writer(tracedBy(r, trace.Limits{}), func(c *writer.Config) { c.Drain = 1 })
	s.store("web", func(turn *events.Turn) { turn.Trace = events.Trace{Parent: sent} }, quietCreates("web", 1)...)
	<-taken
	stop() // the writer hands the turn back
	close(held)
	s.writer(tracedBy(r, trace.Limits{}))
	s.outcome("web")
	eventually.True(s, eventually.Long, "span of each delivery", func() bool { return len(r.Named("process TURN_"+controller)) == 2 })
	deliveries := map[string]bool{}
	for _, span := range r.Named("process TURN_" + controller) {
		deliveries[span.Attributes[trace.Delivery]] = true
		if span.Parent.SpanID().String() != "b7ad6b7169203331" {
			t.Errorf("the span of the delivery has the wrong parent: %+v", span)
		}
	}
	if len(deliveries) != 2 || deliveries["0"] {
		t.Errorf("the deliveries are %v, want two", deliveries)
	}
}
