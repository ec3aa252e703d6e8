package apply

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/services/writer/apply/apiclient"
)

// Metrics counts the requests of a door, and the retries.
type Metrics struct {
	requests *apiclient.Metrics
	retries  *prometheus.CounterVec
}

// NewMetrics returns metrics that count from zero.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: apiclient.NewMetrics(),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_writer_retries_total",
			Help: "Retries of requests after a retriable or a lost answer.",
		}, []string{"controller", "verb"}),
	}
}

// Collectors returns the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return append(m.requests.Collectors(), m.retries)
}
