package beside

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

type metrics struct {
	findings, turns, broken *prometheus.CounterVec
	open                    *prometheus.GaugeVec
	lag                     prometheus.Gauge
	late, restarts          prometheus.Counter
}

func newMetrics(controllers []reconcile.Any) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "millrace_shadow_" + name, Help: help}, labels)
	}
	m := &metrics{
		findings: counter("findings_total", "Writes of kube-controller-manager and of a shadow, by the result of their comparison; we-only, kcm-only and differs are unexplained.", "controller", "result"),
		turns:    counter("turns_total", "Recorded turns of shadows. No writer carries them out.", "controller"),
		broken:   counter("broken_total", "Turns of shadows that panicked.", "controller"),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_shadow_open", Help: "Writes of a shadow that kube-controller-manager has not made yet.",
		}, []string{"controller"}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_shadow_lag_seconds", Help: "Lag of the comparison behind the logs; one second is intended.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_shadow_late_total", Help: "Changes that arrived too late to be compared in the order of all kinds.",
		}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_shadow_restarts_total", Help: "Restarts of the comparison.",
		}),
	}
	for _, c := range controllers {
		name := c.Describe().Name
		m.turns.WithLabelValues(name)
		m.broken.WithLabelValues(name)
		m.open.WithLabelValues(name)
		for _, a := range report.Agreements { // so that the first difference is an increase
			m.findings.WithLabelValues(name, string(a))
		}
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.findings, m.turns, m.broken, m.open, m.lag, m.late, m.restarts}
}
