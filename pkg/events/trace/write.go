package trace

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	otel "go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
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
	b := birth{
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

// Writes is the topic on which writers tell of their writes.
const Writes = "writes"

// Write is what a writer tells the watchers of a request that writes, without its
// being stored: before it sends it, that it will, and as soon as it has the answer, or
// will have none, which version came of it. A watcher that misses it takes the version
// for somebody else's and begins a new trace.
type Write struct {
	// ID tells the request apart from all others, and About is the object that it
	// names. Begins is true before it is sent; then nothing below is known.
	ID     string     `json:"id,omitempty"`
	About  events.Ref `json:"about,omitzero"`
	Begins bool       `json:"begins,omitempty"`
	// UID and Version are what came of it; empty where nothing did, or nobody knows.
	UID     types.UID `json:"uid,omitempty"`
	Version string    `json:"rv,omitempty"`
	// Ends is true for what brings an object to its end, whenever that is.
	Ends bool `json:"ends,omitempty"`
	// Trace is the request's; empty when that is not sampled.
	Trace events.Trace `json:"trace,omitzero"`
}

// Encode gives the write as it goes on its topic.
func (w Write) Encode() []byte {
	text, _ := json.Marshal(w) // numbers and strings: cannot fail
	return text
}

// DecodeWrite reads a write; ok is false for anything else. A writer of an earlier
// version gives no ID, and tells only of answers.
func DecodeWrite(text []byte) (w Write, ok bool) {
	return w, json.Unmarshal(text, &w) == nil && (w.UID != "" || w.ID != "")
}
