package metrictest_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/metrictest"
)

// TestWhatIsRead: the value of a counter and of a gauge, how often a histogram observed, and the labels;
// a name or a label that is not there adds nothing.
func TestWhatIsRead(t *testing.T) {
	lag := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lag"}, []string{"kind", "by"})
	lag.WithLabelValues("pods", "a").Set(3)
	lag.WithLabelValues("nodes", "a").Set(4)
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took"})
	took.Observe(7)
	took.Observe(9)
	done := prometheus.NewCounter(prometheus.CounterOpts{Name: "done"})
	done.Inc()
	scrape := metrictest.Collect(t, lag, took, done)
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"lag", nil, 7},
		{"lag", []string{"pods"}, 3},
		{"lag", []string{"kind=pods", "by=a"}, 3},
		{"lag", []string{"by=pods"}, 0},
		{"lag", []string{"pods", "nodes"}, 0},
		{"", []string{"a"}, 7},
		{"took", nil, 2},
		{"done", nil, 1},
		{"other", nil, 0},
	} {
		if got := scrape.Sum(c.name, c.labels...); got != c.want {
			t.Errorf("%s of %q is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	if got := scrape.Value(t, "done"); got != 1 {
		t.Errorf("done is %v", got)
	}
	if s := scrape.Of("lag", "nodes")[0]; s.Label("by") != "a" || s.Label("kind") != "nodes" || s.Label("other") != "" {
		t.Errorf("the labels are %v", s.Labels)
	}
}
