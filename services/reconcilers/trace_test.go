package reconcilers_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// caused returns the trace context of a client's change.
func caused(n int) events.Trace {
	return events.Trace{Parent: fmt.Sprintf("00-%032x-%016x-01", n, n)}
}

// turnOf waits for the turn of a namespace.
func (w *world) turnOf(ctx context.Context, namespace string) (turn events.Turn, m events.Message) {
	w.t.Helper()
	eventually.True(w.t, eventually.Long, "a turn of "+namespace+" is stored", func() (ok bool) {
		var err error
		m, ok, err = w.bus.Last(ctx, subject.TurnStream("copies"), subject.Turn("copies", events.LaneWrite, events.Key{Name: namespace}))
		return ok && err == nil
	})
	if err := events.DecodeJSON(m, &turn); err != nil {
		w.t.Fatal(err)
	}
	return turn, m
}

// warm waits until the turns of each started replica have a cause: objects that exist when an engine
// opens have none.
func (w *world) warm(ctx context.Context) {
	w.t.Helper()
	w.trace = caused(99)
	for n, warm := 0, map[string]bool{}; len(warm) < w.replicas; n++ {
		namespace := fmt.Sprint("warm-", n)
		w.say(ctx, kinds.ConfigMaps.Kind, namespace, "a")
		if turn, _ := w.turnOf(ctx, namespace); trace.Context(turn.Trace).TraceID() == trace.Context(w.trace).TraceID() {
			warm[turn.Code] = true
		}
	}
}

// wayBack returns the names of a turn's span, its parent, the parent of that, and so on.
func wayBack(spans []tracetest.Span, turn events.Turn) (names []string) {
	byID := map[string]tracetest.Span{}
	for _, s := range spans {
		byID[s.Context.SpanID().String()] = s
	}
	for s, ok := byID[trace.Context(turn.Trace).SpanID().String()]; ok; s, ok = byID[s.Parent.SpanID().String()] {
		names = append(names, s.Name)
	}
	return names
}

// TestATurnIsInTheTraceOfItsNewestCause: a turn is in the trace of the change that asked
// for it, and its span leads back to the change, whichever replica stored the turn.
func TestATurnIsInTheTraceOfItsNewestCause(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, w *world) {
		r := tracetest.New()
		w.tracer = r.Tracer("reconcilers", trace.Options{})
		w.start(ctx)
		w.start(ctx)
		w.warm(ctx)
		w.trace = caused(1)
		w.say(ctx, kinds.ConfigMaps.Kind, "first", "a")
		turn, m := w.turnOf(ctx, "first")
		if carried := events.TraceOf(m.Header); carried != turn.Trace {
			t.Errorf("the headers carry %v, the turn says %v", carried, turn.Trace)
		}
		if got := trace.Context(turn.Trace).TraceID(); got != trace.Context(caused(1)).TraceID() {
			t.Errorf("the turn is in trace %v", got)
		}
		eventually.True(t, eventually.Long, "the span of the turn", func() bool {
			for _, s := range r.Named("send TURN_copies") {
				if s.Context.SpanID() == trace.Context(turn.Trace).SpanID() && s.Attributes[trace.Sequence] == fmt.Sprint(m.Sequence) {
					return true
				}
			}
			return false
		})
		want := "[send TURN_copies reconcile copies process EV_configmaps]"
		eventually.True(t, eventually.Long, "the way back is "+want, func() bool { return fmt.Sprint(wayBack(r.Spans(), turn)) == want })
	})
}

// TestWhatHadItsTurnIsNoCause: a change that has had its turn is no cause of the next
// turn, so that the turn of an untraced change is untraced.
func TestWhatHadItsTurnIsNoCause(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, w *world) {
		r := tracetest.New()
		w.tracer = r.Tracer("reconcilers", trace.Options{})
		w.start(ctx)
		w.warm(ctx)
		w.trace = caused(1)
		w.say(ctx, kinds.ConfigMaps.Kind, "first", "a")
		w.turnOf(ctx, "first")
		w.trace = events.Trace{}
		w.say(ctx, kinds.ConfigMaps.Kind, "second", "a")
		turn, _ := w.turnOf(ctx, "second")
		if turn.Trace != (events.Trace{}) {
			t.Errorf("the second turn is in trace %v", turn.Trace)
		}
	})
}

// TestWithoutATracerATraceIsHandedOn: a service without a tracer passes the trace on
// to services that have one.
func TestWithoutATracerATraceIsHandedOn(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, w *world) {
		w.start(ctx)
		w.warm(ctx)
		w.trace = caused(1)
		w.say(ctx, kinds.ConfigMaps.Kind, "first", "a")
		if turn, _ := w.turnOf(ctx, "first"); turn.Trace != caused(1) {
			t.Errorf("the turn is in %v", turn.Trace)
		}
	})
}
