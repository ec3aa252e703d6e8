package reflector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Metrics are what Reflectors measure, by kind. All Reflectors of a process share one.
type Metrics struct {
	deltas  *prometheus.CounterVec
	lag     *prometheus.GaugeVec
	stored  *prometheus.HistogramVec
	relists *prometheus.CounterVec
	gaps    *prometheus.CounterVec
	damage  *prometheus.CounterVec
	// fights counts the fights that were found; see versions.Fights.
	fights *prometheus.CounterVec
	// leftOut counts the versions that were left out, and leftOutBytes their bytes; see versions.Bounds.
	leftOut, leftOutBytes *prometheus.CounterVec
	// degraded is 1 for each kind that cannot be watched at the moment.
	degraded *prometheus.GaugeVec
}

// NewMetrics returns metrics without any kind.
func NewMetrics() *Metrics {
	return &Metrics{
		deltas: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_deltas_total", Help: "Deltas appended to the logs.",
		}, []string{"kind", "op"}),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_watcher_lag_seconds", Help: "Time between the receipt of the last change of a kind and its storing.",
		}, []string{"kind"}),
		stored: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millrace_watcher_store_duration_seconds", Help: "Time between the receipt of changes of a kind and their storing, of the oldest in each batch.",
			Buckets: prometheus.ExponentialBuckets(0.5e-3, 2, 15),
		}, []string{"kind"}),
		relists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_relists_total", Help: "Relists: lists of the API server that were compared with the log.",
		}, []string{"kind"}),
		gaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_gaps_total", Help: "Gaps recorded, before which changes may be missing.",
		}, []string{"kind"}),
		damage: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_damage_total", Help: "Times that messages of a kind's log were lost or damaged.",
		}, []string{"kind"}),
		fights: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_fights_total", Help: "Times that two field managers overwrote each other's changes of an object of a kind; the watcher's log names them.",
		}, []string{"kind"}),
		leftOut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_left_out_versions_total", Help: "Versions that were left out of the record because their object changes faster than --object-bound allows.",
		}, []string{"kind"}),
		leftOutBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_left_out_bytes_total", Help: "Bytes of the versions that were left out of the record.",
		}, []string{"kind"}),
		degraded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_watcher_degraded", Help: "1 while the watcher cannot watch a kind.",
		}, []string{"kind"}),
	}
}

// leaves returns a function that counts a left-out version of a kind.
func (m *Metrics) leaves(kind kinds.Name) func(bytes int) {
	versions, bytes := m.leftOut.WithLabelValues(string(kind)), m.leftOutBytes.WithLabelValues(string(kind))
	return func(size int) {
		versions.Inc()
		bytes.Add(float64(size))
	}
}

// Begin starts a kind's counters at zero, so that the first event shows as an increase.
func (m *Metrics) Begin(kind kinds.Name) {
	for _, c := range []*prometheus.CounterVec{m.relists, m.gaps, m.damage, m.fights, m.leftOut, m.leftOutBytes} {
		c.WithLabelValues(string(kind))
	}
}

// Collectors returns the metrics, to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.deltas, m.lag, m.stored, m.relists, m.gaps, m.damage, m.fights, m.leftOut, m.leftOutBytes, m.degraded}
}
