package trace

import (
	"strconv"

	otel "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The annotations in which an object may name the trace that it is part of (KEP-5915). They are
// read, and never written.
const (
	NoteParent = "tracing.k8s.io/traceparent"
	NoteState  = "tracing.k8s.io/tracestate"
)

// Origin is where a version of an object comes from.
type Origin struct {
	// Ours is true for a version that a writer of ours made, and Cause is the context of its
	// request, which is empty if the request is not sampled.
	Ours  bool
	Cause events.Trace
	// Missed is true for a version that seems to be ours, although no writer announced it in
	// time.
	Missed bool
	// Before is the context of the delta of the object's previous version.
	Before events.Trace
	// Reports is true for a version by another client that changes only the observed state, such
	// as a status: it continues the trace of Before, within the limits.
	Reports bool
	// Labels and Notes are the object's labels and annotations.
	Labels, Notes map[string]string
}

// Delta begins the span of a delta that is about to be stored; the caller ends it only if the
// delta is stored. nil if it is not sampled.
func (t *Tracer) Delta(d events.Delta, o Origin) *Span {
	if t == nil {
		return nil
	}
	b := create{
		name: "send " + subject.LogStream(d.Kind), kind: otel.SpanKindProducer, at: d.At,
		ids: ofDelta(t.options.Cluster, d),
	}
	if o.Ours {
		b.parent, b.further = o.Cause, true
		b.cause = Cause{Kind: string(d.Kind), Namespace: d.Ref.Namespace, Labels: o.Labels}
		return t.goOn(b).describe(d, o)
	}
	b.cause = Cause{Kind: string(d.Kind), Namespace: d.Ref.Namespace, Labels: o.Labels}
	if on := b; o.Reports && Sampled(o.Before) {
		on.parent, on.further = o.Before, true
		limit := t.limit(on)
		if limit == "" {
			return t.goOn(on).describe(d, o)
		}
		b.attrs = append(b.attrs, Cut.String(limit)) // sampled like any root: else, in time, all objects would be
	}
	if Sampled(o.Before) {
		b.links = append(b.links, link(o.Before, "previous version"))
	}
	if noted := (events.Trace{Parent: o.Notes[NoteParent], State: o.Notes[NoteState]}); noted.Parent != "" {
		if l := link(noted, "noted on the object"); l.SpanContext.IsValid() {
			b.links = append(b.links, l)
		}
	}
	return t.begin(b).describe(d, o)
}

// describe adds the attributes, if the span is recorded.
func (s *Span) describe(d events.Delta, o Origin) *Span {
	if s == nil {
		return nil
	}
	s.Set(sends(subject.LogStream(d.Kind))...)
	s.Set(object(d.Ref)...)
	s.Set(Op.String(string(d.Op)), UID.String(string(d.UID)), ResourceVersion.String(d.ResourceVersion))
	if d.By.Name != "" {
		s.Set(Manager.String(d.By.Name))
	}
	if o.Missed {
		s.Set(Outcome.String("missed its cause"))
	}
	return s
}

// Relist begins the span of a comparison of a kind with the API server. Versions that a relist
// finds have no known cause, and no spans.
func (t *Tracer) Relist(kind kinds.Name) *Span {
	if t == nil {
		return nil
	}
	s := t.begin(create{name: "relist " + string(kind), kind: otel.SpanKindInternal, cause: Cause{Kind: string(kind)}})
	s.Set(Kind.String(string(kind)))
	return s
}

// Stored sets the sequence of the message of a send span.
func (s *Span) Stored(sequence uint64) { s.Set(at(sequence)...) }

func number(n uint64) string { return strconv.FormatUint(n, 10) }
