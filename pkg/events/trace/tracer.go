package trace

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/pkg/events"
)

// Limits are where a trace ends and another one begins.
type Limits struct {
	// Writes is how many writes may follow from each other; 0 means 20. Two
	// controllers that undo each other's work make a new trace every so often, not
	// one without end.
	Writes int
	// Age is how long after its first change a trace may go on; 0 means 15 min.
	Age time.Duration
	// Fanout is how many commands of a turn are in its trace; 0 means 50. Each
	// further one has a trace of its own.
	Fanout int
}

// Options of a Tracer.
type Options struct {
	// Cluster tells apart clusters that share uids, such as one and its restored
	// copy; it is part of the ids of traces. May be empty.
	Cluster string
	Limits  Limits
	// Now is the time by which traces age; nil means the system's.
	Now func() time.Time
}

// Tracer makes the spans of a service. It is safe for concurrent use. nil makes none.
type Tracer struct {
	tracer  otel.Tracer
	options Options
	replay  *Span // all spans are its descendants
}

// Scope names the instrumentation in every span.
const Scope = "github.com/millrace/millrace/pkg/events/trace"

// New makes a tracer; a nil provider gives nil. A provider of the SDK must have
// [IDs] as its generator of ids.
func New(provider otel.TracerProvider, o Options) *Tracer {
	if provider == nil {
		return nil
	}
	o.Limits.Writes = cmp.Or(o.Limits.Writes, 20)
	o.Limits.Age = cmp.Or(o.Limits.Age, 15*time.Minute)
	o.Limits.Fanout = cmp.Or(o.Limits.Fanout, 50)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Tracer{tracer: provider.Tracer(Scope, otel.WithSchemaURL(SchemaURL)), options: o}
}

// Replay gives a tracer for looking at what was recorded, and the root of all its
// spans, which is to be ended when the replay has. None of them is in a trace that
// was recorded, to which they have links instead.
func (t *Tracer) Replay(name string) (*Tracer, *Span) {
	if t == nil {
		return nil, nil
	}
	root := t.begin(create{name: "replay " + name, kind: otel.SpanKindInternal, cause: Cause{}})
	if root == nil {
		return nil, nil
	}
	root.span.SetAttributes(Replay.Bool(true))
	inner := *t
	inner.replay = root
	return &inner, root
}

// Span is a span under way; nil is none.
type Span struct {
	span  otel.Span
	trace events.Trace
}

// Trace is the context for what the span leads to; empty for none.
func (s *Span) Trace() events.Trace {
	if s == nil {
		return events.Trace{}
	}
	return s.trace
}

// Or is the context for what the span leads to, or, where there is no span, the
// context that was to be its parent: a service that makes no spans hands on what came.
func (s *Span) Or(parent events.Trace) events.Trace {
	if s == nil {
		return parent
	}
	return s.trace
}

// Set adds attributes.
func (s *Span) Set(attributes ...attribute.KeyValue) {
	if s != nil {
		s.span.SetAttributes(attributes...)
	}
}

// Fail says that it failed. The reason is one of few: a message could tell the
// content of an object.
func (s *Span) Fail(reason string) {
	if s != nil {
		s.span.SetStatus(codes.Error, reason)
	}
}

// End ends the span. One that is never ended is never exported.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// EndAt ends the span at a moment that has passed.
func (s *Span) EndAt(at time.Time) {
	if s != nil {
		s.span.End(otel.WithTimestamp(at))
	}
}

// With gives a context that carries the span, and [From] takes it out again.
func With(ctx context.Context, s *Span) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, carried{}, s)
}

// From is the span that a context carries, or nil.
func From(ctx context.Context) *Span {
	s, _ := ctx.Value(carried{}).(*Span)
	return s
}

type carried struct{}

// create is what a span begins with.
type create struct {
	name    string
	kind    otel.SpanKind
	parent  events.Trace // empty for a root
	further bool         // it is one write further than its parent
	ids     ids          // of a root
	cause   Cause        // of a root
	at      time.Time    // zero means now
	links   []otel.Link
	attrs   []attribute.KeyValue
}

// goOn begins a span behind another one, unless that is not sampled. Where the
// trace has reached its limits the span is the root of a new one.
func (t *Tracer) goOn(b create) *Span {
	if t == nil || !Sampled(b.parent) {
		return nil
	}
	limit := t.limit(b)
	if limit == "" {
		return t.begin(b)
	}
	return t.cut(b, limit)
}

// limit is the one that a trace would exceed; "" for none.
func (t *Tracer) limit(b create) string {
	switch {
	case t.replay != nil:
		return ""
	case b.further && b.parent.Writes >= t.options.Limits.Writes:
		return "writes"
	case b.parent.Began > 0 && t.options.Now().Sub(time.UnixMilli(b.parent.Began)) > t.options.Limits.Age:
		return "age"
	default:
		return ""
	}
}

// cut begins a new trace with a span that would have gone on in another one.
func (t *Tracer) cut(b create, limit string) *Span {
	b.links = append(b.links, link(b.parent, "cause"))
	b.parent, b.cause.Cut = events.Trace{}, true
	b.attrs = append(b.attrs, Cut.String(limit))
	return t.begin(b)
}

// begin begins a span; nil if it is not recorded.
func (t *Tracer) begin(b create) *Span {
	ctx, next := context.Background(), events.Trace{Writes: b.parent.Writes, Began: b.parent.Began}
	if t.replay != nil {
		b = t.aside(b)
	}
	if b.parent.Parent != "" {
		if b.further {
			next.Writes++
		}
		parent := Context(b.parent)
		if !parent.IsValid() {
			return nil
		}
		ctx = otel.ContextWithRemoteSpanContext(ctx, parent)
	} else {
		next = events.Trace{Began: t.options.Now().UnixMilli()}
		ctx = context.WithValue(ctx, causing{}, b.cause)
		if b.ids.trace.IsValid() {
			ctx = context.WithValue(ctx, wanted{}, b.ids)
		}
	}
	options := make([]otel.SpanStartOption, 0, 4)
	options = append(options, otel.WithSpanKind(b.kind), otel.WithAttributes(b.attrs...))
	if len(b.links) > 0 {
		options = append(options, otel.WithLinks(b.links...))
	}
	if !b.at.IsZero() {
		options = append(options, otel.WithTimestamp(b.at))
	}
	_, span := t.tracer.Start(ctx, b.name, options...)
	if !span.IsRecording() || !span.SpanContext().IsSampled() {
		return nil
	}
	return &Span{span: span, trace: of(span.SpanContext(), next.Writes, next.Began)}
}

// aside puts a span into the trace of the replay.
func (t *Tracer) aside(b create) create {
	root := t.replay.trace
	if c := Context(b.parent); c.IsValid() && c.TraceID() != t.replay.span.SpanContext().TraceID() {
		b.links = append(b.links, link(b.parent, "recorded"))
		b.parent = root
	}
	if b.parent.Parent == "" {
		b.parent = root
	}
	b.attrs = append(b.attrs, Replay.Bool(true))
	return b
}

// link is a link to a span, with what it is.
func link(to events.Trace, what string) otel.Link {
	return otel.Link{SpanContext: Context(to), Attributes: []attribute.KeyValue{LinkTo.String(what)}}
}
