package reconcilers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
		turns:      own("turns_total", "Turns by lane; lane \"none\" decided nothing.", "lane"),
		shut:       own("fence_waits_total", "Times that a turn, or a part of one, had to wait for earlier effects or for its pace."),
		parked:     own("parked", "Keys and messages that are set aside."),
		hand:       own("tickets", "Deliveries in hand."),
		broken:     own("broken_total", "Turns that panicked, broke a promise or were too large."),
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

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.queueTime, m.workTime, m}
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.depth, m.adds, m.retries, m.unfinished, m.longest, m.turns, m.shut, m.parked, m.hand, m.broken,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for at, l := range m.service.loops {
		m.collect(out, l, m.service.config.Controllers[at].Describe().Queue)
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
	counter(m.shut, t.Shut, l.Name())
	gauge(m.parked, float64(t.Parked), l.Name())
	gauge(m.hand, float64(t.Hand), l.Name())
	counter(m.broken, t.Broken, l.Name())
}
