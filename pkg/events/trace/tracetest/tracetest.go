// Package tracetest records spans for tests, in memory, and shows them as trees.
package tracetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/pkg/events/trace"
)

// Recorder keeps every span that ends. It is safe for concurrent use.
type Recorder struct {
	exporter *tracetest.InMemoryExporter
	// Sample decides on new traces; nil samples all.
	Sample func(trace.Cause) bool

	mu    sync.Mutex
	begun int
}

// New makes a recorder.
func New() *Recorder { return &Recorder{exporter: tracetest.NewInMemoryExporter()} }

// Tracer is the tracer of a service whose spans are recorded.
func (r *Recorder) Tracer(service string, o trace.Options) *trace.Tracer {
	return trace.New(sdk.NewTracerProvider(
		sdk.WithSyncer(r.exporter), sdk.WithIDGenerator(trace.IDs{}), sdk.WithSampler(sdk.ParentBased(sampler{r})),
		sdk.WithResource(resource.NewSchemaless(semconv.ServiceName(service))),
	), o)
}

type sampler struct{ recorder *Recorder }

func (s sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	s.recorder.begun++
	decision := sdk.RecordAndSample
	if cause, ok := trace.CauseOf(p.ParentContext); ok && !cause.Cut && s.recorder.Sample != nil && !s.recorder.Sample(cause) {
		decision = sdk.Drop
	}
	return sdk.SamplingResult{Decision: decision, Tracestate: otel.SpanContextFromContext(p.ParentContext).TraceState()}
}

func (sampler) Description() string { return "test" }

// Roots counts the traces that began, sampled or not.
func (r *Recorder) Roots() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun
}

// Span is a span that has ended.
type Span struct {
	Service, Name string
	Context       otel.SpanContext
	Parent        otel.SpanContext
	Links         []sdk.Link
	Attributes    map[attribute.Key]string
	// Failure is the reason of a span that failed.
	Failure string
	// Start and End are the times of the span.
	Start, End time.Time
}

// Spans are all ended spans, in the order of their end.
func (r *Recorder) Spans() []Span {
	var all []Span
	for _, s := range r.exporter.GetSpans().Snapshots() {
		span := Span{
			Name: s.Name(), Context: s.SpanContext(), Parent: s.Parent(), Links: s.Links(),
			Attributes: map[attribute.Key]string{}, Failure: s.Status().Description,
			Start: s.StartTime(), End: s.EndTime(),
		}
		for _, a := range s.Resource().Attributes() {
			if a.Key == semconv.ServiceNameKey {
				span.Service = a.Value.AsString()
			}
		}
		for _, a := range s.Attributes() {
			span.Attributes[a.Key] = a.Value.Emit()
		}
		all = append(all, span)
	}
	return all
}

// Reset forgets every span.
func (r *Recorder) Reset() { r.exporter.Reset() }

// Named are the spans of a name.
func (r *Recorder) Named(name string) []Span {
	return slices.DeleteFunc(r.Spans(), func(s Span) bool { return s.Name != name })
}

// Tree shows the traces as text: one line for each span, "service: name", indented below its
// parent. Children are sorted, and equal subtrees are shown once, with their number. A span
// whose parent has not ended is marked as an orphan.
func (r *Recorder) Tree() string {
	spans := r.Spans()
	known := map[otel.SpanID]bool{}
	for _, s := range spans {
		known[s.Context.SpanID()] = true
	}
	children := map[otel.SpanID][]Span{}
	var roots []string
	for _, s := range spans {
		if s.Parent.IsValid() && known[s.Parent.SpanID()] {
			children[s.Parent.SpanID()] = append(children[s.Parent.SpanID()], s)
		}
	}
	for _, s := range spans {
		switch {
		case !s.Parent.IsValid():
			roots = append(roots, draw(s, children, ""))
		case !known[s.Parent.SpanID()]:
			roots = append(roots, "(orphan) "+draw(s, children, ""))
		}
	}
	return strings.Join(counted(roots), "")
}

func draw(s Span, children map[otel.SpanID][]Span, indent string) string {
	var below []string
	for _, c := range children[s.Context.SpanID()] {
		below = append(below, draw(c, children, indent+"  "))
	}
	line := indent + s.Service + ": " + s.Name
	if len(s.Links) > 0 {
		line += fmt.Sprintf(" [%d links]", len(s.Links))
	}
	if s.Failure != "" {
		line += " (" + s.Failure + ")"
	}
	return line + "\n" + strings.Join(counted(below), "")
}

// counted sorts the texts and shows equal ones once.
func counted(texts []string) []string {
	slices.Sort(texts)
	var out []string
	for i := 0; i < len(texts); {
		n := i + 1
		for n < len(texts) && texts[n] == texts[i] {
			n++
		}
		text := texts[i]
		if n-i > 1 {
			first, rest, _ := strings.Cut(text, "\n")
			text = fmt.Sprintf("%s ×%d\n%s", first, n-i, rest)
		}
		out, i = append(out, text), n
	}
	return out
}

var _ sdk.IDGenerator = trace.IDs{}

// Background makes a provider that exports to nowhere, for benchmarks.
func Background(sample sdk.Sampler) otel.TracerProvider {
	return sdk.NewTracerProvider(
		sdk.WithIDGenerator(trace.IDs{}), sdk.WithSampler(sdk.ParentBased(sample)),
		sdk.WithSpanProcessor(sdk.NewBatchSpanProcessor(nowhere{})),
	)
}

// Ratio samples that fraction of all traces.
func Ratio(fraction float64) sdk.Sampler { return sdk.TraceIDRatioBased(fraction) }

// nowhere is an exporter that discards spans.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                        { return nil }
