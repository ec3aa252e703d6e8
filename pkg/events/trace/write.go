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

// Request is a request of the API server.
type Request struct {
	Method string
	// Template is the path with {namespace} and {name} in place of what they are.
	Template  string
	Kind      kinds.Name
	Namespace string
	// Command is its command's position in the turn, from 0, and Try counts the
	// requests of that command, from 1.
	Command, Try int
	AuditID      string
}

// Request begins the span of a request within the one that the context carries. A
// command beyond the limit has a trace of its own.
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

// Answered says how the API server answered: its status, 0 for no answer, and the
// reason of a refusal.
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

// Headers are those that take the span to the API server, by key.
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
