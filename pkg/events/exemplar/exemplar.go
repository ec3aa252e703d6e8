// Package exemplar links measurements to the traces in which they were made, so that a slow
// measurement in a dashboard leads to its trace.
package exemplar

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/trace"
)

// Observe records a value, and makes it the exemplar of its bucket if the trace is sampled, so
// that it can be viewed. Exemplars are served only in the OpenMetrics format.
func Observe(to prometheus.Observer, value float64, t events.Trace) {
	labels := Of(t)
	if exemplary, ok := to.(prometheus.ExemplarObserver); ok && labels != nil {
		exemplary.ObserveWithExemplar(value, labels)
		return
	}
	to.Observe(value)
}

// Of is the exemplar of a trace: trace_id and span_id; nil for a trace that is not sampled, or
// no trace.
func Of(t events.Trace) prometheus.Labels {
	if !trace.Sampled(t) {
		return nil
	}
	at := trace.Context(t)
	if !at.IsValid() {
		return nil
	}
	return prometheus.Labels{"trace_id": at.TraceID().String(), "span_id": at.SpanID().String()}
}
