package apiclient

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/exemplar"
	"github.com/millrace/millrace/services/writer/plan"
)

// Metrics counts the requests of clients.
type Metrics struct {
	requests *prometheus.HistogramVec
}

// NewMetrics returns metrics that count from zero.
func NewMetrics() *Metrics {
	return &Metrics{requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "millrace_writer_request_duration_seconds",
		Help:    "Duration of requests to the API server, by verb and status code (0: no answer).",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15},
	}, []string{"verb", "code"})}
}

// Collectors returns the metrics. The client library's own, rest_client_*, belong to the process.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests}
}

func (m *Metrics) requested(verb plan.Verb, response plan.Response, took time.Duration) {
	m.requestedIn(events.Trace{}, verb, response, took)
}

// requestedIn counts a request that is part of a trace.
func (m *Metrics) requestedIn(t events.Trace, verb plan.Verb, response plan.Response, took time.Duration) {
	exemplar.Observe(m.requests.WithLabelValues(string(verb), strconv.Itoa(response.Code)), took.Seconds(), t)
}
