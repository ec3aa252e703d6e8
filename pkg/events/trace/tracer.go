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

// Limits say where a trace ends and another one begins.
type Limits struct {
	// Writes is the longest chain of writes that cause each other; 0 means 20. Two controllers
	// that undo each other's work then make a new trace every so often, not an endless one.
	Writes int
	// Age is how long after its first change a trace may continue; 0 means 15 min.
	Age time.Duration
	// Fanout is how many commands of a turn are in its trace; 0 means 50. Each further one has
	// its own trace.
	Fanout int
}

// Options of a Tracer.
type Options struct {
	// Cluster distinguishes clusters that share uids, such as one and its restored copy; it is
	// an input of the trace ids. May be empty.
	Cluster string
	Limits  Limits
	// Now is the clock by which traces age; nil means the system's.
	Now func() time.Time
}

// Tracer makes the spans of a service. It is safe for concurrent use. A nil Tracer makes none.
type Tracer struct {
	tracer  otel.Tracer
	options Options
	replay  *Span // all spans are its descendants
}

// Scope is the instrumentation scope of every span.
const Scope = "github.com/millrace/millrace/pkg/events/trace"

// New makes a tracer; nil for a nil provider. A provider of the SDK must use [IDs] as its id
// generator.
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

// Replay gives a tracer for a replay of recorded messages, and the root of all its spans, which
// the caller ends after the replay. None of these spans is in a recorded trace; they have links
// to the recorded ones instead.
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

// Span is a span in progress; nil stands for none.
type Span struct {
	span  otel.Span
	trace events.Trace
}

// Trace is the context to pass on from the span; empty for nil.
func (s *Span) Trace() events.Trace {
	if s == nil {
		return events.Trace{}
	}
	return s.trace
}

// Or is the context to pass on from the span or, for a nil span, the context of the intended
// parent: a service that makes no spans passes on what it got.
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

// Fail marks the span as failed. The reason must be from a small fixed set: a message could
// reveal the content of an object.
func (s *Span) Fail(reason string) {
	if s != nil {
		s.span.SetStatus(codes.Error, reason)
	}
}

// End ends the span. A span that is never ended is never exported.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// EndAt ends the span at an earlier time.
func (s *Span) EndAt(at time.Time) {
	if s != nil {
		s.span.End(otel.WithTimestamp(at))
	}
}

// With gives a context that carries the span; [From] reads it.
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

// create is the parameters of a new span.
type create struct {
	name    string
	kind    otel.SpanKind
	parent  events.Trace // empty for a root
	further bool         // one write separates it from its parent
	ids     ids          // of a root
	cause   Cause        // of a root
	at      time.Time    // zero means now
	links   []otel.Link
	attrs   []attribute.KeyValue
}

// goOn begins a span that continues its parent's trace, if that is sampled. If the trace has
// reached a limit, the span is the root of a new trace.
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

// limit is the limit that the trace would exceed; "" for none.
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

// cut begins a new trace with a span that would have continued another one.
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

// aside moves a span into the trace of the replay.
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

// link is a link to a span, with its meaning.
func link(to events.Trace, what string) otel.Link {
	return otel.Link{SpanContext: Context(to), Attributes: []attribute.KeyValue{LinkTo.String(what)}}
}
