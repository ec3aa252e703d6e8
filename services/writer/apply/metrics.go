package apply

import (
	"context"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"

	"github.com/millrace/millrace/services/writer/plan"
)

// Metrics counts what goes through a door.
type Metrics struct {
	requests *prometheus.HistogramVec
	retries  *prometheus.CounterVec
	told     *prometheus.CounterVec
}

// NewMetrics are metrics that count from zero.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "millrace_writer_request_duration_seconds",
			Help:    "Time until the API server answered, by verb and status code (0: no answer).",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15},
		}, []string{"verb", "code"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_writer_retries_total",
			Help: "Requests made again after an answer that asked for it or got lost.",
		}, []string{"controller", "verb"}),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_writer_events_total",
			Help: "Kubernetes Events, by what became of them: told, filtered, refused, or dropped.",
		}, []string{"controller", "result"}),
	}
}

// Collectors are the metrics, with those of the client library.
func (m *Metrics) Collectors() []prometheus.Collector {
	return append([]prometheus.Collector{m.requests, m.retries, m.told}, clientMetrics()...)
}

func (m *Metrics) requested(verb plan.Verb, response plan.Response, took time.Duration) {
	m.requests.WithLabelValues(string(verb), strconv.Itoa(response.Code)).Observe(took.Seconds())
}

// clientMetrics are the rest_client_* metrics under the names and buckets that
// Kubernetes' own components have. The client library knows one set of metrics
// for the process, so there is one here.
var clientMetrics = sync.OnceValue(func() []prometheus.Collector {
	seconds := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	sizes := []float64{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"verb", "host"})
	}
	var (
		latency  = histogram("rest_client_request_duration_seconds", "Request latency in seconds. Broken down by verb, and host.", seconds)
		limited  = histogram("rest_client_rate_limiter_duration_seconds", "Client side rate limiter latency in seconds. Broken down by verb, and host.", seconds)
		sent     = histogram("rest_client_request_size_bytes", "Request size in bytes. Broken down by verb and host.", sizes)
		received = histogram("rest_client_response_size_bytes", "Response size in bytes. Broken down by verb and host.", sizes)
		results  = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total",
			Help: "Number of HTTP requests, partitioned by status code, method, and host.",
		}, []string{"code", "method", "host"})
		retries = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_request_retries_total",
			Help: "Number of request retries, partitioned by status code, verb, and host.",
		}, []string{"code", "verb", "host"})
	)
	metrics.Register(metrics.RegisterOpts{
		RequestLatency: latencies{latency}, RateLimiterLatency: latencies{limited},
		RequestSize: amounts{sent}, ResponseSize: amounts{received},
		RequestResult: counts{results}, RequestRetry: counts{retries},
	})
	return []prometheus.Collector{latency, limited, sent, received, results, retries}
})

type latencies struct{ *prometheus.HistogramVec }

func (l latencies) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	l.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

type amounts struct{ *prometheus.HistogramVec }

func (a amounts) Observe(_ context.Context, verb, host string, size float64) {
	a.WithLabelValues(verb, host).Observe(size)
}

type counts struct{ *prometheus.CounterVec }

func (c counts) Increment(_ context.Context, code, method, host string) {
	c.WithLabelValues(code, method, host).Inc()
}

func (c counts) IncrementRetry(_ context.Context, code, verb, host string) {
	c.WithLabelValues(code, verb, host).Inc()
}
