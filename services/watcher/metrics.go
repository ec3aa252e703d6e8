package watcher

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	deltas  *prometheus.CounterVec
	lag     *prometheus.GaugeVec
	relists *prometheus.CounterVec
	gaps    *prometheus.CounterVec
	damage  *prometheus.CounterVec
	// degraded tells each kind that cannot be watched at the moment.
	degraded *prometheus.GaugeVec
	// active tells which kinds are this watcher's.
	active *prometheus.GaugeVec
}

func newMetrics() *metrics {
	return &metrics{
		deltas: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_deltas_total", Help: "Deltas appended to the logs.",
		}, []string{"kind", "op"}),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_watcher_lag_seconds", Help: "Time from receiving the last change of a kind until it was stored.",
		}, []string{"kind"}),
		relists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_relists_total", Help: "Lists that were compared with the state.",
		}, []string{"kind"}),
		gaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_gaps_total", Help: "Gaps recorded, before which changes may be missing.",
		}, []string{"kind"}),
		damage: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_damage_total", Help: "Times that messages of a kind's log or state were found lost or damaged.",
		}, []string{"kind"}),
		degraded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_watcher_degraded", Help: "1 while a kind cannot be watched.",
		}, []string{"kind"}),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_watcher_active", Help: "1 while this watcher watches the kind.",
		}, []string{"kind"}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.deltas, m.lag, m.relists, m.gaps, m.damage, m.degraded, m.active}
}
