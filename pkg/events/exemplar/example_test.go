package exemplar_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/exemplar"
)

// A measurement of a sampled trace keeps the trace's id, so that a slow bucket leads to a trace.
func ExampleObserve() {
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took_seconds", Help: "How long it took."})
	sampled := events.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	exemplar.Observe(took, 0.2, sampled)
	fmt.Println(exemplar.Of(sampled))
	// Output: map[span_id:00f067aa0ba902b7 trace_id:4bf92f3577b34da6a3ce929d0e0e4736]
}
