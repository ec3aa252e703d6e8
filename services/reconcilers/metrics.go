package reconcilers

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/exemplar"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shard"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// metrics are the metrics that kube-controller-manager has too, and Millrace's own.
//
// No label is a namespace, a name or another value of which there are as many as
// objects: labels are kinds, controllers, and words of a fixed list.
type metrics struct {
	service             *Service
	upstream            upstream
	turns, shut, parked *prometheus.Desc
	broken              *prometheus.Desc
	overtaken, active   *prometheus.Desc
	members             *prometheus.Desc
	lag, lagTime        *prometheus.Desc
	behind, behindTime  *prometheus.Desc
	foldAge, stages     *prometheus.HistogramVec
	answers             *prometheus.CounterVec
}

func newMetrics(s *Service) *metrics {
	own := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("millrace_reconcilers_"+name, help, labels, nil)
	}
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return own(name, help, append([]string{"controller"}, labels...)...)
	}
	return &metrics{
		service:    s,
		upstream:   newUpstream(s.config.Controllers),
		turns:      of("turns_total", "Turns by lane; lane \"none\" decided nothing, lane \"repeated\" stored a turn again because no outcome of it came.", "lane"),
		shut:       of("fence_waits_total", "Times that a turn, or one of its lanes, waited for earlier effects or for a rate limit."),
		parked:     of("parked", "Keys and messages that are parked."),
		overtaken:  of("overtaken_total", "Turns that were dropped because another replica had stored a turn of the key first."),
		active:     of("active", "The share of the controller's keys that this replica decides about, from 0 to 1."),
		members:    own("members", "Reconcilers whose heartbeats this one receives, itself included; 33 at most. With signing keys, only those with a trusted signature."),
		broken:     of("broken_total", "Turns that panicked, broke a promise or were too large."),
		behind:     of("controller_lag", "Sequences between the oldest change that is waiting for a turn and the end of a kind's log.", "kind"),
		behindTime: of("controller_lag_seconds", "Age of the oldest change of a kind that is waiting for a turn; 0 without one.", "kind"),
		lag:        own("lag", "Sequences of a kind's log that have not been folded.", "kind"),
		lagTime:    own("lag_seconds", "Age of the oldest change of a kind that has not been folded; 0 when there is none.", "kind"),
		foldAge: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millrace_reconcilers_fold_age_seconds", Help: "Time between the storing of a change and its folding.",
			Buckets: prometheus.ExponentialBuckets(0.5e-3, 2, 15),
		}, []string{"kind"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millrace_reconcilers_stage_duration_seconds",
			Help: "Duration of the stages of a change: from the bus to the decision (\"decided\"), to the stored turn (\"stored\"), to the outcome (\"written\"), and to the observation of all effects (\"seen\").",
			// From half a millisecond to 66 seconds.
			Buckets: prometheus.ExponentialBuckets(0.5e-3, 2, 18),
		}, []string{"controller", "stage"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_reconcilers_answers_total", Help: "Turns by the HTTP status of their outcome; 200 for turns without commands.",
		}, []string{"controller", "code"}),
	}
}

// watch sets the callbacks by which a controller's engine reports measurements.
func (m *metrics) watch(s *shell.Settings, d reconcile.Description) {
	m.upstream.watch(s, d)
	s.Answered = func(code int, took time.Duration) {
		m.answers.WithLabelValues(d.Name, strconv.Itoa(code)).Inc()
		m.upstream.answered(d.Name, code, took)
	}
	stages := map[engine.Stage]prometheus.Observer{}
	for _, stage := range engine.Stages {
		stages[stage] = m.stages.WithLabelValues(d.Name, string(stage))
	}
	s.Passed = func(stage engine.Stage, took time.Duration, trace events.Trace) {
		exemplar.Observe(stages[stage], took.Seconds(), trace)
	}
}

func (m *metrics) folded(kind kinds.Name) func(time.Duration) {
	h := m.foldAge.WithLabelValues(string(kind))
	return func(age time.Duration) { h.Observe(max(age, 0).Seconds()) }
}

