// Package exemplar ties measurements to the traces in which they were made, so
// that a slow one in a dashboard leads to its trace.
package exemplar

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/trace"
)

// Observe measures a value, and makes it the example of its bucket if the trace is
// there to be looked at, that is, sampled. Exemplars are served in the OpenMetrics
// format only.
func Observe(to prometheus.Observer, value float64, t events.Trace) {
	labels := Of(t)
	if exemplary, ok := to.(prometheus.ExemplarObserver); ok && labels != nil {
		exemplary.ObserveWithExemplar(value, labels)
		return
	}
	to.Observe(value)
}

// Of is the exemplar of a trace: trace_id and span_id; nil of a trace that is not
// sampled, or none.
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
