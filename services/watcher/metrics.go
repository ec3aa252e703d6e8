package watcher

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/services/watcher/reflector"
)

// metrics are what the watcher measures.
type metrics struct {
	// kinds is what the watch of each kind measures.
	kinds *reflector.Metrics
	// undiscovered counts failed discoveries.
	undiscovered prometheus.Counter
	// claims counts other processes' claims about the storage's epoch, by verdict.
	claims *prometheus.CounterVec
	// taken counts the kinds that this watcher watches although they fall to another one; see
	// guard.go.
	taken prometheus.Gauge
	// active is 1 for each kind that this watcher watches.
	active *prometheus.GaugeVec
}

func newMetrics() *metrics {
	return &metrics{
		kinds: reflector.NewMetrics(),
		// Upstream: pkg/controller/garbagecollector/metrics. There it is the garbage
		// collector that finds out which kinds there are.
		undiscovered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "garbagecollector_controller_resources_sync_error_total", Help: "Discoveries of the API server's resources that failed.",
		}),
		claims: newClaims(),
		taken: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_watcher_taken_kinds", Help: "Kinds that are assigned to another watcher and that this one watches, because the other does not.",
		}),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_watcher_active", Help: "1 while this watcher watches the kind.",
		}, []string{"kind"}),
	}
}

// newClaims starts all verdicts at zero, so that the first refuted claim shows as an increase.
func newClaims() *prometheus.CounterVec {
	claims := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_watcher_epoch_claims_total",
		Help: "Claims of other processes that the API server's storage was restored, by the result of this watcher's check.",
	}, []string{"verdict"})
	for _, v := range storageepoch.Verdicts {
		claims.WithLabelValues(string(v))
	}
	return claims
}

// begin starts a kind's counters at zero, so that the first event shows as an increase.
func (m *metrics) begin(kind kinds.Name) {
	m.kinds.Begin(kind)
	m.active.WithLabelValues(string(kind)).Set(1)
}

func (m *metrics) collectors() []prometheus.Collector {
	return append(m.kinds.Collectors(), m.undiscovered, m.active, m.claims, m.taken)
}
