package eventrecorder

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts Events by what became of them.
type Metrics struct {
	told *prometheus.CounterVec
}

// NewMetrics returns metrics that count from zero.
func NewMetrics() *Metrics {
	return &Metrics{told: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_writer_events_total",
		Help: "Kubernetes Events, by result: told, filtered, refused, or dropped.",
	}, []string{"controller", "result"})}
}

// Collectors returns the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.told}
}
