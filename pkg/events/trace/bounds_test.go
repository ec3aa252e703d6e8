package trace_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// TestASpanOfATurnTellsWhatWasDecided: reason, lane, number of commands, and number of the
// delivery.
func TestASpanOfATurnTellsWhatWasDecided(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("reconcilers", trace.Options{})
	decided := turn(events.Trace{Parent: sampled})
	decided.Kind, decided.Because, decided.Commands, decided.Attempt, decided.ResourceVersion = "deployments.apps", "too few", make([]events.Command, 3), 2, "77"
	want := map[attribute.Key]string{
		trace.Controller: "c", trace.Lane: "write", trace.Because: "too few", trace.Commands: "3", trace.Attempt: "2", trace.ResourceVersion: "77",
		trace.Kind: "deployments.apps", "k8s.namespace.name": "default", trace.ObjectName: "web", "messaging.destination.name": "TURN_c", "messaging.system": "nats",
	}
	tracer.Turn(decided).End()
	if got := tells(t, r, want); got.Name != "send TURN_c" || got.Attributes["messaging.operation.name"] != "send" {
		t.Errorf("the span of a stored turn is %s: %v", got.Name, got.Attributes)
	}
	tracer.Carry(events.Message{Sequence: 9}, decided, 4).End()
	want[trace.Sequence], want[trace.Delivery], want["messaging.consumer.group.name"], want["messaging.operation.name"] = "9", "4", "writer", "process"
	if got := tells(t, r, want); got.Name != "process TURN_c" {
		t.Errorf("the span of a turn that is carried out is %s", got.Name)
	}
	decided.Key.Kind = "pods" // as for a controller whose keys span kinds
	tracer.Turn(decided).End()
	tells(t, r, map[attribute.Key]string{trace.Kind: "pods"})
	tracer.First(trace.Question{Controller: "c", About: delta("u", "1").Ref}, nil, time.Time{}).End()
	if got := tells(t, r, map[attribute.Key]string{trace.Controller: "c", trace.Kind: "pods", trace.ObjectName: "web"}); got.Name != "reconcile c" || got.Parent.IsValid() {
		t.Errorf("the span of a first question is %s with the parent %v", got.Name, got.Parent)
	}
	process := tracer.Process(trace.Question{Controller: "c", About: delta("u", "1").Ref, Parent: events.Trace{Parent: sampled}})
	tracer.Reconcile(process, "c", time.Time{}).End()
	if got := tells(t, r, map[attribute.Key]string{trace.Controller: "c"}); got.Name != "reconcile c" || got.Parent.SpanID() != trace.Context(process.Trace()).SpanID() {
		t.Errorf("the span of a question is %s with the parent %v", got.Name, got.Parent)
	}
	process.End()
	tells(t, r, map[attribute.Key]string{"messaging.batch.message_count": "1", trace.Sequence: "0", trace.Controller: "c", "messaging.consumer.group.name": "c"})
}

