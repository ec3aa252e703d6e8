package trace

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"

	"go.opentelemetry.io/otel/propagation"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/pkg/events"
)

// carrier carries a context in a Trace. OpenTelemetry's own carrier for headers writes
// "Traceparent", but header keys of the bus are case-sensitive.
type carrier struct{ *events.Trace }

const (
	parentKey = "traceparent"
	stateKey  = "tracestate"
)

func (c carrier) Get(key string) string {
	switch key {
	case parentKey:
		return c.Parent
	case stateKey:
		return c.State
	default:
		return ""
	}
}

func (c carrier) Set(key, value string) {
	switch key {
	case parentKey:
		c.Parent = value
	case stateKey:
		c.State = value
	}
}

func (c carrier) Keys() []string { return []string{parentKey, stateKey} }

// w3c is the only propagator: baggage would reach the API server's webhooks.
var w3c propagation.TraceContext

// Context is the span context that a trace carries; it is not valid if there is none, or it
// cannot be parsed.
func Context(t events.Trace) otel.SpanContext {
	if t.Parent == "" {
		return otel.SpanContext{}
	}
	return otel.SpanContextFromContext(w3c.Extract(context.Background(), carrier{&t}))
}

// of is the trace that continues a span context.
func of(c otel.SpanContext, writes int, began int64) events.Trace {
	t := events.Trace{Writes: writes, Began: began}
	w3c.Inject(otel.ContextWithSpanContext(context.Background(), c), carrier{&t})
	return t
}

// Sampled reports whether spans with this context are recorded.
func Sampled(t events.Trace) bool {
	const length, flags = 55, 54 // 00-<32>-<16>-<2>; the lowest bit of the last digit
	if len(t.Parent) < length {
		return false
	}
	switch t.Parent[flags] {
	case '1', '3', '5', '7', '9', 'b', 'd', 'f':
		return true
	default:
		return false
	}
}

// ids are the ids of a root, passed to the generator through the context.
type ids struct {
	trace otel.TraceID
	span  otel.SpanID
}

type wanted struct{}

// derived are ids that every process derives from the same parts. A ratio sampler decides by the
// last part of a trace id, which is as good as random.
func derived(parts ...string) ids {
	h := sha256.New()
	h.Write([]byte("millrace-trace-v1"))
	for _, p := range parts {
		h.Write([]byte{'|'})
		h.Write([]byte(p))
	}
	var i ids
	sum := h.Sum(nil)
	copy(i.trace[:], sum)
	copy(i.span[:], sum[len(i.trace):])
	return i
}

// TraceID is the id of the trace that begins with a version of an object.
func TraceID(cluster string, d events.Delta) otel.TraceID { return ofDelta(cluster, d).trace }

func ofDelta(cluster string, d events.Delta) ids {
	return derived(cluster, string(d.UID), d.ResourceVersion)
}

// IDs generates span ids. The SDK's tracer provider must use it, so that roots have their
// derived ids. All others are random.
type IDs struct{}

// NewIDs gives the ids of a root.
func (g IDs) NewIDs(ctx context.Context) (otel.TraceID, otel.SpanID) {
	if i, ok := ctx.Value(wanted{}).(ids); ok && i.trace.IsValid() && i.span.IsValid() {
		return i.trace, i.span
	}
	var t otel.TraceID
	for !t.IsValid() {
		put(t[:8], rand.Uint64())
		put(t[8:], rand.Uint64())
	}
	return t, g.NewSpanID(ctx, t)
}

// NewSpanID gives the id of a span with a parent.
func (IDs) NewSpanID(context.Context, otel.TraceID) otel.SpanID {
	var s otel.SpanID
	for !s.IsValid() {
		put(s[:], rand.Uint64())
	}
	return s
}

func put(to []byte, n uint64) {
	for i := range 8 {
		to[i] = byte(n >> (8 * i))
	}
}

// Cause describes the beginning of a trace, for the sampler.
type Cause struct {
	// Kind, Namespace and Labels are the object's; empty if there is no object.
	Kind, Namespace string
	Labels          map[string]string
	// Cut is true for a new trace that continues a sampled one.
	Cut bool
}

type causing struct{}

// CauseOf gives a sampler the beginning of the trace. A nil Cause.Labels means that there are
// none.
func CauseOf(ctx context.Context) (c Cause, ok bool) {
	c, ok = ctx.Value(causing{}).(Cause)
	return c, ok
}
