package exemplar_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/exemplar"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

func TestOnlySampledTracesAreExamples(t *testing.T) {
	for parent, want := range map[string]bool{
		"00-" + traceID + "-" + spanID + "-01":     true,
		"00-" + traceID + "-" + spanID + "-03":     true,
		"01-" + traceID + "-" + spanID + "-01-new": true, // of a later version of the header
		"00-" + traceID + "-" + spanID + "-00":     false,
		"00-" + traceID + "-" + spanID + "-02":     false,
		"00-" + traceID + "-" + spanID:             false,
		"00-short-" + spanID + "-01":               false,
		"":                                         false,
	} {
		h, registry := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: []float64{1}}), prometheus.NewRegistry()
		registry.MustRegister(h)
		exemplar.Observe(h, 0.5, events.Trace{Parent: parent})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		m := families[0].GetMetric()[0]
		if m.GetHistogram().GetSampleCount() != 1 {
			t.Errorf("%q: not measured", parent)
		}
		labels := map[string]string{}
		for _, l := range m.GetHistogram().GetBucket()[0].GetExemplar().GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if got := labels["trace_id"] == traceID && labels["span_id"] == spanID; got != want || len(labels) > 0 != want {
			t.Errorf("%q: the exemplar is %v", parent, labels)
		}
	}
}

// An observer without exemplars still records the value.
func TestAnObserverWithoutExamples(t *testing.T) {
	var got []float64
	to := prometheus.ObserverFunc(func(v float64) { got = append(got, v) })
	exemplar.Observe(to, 0.5, events.Trace{Parent: "00-" + traceID + "-" + spanID + "-01"})
	if len(got) != 1 || got[0] != 0.5 {
		t.Errorf("observed is %v", got)
	}
}
