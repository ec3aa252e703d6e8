package reconcilers

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// metrics are those of kube-controller-manager's workqueues, under the same
// names, labels and buckets, so that dashboards go on working, and a few of our
// own.
type metrics struct {
	service              *Service
	queueTime, workTime  *prometheus.HistogramVec
	depth, adds, retries *prometheus.Desc
	unfinished, longest  *prometheus.Desc
	turns, shut, parked  *prometheus.Desc
	hand, broken         *prometheus.Desc
	overtaken, active    *prometheus.Desc
	foldAge              *prometheus.HistogramVec
	lag                  *prometheus.Desc
	answers, rootCA      *prometheus.CounterVec
}

// Upstream: component-base's workqueue metrics provider.
func newMetrics(s *Service) *metrics {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "workqueue", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 12),
		}, []string{"name"})
	}
	queue := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("workqueue_"+name, help, []string{"name"}, nil)
	}
	own := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("millrace_reconcilers_"+name, help, append([]string{"controller"}, labels...), nil)
	}
	return &metrics{
		service:    s,
		queueTime:  histogram("queue_duration_seconds", "How long keys stood in the queue."),
		workTime:   histogram("work_duration_seconds", "How long turns took to decide."),
		depth:      queue("depth", "Keys that wait for their turn."),
		adds:       queue("adds_total", "Keys added to the queue."),
		retries:    queue("retries_total", "Turns that had to be made again."),
		unfinished: queue("unfinished_work_seconds", "Age of the turn that is being decided."),
		longest:    queue("longest_running_processor_seconds", "Age of the oldest turn that is being decided."),
		turns:      own("turns_total", "Turns by lane; lane \"none\" decided nothing, lane \"repeated\" stored a turn again because no outcome of it came.", "lane"),
		shut:       own("fence_waits_total", "Times that a turn, or a part of one, had to wait for earlier effects or for its pace."),
		parked:     own("parked", "Keys and messages that are set aside."),
		hand:       own("tickets", "Deliveries in hand."),
		overtaken:  own("overtaken_total", "Turns thrown away because another replica had stored one of the key first."),
		active:     own("active", "1 while the controller's work falls to this replica."),
		broken:     own("broken_total", "Turns that panicked, broke a promise or were too large."),
		foldAge: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millrace_reconcilers_fold_age_seconds", Help: "How old changes were, since they were stored, when they had been folded.",
			Buckets: prometheus.ExponentialBuckets(0.5e-3, 2, 15),
		}, []string{"kind"}),
		lag: prometheus.NewDesc("millrace_reconcilers_lag", "Sequences of a kind's log that have not been folded.", []string{"kind"}, nil),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_reconcilers_answers_total", Help: "Turns by the HTTP status that they ended with; 200 for those that wanted nothing.",
		}, []string{"controller", "code"}),
		// Upstream: pkg/controller/certificates/rootcacertpublisher/metrics.go.
		rootCA: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "root_ca_cert_publisher_sync_total", Help: "Number of namespace syncs happened in root ca cert publisher.",
		}, []string{"code"}),
	}
}

func (m *metrics) waited(queue string) func(time.Duration) {
	h := m.queueTime.WithLabelValues(queue)
	return func(d time.Duration) { h.Observe(d.Seconds()) }
}

func (m *metrics) worked(queue string) func(time.Duration) {
	h := m.workTime.WithLabelValues(queue)
	return func(d time.Duration) { h.Observe(d.Seconds()) }
}

func (m *metrics) folded(kind kinds.Name) func(time.Duration) {
	h := m.foldAge.WithLabelValues(string(kind))
	return func(age time.Duration) { h.Observe(max(age, 0).Seconds()) }
}

// rootCAPublisher is the one controller whose syncs have a metric of their own.
const rootCAPublisher = "root-ca-certificate-publisher-controller"

func (m *metrics) answered(controller string) func(code int) {
	return func(code int) {
		text := strconv.Itoa(code)
		m.answers.WithLabelValues(controller, text).Inc()
		if controller == rootCAPublisher {
			m.rootCA.WithLabelValues(text).Inc()
		}
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.queueTime, m.workTime, m.foldAge, m.answers, m.rootCA, m}
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.depth, m.adds, m.retries, m.unfinished, m.longest, m.turns, m.shut, m.parked, m.hand, m.broken, m.overtaken, m.active, m.lag,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for at, l := range m.service.loops {
		m.collect(out, l, m.service.config.Controllers[at].Describe().Queue)
	}
	m.collectLag(out)
}

// lagTimeout bounds how long a scrape waits for a bus that is away.
const lagTimeout = time.Second

func (m *metrics) collectLag(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), lagTimeout)
	defer cancel()
	for _, kind := range m.service.following() {
		log, err := m.service.config.Bus.StreamState(ctx, subject.LogStream(kind))
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // the kind has just gone
		}
		lag := uint64(0)
		if position := m.service.memory.Position(kind); log.Last > position {
			lag = log.Last - position
		}
		out <- prometheus.MustNewConstMetric(m.lag, prometheus.GaugeValue, float64(lag), string(kind))
	}
}

func (m *metrics) collect(out chan<- prometheus.Metric, l *shell.Loop, queue string) {
	t, busy := l.Tally(), l.Busy().Seconds()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	gauge(m.depth, float64(t.Depth), queue)
	counter(m.adds, t.Adds, queue)
	counter(m.retries, t.Retries, queue)
	gauge(m.unfinished, busy, queue)
	gauge(m.longest, busy, queue)
	counter(m.turns, t.Acts, l.Name(), "act")
	counter(m.turns, t.Tells, l.Name(), "tell")
	counter(m.turns, t.Nothing, l.Name(), "none")
	counter(m.turns, t.Repeats, l.Name(), "repeated")
	counter(m.shut, t.Shut, l.Name())
	gauge(m.parked, float64(t.Parked), l.Name())
	gauge(m.hand, float64(t.Hand), l.Name())
	active := 0.0
	if m.service.roster.First(l.Name()) {
		active = 1
	}
	gauge(m.active, active, l.Name())
	counter(m.broken, t.Broken, l.Name())
	counter(m.overtaken, t.Overtaken, l.Name())
}
