package trace

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Request is a request to the API server.
type Request struct {
	Method string
	// Template is the path with {namespace} and {name} in place of their values.
	Template  string
	Kind      kinds.Name
	Namespace string
	// Command is the command's position in the turn, from 0, and Try counts the requests of that
	// command, from 1.
	Command, Try int
	AuditID      string
}

// Request begins the span of a request as a child of the context's span. A command beyond the
// fan-out limit has its own trace.
func (t *Tracer) Request(ctx context.Context, r Request) *Span {
	turn := From(ctx)
	if t == nil || turn == nil {
		return nil
	}
	b := create{
		name: r.Method + " " + r.Template, kind: otel.SpanKindClient, parent: turn.trace,
		attrs: []attribute.KeyValue{
			semconv.HTTPRequestMethodKey.String(r.Method), semconv.URLTemplate(r.Template),
			Kind.String(string(r.Kind)), Command.Int(r.Command),
		},
	}
	if r.Namespace != "" {
		b.attrs = append(b.attrs, semconv.K8SNamespaceName(r.Namespace))
	}
	if r.Try > 1 {
		b.attrs = append(b.attrs, semconv.HTTPRequestResendCount(r.Try-1))
	}
	if r.AuditID != "" {
		b.attrs = append(b.attrs, AuditID.String(r.AuditID))
	}
	if r.Command < t.options.Limits.Fanout || t.replay != nil {
		return t.goOn(b)
	}
	b.ids = derived(turn.trace.Parent, strconv.Itoa(r.Command), r.Method, strconv.Itoa(r.Try))
	return t.cut(b, "fan-out")
}

// Answered records the API server's response: its status, 0 for none, and the reason of a
// refusal.
func (s *Span) Answered(code int, reason string) {
	if s == nil {
		return
	}
	if code != 0 {
		s.Set(semconv.HTTPResponseStatusCode(code))
	}
	if code == 0 || code >= http.StatusBadRequest {
		if reason == "" {
			reason = strconv.Itoa(code)
		}
		s.Set(semconv.ErrorTypeKey.String(reason))
		s.Fail(reason)
	}
}

// Headers are the headers that carry the span to the API server, by key.
func (s *Span) Headers() map[string]string {
	if s == nil {
		return nil
	}
	h := map[string]string{parentKey: s.trace.Parent}
	if s.trace.State != "" {
		h[stateKey] = s.trace.State
	}
	return h
}
