package trace

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Question is one call of a controller for a key.
type Question struct {
	Controller string
	// About is the key, with the kind of its object if there is one.
	About events.Ref
	// Parent is the newest sampled cause, and Triggers are all causes.
	Parent   events.Trace
	Triggers []events.Trigger
	// Began is when the call began.
	Began time.Time
}

// Now is the current time, for a span that may be made later; zero if the parent is not sampled,
// so that there will be no span.
func (t *Tracer) Now(parent events.Trace) time.Time {
	if t == nil || !Sampled(parent) {
		return time.Time{}
	}
	return t.options.Now()
}

// Process begins the span of a question; nil if none of its causes is sampled.
func (t *Tracer) Process(q Question) *Span {
	if t == nil || !Sampled(q.Parent) {
		return nil
	}
	newest, links := events.Trigger{}, []otel.Link(nil)
	for _, trigger := range q.Triggers {
		if trigger.Trace == q.Parent {
			newest = trigger
		} else if Sampled(trigger.Trace) {
			links = append(links, link(trigger.Trace, "cause"))
		}
	}
	attrs := append(processes(newest.Stream, q.Controller), at(newest.Sequence)...)
	attrs = append(attrs, Controller.String(q.Controller), semconv.MessagingBatchMessageCount(max(1, len(q.Triggers))))
	b := create{
		name: "process " + newest.Stream, kind: otel.SpanKindConsumer, parent: q.Parent, at: q.Began, links: links,
		attrs: append(attrs, object(q.About)...),
	}
	if newest.Sequence > 0 { // a wake that fires locally before its message arrives has no sequence
		b.ids = derived(t.options.Cluster, "turn", q.Controller, newest.Stream, number(newest.Sequence), events.Key(q.About).String())
	}
	return t.goOn(b)
}

// First begins the trace of a decision that no message asked for, when a controller first looks
// at existing objects: nil if it is not sampled. The question needs no parent and no triggers.
// labels are the labels of its object, and decided is the time of the decision, from which a
// reader can derive the ids.
func (t *Tracer) First(q Question, labels map[string]string, decided time.Time) *Span {
	if t == nil {
		return nil
	}
	return t.begin(create{
		name: "reconcile " + q.Controller, kind: otel.SpanKindInternal, at: q.Began,
		cause: Cause{Kind: string(q.About.Kind), Namespace: q.About.Namespace, Labels: labels},
		ids:   derived(t.options.Cluster, "first", q.Controller, events.Key(q.About).String(), decided.String()),
		attrs: append([]attribute.KeyValue{Controller.String(q.Controller)}, object(q.About)...),
	})
}

// Reconcile begins the span of a decision within that of its question.
func (t *Tracer) Reconcile(process *Span, controller string, began time.Time) *Span {
	if process == nil {
		return nil
	}
	return t.goOn(create{
		name: "reconcile " + controller, kind: otel.SpanKindInternal, parent: process.trace, at: began,
		attrs: []attribute.KeyValue{Controller.String(controller)},
	})
}

// Turn begins the span of a turn that is about to be stored; nil if it is not sampled.
func (t *Tracer) Turn(turn events.Turn) *Span {
	if t == nil || !Sampled(turn.Trace) {
		return nil
	}
	stream := subject.TurnStream(turn.Controller)
	attrs := append(sends(stream), describe(turn)...)
	if turn.Repeats > 0 {
		attrs = append(attrs, attribute.Int64("millrace.repeats", int64(turn.Repeats)))
	}
	return t.goOn(create{
		name: "send " + stream, kind: otel.SpanKindProducer, parent: turn.Trace, attrs: attrs,
		ids: derived(t.options.Cluster, "send", turn.Controller, turn.Key.String(), turn.Now.String()),
	})
}

// Carry begins the span of a turn that a writer carries out.
func (t *Tracer) Carry(m events.Message, turn events.Turn, delivery int) *Span {
	if t == nil || !Sampled(turn.Trace) {
		return nil
	}
	stream := subject.TurnStream(turn.Controller)
	attrs := append(processes(stream, "writer"), describe(turn)...)
	attrs = append(attrs, at(m.Sequence)...)
	return t.goOn(create{
		name: "process " + stream, kind: otel.SpanKindConsumer, parent: turn.Trace,
		attrs: append(attrs, Delivery.Int(delivery)),
		ids:   derived(t.options.Cluster, "carry", stream, number(m.Sequence), m.Time.String()),
	})
}

// describe gives the attributes of a turn.
func describe(turn events.Turn) []attribute.KeyValue {
	about := events.Ref(turn.Key)
	if about.Kind == "" {
		about.Kind = turn.Kind
	}
	return append(object(about),
		Controller.String(turn.Controller), Lane.String(turn.Lane.String()), Because.String(turn.Because),
		Commands.Int(len(turn.Commands)), Attempt.Int(turn.Attempt), ResourceVersion.String(turn.ResourceVersion),
	)
}

func at(sequence uint64) []attribute.KeyValue {
	return []attribute.KeyValue{Sequence.Int64(int64(sequence))}
}