// TestANewTraceIsForetoldByWhatItIsOf: the ids of a trace derive from the subject of its first
// span; another subject gives other ids.
func TestANewTraceIsForetoldByWhatItIsOf(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	old := events.Trace{Parent: sampled, Began: now.Add(-time.Hour).UnixMilli()} // every span with this parent begins a new trace
	decided := turn(old)
	decided.Now = now
	other := decided
	other.Now = now.Add(1)
	question := func(stream string, sequence uint64, name string) trace.Question {
		return trace.Question{Controller: "c", About: events.Ref{Name: name}, Parent: old, Triggers: []events.Trigger{{Stream: stream, Sequence: sequence, Trace: old}}}
	}
	spans := map[string]func(tr *trace.Tracer) *trace.Span{
		"a question":              func(tr *trace.Tracer) *trace.Span { return tr.Process(question("EV_a", 1, "a")) },
		"of another stream":       func(tr *trace.Tracer) *trace.Span { return tr.Process(question("EV_b", 1, "a")) },
		"of another message":      func(tr *trace.Tracer) *trace.Span { return tr.Process(question("EV_a", 2, "a")) },
		"of another key":          func(tr *trace.Tracer) *trace.Span { return tr.Process(question("EV_a", 1, "b")) },
		"a first one":             func(tr *trace.Tracer) *trace.Span { return tr.First(question("", 0, "a"), nil, now) },
		"of another key at first": func(tr *trace.Tracer) *trace.Span { return tr.First(question("", 0, "b"), nil, now) },
		"of another moment":       func(tr *trace.Tracer) *trace.Span { return tr.First(question("", 0, "a"), nil, now.Add(1)) },
		"a turn":                  func(tr *trace.Tracer) *trace.Span { return tr.Turn(decided) },
		"a turn later":            func(tr *trace.Tracer) *trace.Span { return tr.Turn(other) },
		"a turn in a writer": func(tr *trace.Tracer) *trace.Span {
			return tr.Carry(events.Message{Sequence: 7, Time: now}, decided, 1)
		},
		"another in a writer": func(tr *trace.Tracer) *trace.Span {
			return tr.Carry(events.Message{Sequence: 8, Time: now}, decided, 1)
		},
		"one in its place": func(tr *trace.Tracer) *trace.Span {
			return tr.Carry(events.Message{Sequence: 7, Time: now.Add(1)}, decided, 1)
		},
	}
	requests := map[string]trace.Request{
		"a request": {Method: "POST", Command: 50, Try: 1}, "of another command": {Method: "POST", Command: 51, Try: 1},
		"of another method": {Method: "PUT", Command: 50, Try: 1}, "of another try": {Method: "POST", Command: 50, Try: 2},
	}
	for name, request := range requests { // beyond the fan-out
		spans[name] = func(tr *trace.Tracer) *trace.Span {
			return tr.Request(trace.With(context.Background(), tr.Carry(events.Message{Sequence: 7, Time: now}, decided, 1)), request)
		}
	}
	r := tracetest.New()
	at := func() time.Time { return now }
	one, same, elsewhere := r.Tracer("x", trace.Options{Cluster: "c", Now: at}), r.Tracer("y", trace.Options{Cluster: "c", Now: at}), r.Tracer("z", trace.Options{Cluster: "d", Now: at})
	seen := map[string]string{}
	for name, of := range spans {
		a, b, c := of(one).Trace().ID(), of(same).Trace().ID(), of(elsewhere).Trace().ID()
		if a == "" || a != b || a == c || a == sampled[3:35] {
			t.Errorf("%s is in the traces %s and %s, and in another cluster in %s", name, a, b, c)
		}
		if before, twice := seen[a]; twice {
			t.Errorf("%s and %s begin the same trace", name, before)
		}
		seen[a] = name
	}
	asked := question("", 0, "a") // a wake without a sequence
	if a, b := one.Process(asked).Trace().ID(), one.Process(asked).Trace().ID(); a == b || a == "" {
		t.Errorf("a cause without a sequence begins the trace %s twice", a)
	}
}

// TestASpanIsAsLongAsItsWork: it begins and ends with the work.
func TestASpanIsAsLongAsItsWork(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("x", trace.Options{})
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ended := began.Add(time.Second)
	q := trace.Question{Controller: "c", Parent: events.Trace{Parent: sampled}, Began: began}
	process := tracer.Process(q)
	tracer.Reconcile(process, "c", began).EndAt(ended)
	process.EndAt(ended)
	tracer.First(q, nil, ended).EndAt(ended)
	d := delta("u", "1")
	d.At = began
	tracer.Delta(d, trace.Origin{}).EndAt(ended)
	if len(r.Spans()) != 4 {
		t.Fatalf("%d spans", len(r.Spans()))
	}
	for _, s := range r.Spans() {
		if !s.Start.Equal(began) || !s.End.Equal(ended) {
			t.Errorf("%s is from %v to %v", s.Name, s.Start, s.End)
		}
	}
}
