package writer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/eventrecorder"
	"github.com/millrace/millrace/services/writer/plan"
)

type metrics struct {
	api        *apply.Metrics
	kubeEvents *eventrecorder.Metrics
	results    *prometheus.CounterVec
	alarms     *prometheus.CounterVec
	inFlight   *prometheus.GaugeVec
	expiries   prometheus.Counter
	turns      *prometheus.HistogramVec
	claims     *prometheus.CounterVec
	strange    prometheus.Counter
	held       *prometheus.CounterVec
}

// reasons are the reasons of alarms. Their series exist from the start, so that the first alarm is
// an increase.
var reasons = []string{"Malformed", "Damaged", events.BadSignature, "BadOutcome", plan.NotPromised, plan.ReasonPanicked}

func newMetrics(controllers ...Profile) *metrics {
	m := &metrics{
		api: apply.NewMetrics(), kubeEvents: eventrecorder.NewMetrics(),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_writer_results_total",
			Help: "Commands, by result.",
		}, []string{"controller", "verb", "status"}),
		alarms: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_writer_alarms_total",
			Help: "Turns and outcomes that are malformed, damaged or without a trusted signature, broken promises, and panics of this writer, by reason.",
		}, []string{"controller", "reason"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_writer_turns_in_flight",
			Help: "Turns that were delivered and are not acknowledged yet.",
		}, []string{"controller"}),
		expiries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_writer_claim_expiries_total",
			Help: "Times that this writer lost its claims on turns because it was stopped, starved or partitioned.",
		}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_writer_epoch_claims_total",
			Help: "Claims of other processes that the API server's storage was restored, by the result of this writer's check.",
		}, []string{"verdict"}),
		strange: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_writer_unproven_heartbeats_total",
			Help: "Heartbeats of writers that were ignored because they have no trusted signature.",
		}),
		turns: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "millrace_writer_turn_duration_seconds",
			Help:    "Time between the start of a turn and its stored outcome.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"controller", "lane"}),
	}
	m.held = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_writer_held_total",
		Help: "Commands that a write limit held, by limit. A command that waits is held again at least every 30 s. Only where --write-limits is set.",
	}, []string{"controller", "limit"})
	for _, v := range storageepoch.Verdicts {
		m.claims.WithLabelValues(string(v))
	}
	for _, p := range controllers {
		m.inFlight.WithLabelValues(p.Name)
		for _, reason := range reasons {
			m.alarms.WithLabelValues(p.Name, reason)
		}
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	all := append(m.api.Collectors(), m.kubeEvents.Collectors()...)
	return append(all, m.results, m.alarms, m.inFlight, m.expiries, m.turns, m.claims, m.strange, m.held)
}