func (m *metrics) collectors() []prometheus.Collector {
	return append(m.upstream.collectors(m.service.config.Controllers), m.foldAge, m.stages, m.answers, m)
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	own := []*prometheus.Desc{
		m.turns, m.shut, m.parked, m.broken, m.overtaken, m.active, m.lag, m.lagTime, m.behind, m.behindTime, m.members, m.service.stalls.seconds, m.service.stalls.keys,
	}
	for _, d := range append(own, m.upstream.descs()...) {
		out <- d
	}
}

// lagTimeout bounds how long a scrape waits for an unavailable bus or a busy loop.
const lagTimeout = time.Second

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(m.members, prometheus.GaugeValue, float64(m.service.members.Members()))
	queues := map[string]queue{}
	for _, l := range m.service.loops {
		d := l.Description()
		queues[d.Queue] = queues[d.Queue].with(l.Tally(), l.Busy())
		m.upstream.collect(out, d, m.service.members.First(l.Name()))
		m.collect(out, l)
		m.service.stalls.collect(out, l.Name())
	}
	m.upstream.collectQueues(out, queues)
	ctx, cancel := context.WithTimeout(context.Background(), lagTimeout)
	defer cancel()
	ends := m.ends(ctx)
	for kind, end := range ends {
		m.collectLag(ctx, out, kind, end)
	}
	for _, l := range m.service.loops {
		m.collectBehind(ctx, out, l, ends)
	}
}

func (m *metrics) collect(out chan<- prometheus.Metric, l *shell.Loop) {
	t := l.Tally()
	gauge := func(d *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, l.Name())
	}
	counter := func(d *prometheus.Desc, value int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), append([]string{l.Name()}, labels...)...)
	}
	counter(m.turns, t.Writes, "write")
	counter(m.turns, t.Reports, "status")
	counter(m.turns, t.Nothing, "none")
	counter(m.turns, t.Repeats, "repeated")
	counter(m.shut, t.Shut)
	gauge(m.parked, float64(t.Parked))
	gauge(m.active, float64(m.service.share(l.Name()).Size())/shard.Count)
	counter(m.broken, t.Broken)
	counter(m.overtaken, t.Overtaken)
}

// ends are the last sequences of the followed kinds' logs, as far as the bus answers in
// time.
func (m *metrics) ends(ctx context.Context) map[kinds.Name]uint64 {
	ends := map[kinds.Name]uint64{}
	for _, kind := range m.service.following() {
		log, err := m.service.config.Bus.StreamState(ctx, subject.LogStream(kind))
		if ctx.Err() != nil {
			return ends
		}
		if err == nil { // otherwise the kind has just been removed
			ends[kind] = log.Last
		}
	}
	return ends
}

func (m *metrics) collectLag(ctx context.Context, out chan<- prometheus.Metric, kind kinds.Name, end uint64) {
	lag, age := uint64(0), time.Duration(0)
	if position := m.service.memory.Position(kind); end > position {
		lag = end - position
		next, ok, err := m.service.config.Bus.At(ctx, subject.LogStream(kind), position+1)
		if ok && err == nil {
			age = max(time.Since(next.Time), 0)
		}
	}
	out <- prometheus.MustNewConstMetric(m.lag, prometheus.GaugeValue, float64(lag), string(kind))
	out <- prometheus.MustNewConstMetric(m.lagTime, prometheus.GaugeValue, age.Seconds(), string(kind))
}

// collectBehind exports how much of each kind waits for a controller. Changes that are
// stored and not folded are the lag of the fold.
func (m *metrics) collectBehind(ctx context.Context, out chan<- prometheus.Metric, l *shell.Loop, ends map[kinds.Name]uint64) {
	backlog, ok := l.Backlog(ctx)
	if !ok {
		return
	}
	for kind, end := range ends {
		if !attends(l, kind) {
			continue
		}
		lag, age := uint64(0), time.Duration(0)
		if b, waits := backlog[kind]; waits {
			lag, age = max(end, b.Sequence)-b.Sequence+1, max(time.Since(b.Stored), 0)
		}
		out <- prometheus.MustNewConstMetric(m.behind, prometheus.GaugeValue, float64(lag), l.Name(), string(kind))
		out <- prometheus.MustNewConstMetric(m.behindTime, prometheus.GaugeValue, age.Seconds(), l.Name(), string(kind))
	}
}
