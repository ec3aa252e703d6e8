// Package exemplar ties measurements to the traces in which they were made, so
// that a slow one in a dashboard leads to its trace.
package exemplar

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
)

// Observe measures a value, and makes it the example of its bucket if the trace is
// there to be looked at, that is, sampled. Exemplars are served in the OpenMetrics
// format only.
func Observe(to prometheus.Observer, value float64, trace events.Trace) {
	labels := Of(trace)
	if exemplary, ok := to.(prometheus.ExemplarObserver); ok && labels != nil {
		exemplary.ObserveWithExemplar(value, labels)
		return
	}
	to.Observe(value)
}

// The lengths of the parts of a traceparent, and how many there are.
const (
	parts       = 4
	traceLength = 32
	spanLength  = 16
	flagsLength = 2
)

// Of is the exemplar of a trace: trace_id and span_id; nil of a trace that is not
// sampled, or none.
func Of(trace events.Trace) prometheus.Labels {
	field := strings.Split(trace.Parent, "-")
	if len(field) < parts || len(field[1]) != traceLength || len(field[2]) != spanLength || len(field[3]) != flagsLength {
		return nil
	}
	if sampled := strings.IndexByte("13579bdf", field[3][1]) >= 0; !sampled {
		return nil
	}
	return prometheus.Labels{"trace_id": field[1], "span_id": field[2]}
}
