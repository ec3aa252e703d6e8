package reconcilers

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// upstream are the metrics that kube-controller-manager has too, under the same names, labels
// and buckets, so that dashboards and alerts keep working.
//
// An item of a workqueue there is a key here. It is added when a change or a wake asks for its
// turn, and worked on while its turn is decided. The writer makes and measures the requests of
// an upstream sync.
type upstream struct {
	queueTime, workTime  *prometheus.HistogramVec
	depth, adds, retries *prometheus.Desc
	unfinished, longest  *prometheus.Desc
	running              *prometheus.Desc
	stale                map[string]*prometheus.CounterVec
	own                  figures
	rootCA               *prometheus.CounterVec
	rootCATime           *prometheus.HistogramVec
	bundles              *prometheus.CounterVec
	bundleTime           *prometheus.HistogramVec
	syncs                *prometheus.CounterVec
	mirrorTime           prometheus.Histogram
}

// manager is the value of the "manager" label of every Millrace controller.
const manager = "millrace"

// staleSkips are the controllers of which upstream counts the syncs that waited until their own
// writes were seen, with the prefixes of the metrics' names.
//
// Upstream: pkg/controller/*/metrics.
var staleSkips = map[string]string{
	"daemonset-controller":   "daemonset_controller",
	"replicaset-controller":  "replicaset_controller",
	"statefulset-controller": "statefulset_controller",
	"job-controller":         "job_controller",
}

// The controllers whose syncs have metrics of their own.
const (
	rootCAPublisher = "root-ca-certificate-publisher-controller"
	bundlePublisher = "kube-apiserver-serving-clustertrustbundle-publisher-controller"
	slicer          = "endpointslice-controller"
	mirrorer        = "endpointslice-mirroring-controller"
)

// Upstream: component-base's workqueue metrics provider, and
// pkg/controller/certificates/rootcacertpublisher/metrics.go.
func newUpstream(controllers []reconcile.Any) upstream {
	times := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "workqueue", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10),
		}, []string{"name"})
	}
	queue := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("workqueue_"+name, help, []string{"name"}, nil)
	}
	u := upstream{
		queueTime:  times("queue_duration_seconds", "Time that keys spent in the queue."),
		workTime:   times("work_duration_seconds", "Duration of decisions."),
		depth:      queue("depth", "Keys that wait for a turn."),
		adds:       queue("adds_total", "Keys added to the queue."),
		retries:    queue("retries_total", "Retried turns."),
		unfinished: queue("unfinished_work_seconds", "Total age of the decisions in progress."),
		longest:    queue("longest_running_processor_seconds", "Age of the oldest decision in progress."),
		running:    prometheus.NewDesc("running_managed_controllers", "1 while the controller is assigned to this replica.", []string{"name", "manager"}, nil),
		stale:      map[string]*prometheus.CounterVec{},
		own:        newFigures(),
		rootCA: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "root_ca_cert_publisher_sync_total", Help: "Syncs of namespaces, by HTTP status.",
		}, []string{"code"}),
		rootCATime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "root_ca_cert_publisher_sync_duration_seconds", Help: "Time from the decision on a namespace to its outcome, by HTTP status.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"code"}),
		bundles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustertrustbundle_publisher_sync_total", Help: "Syncs of bundles, by HTTP status.",
		}, []string{"code"}),
		bundleTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "clustertrustbundle_publisher_sync_duration_seconds", Help: "Time from the decision on a bundle to its outcome, by HTTP status.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"code"}),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "endpoint_slice_controller_syncs", Help: "Syncs of services, by result.",
		}, []string{"result"}),
		mirrorTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "endpoint_slice_mirroring_controller_endpoints_sync_duration", Help: "Time in seconds from the decision on Endpoints to its outcome.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
	}
	for _, c := range controllers {
		u.add(c.Describe())
	}
	return u
}

func (u *upstream) add(d reconcile.Description) {
	for _, m := range d.Metrics {
		u.own.add(m)
	}
	if subsystem, ok := staleSkips[d.Name]; ok {
		u.stale[d.Name] = prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "stale_sync_skips_total",
			Help: "Turns that waited until the writes of the previous turn were observed, by the resource that was stale.",
		}, []string{"group", "resource"})
		for _, w := range d.Writes { // so that the first wait is an increase
			u.stale[d.Name].WithLabelValues(w.Kind.Group(), w.Kind.Resource())
		}
	}
}

// watch sets the callbacks by which an engine reports these measurements.
func (u *upstream) watch(s *shell.Settings, d reconcile.Description) {
	waited := u.queueTime.WithLabelValues(d.Queue)
	s.Waited = func(took time.Duration) { waited.Observe(took.Seconds()) }
	s.Measured = u.own.measured
	s.Shared = u.own.shared(d)
	if skips, ok := u.stale[d.Name]; ok {
		s.Held = func(kind kinds.Name) { skips.WithLabelValues(kind.Group(), kind.Resource()).Inc() }
	}
}

func (u *upstream) worked(queue string) func(time.Duration) {
	h := u.workTime.WithLabelValues(queue)
	return func(d time.Duration) { h.Observe(d.Seconds()) }
}

func (u *upstream) answered(controller string, code int, took time.Duration) {
	switch controller {
	case rootCAPublisher:
		text := strconv.Itoa(code)
		u.rootCA.WithLabelValues(text).Inc()
		u.rootCATime.WithLabelValues(text).Observe(took.Seconds())
	case bundlePublisher:
		text := strconv.Itoa(code)
		u.bundles.WithLabelValues(text).Inc()
		u.bundleTime.WithLabelValues(text).Observe(took.Seconds())
	case slicer:
		result := "success"
		if code != http.StatusOK {
			result = "error"
		}
		u.syncs.WithLabelValues(result).Inc()
	case mirrorer:
		u.mirrorTime.Observe(took.Seconds())
	}
}

func (u *upstream) collectors(controllers []reconcile.Any) []prometheus.Collector {
	all := []prometheus.Collector{u.queueTime, u.workTime}
	all = append(all, u.own.collectors()...)
	for _, c := range controllers {
		d := c.Describe()
		if skips, ok := u.stale[d.Name]; ok {
			all = append(all, skips)
		}
		switch d.Name {
		case rootCAPublisher:
			all = append(all, u.rootCA, u.rootCATime)
		case bundlePublisher:
			all = append(all, u.bundles, u.bundleTime)
		case slicer:
			all = append(all, u.syncs)
		case mirrorer:
			all = append(all, u.mirrorTime)
		}
	}
	return all
}

func (u *upstream) descs() []*prometheus.Desc {
	return append(u.own.descs(), u.depth, u.adds, u.retries, u.unfinished, u.longest, u.running)
}

// queue holds the values of a workqueue of one name. Several controllers may share a name; the
// values are then aggregated over them, as upstream's registry does.
type queue struct{ depth, adds, retries, unfinished, longest float64 }

// with adds the values of another controller to a queue.
func (q queue) with(t engine.Tally, busy time.Duration) queue {
	return queue{
		q.depth + float64(t.Depth), q.adds + float64(t.Adds), q.retries + float64(t.Retries),
		q.unfinished + busy.Seconds(), max(q.longest, busy.Seconds()),
	}
}

func (u *upstream) collectQueues(out chan<- prometheus.Metric, queues map[string]queue) {
	for name, q := range queues {
		out <- prometheus.MustNewConstMetric(u.depth, prometheus.GaugeValue, q.depth, name)
		out <- prometheus.MustNewConstMetric(u.adds, prometheus.CounterValue, q.adds, name)
		out <- prometheus.MustNewConstMetric(u.retries, prometheus.CounterValue, q.retries, name)
		out <- prometheus.MustNewConstMetric(u.unfinished, prometheus.GaugeValue, q.unfinished, name)
		out <- prometheus.MustNewConstMetric(u.longest, prometheus.GaugeValue, q.longest, name)
	}
}

func (u *upstream) collect(out chan<- prometheus.Metric, d reconcile.Description, active bool) {
	out <- prometheus.MustNewConstMetric(u.running, prometheus.GaugeValue, truth(active), name(d), manager)
	if active { // otherwise every replica would export the same values, and their sum would be too large
		u.own.collect(out, d)
	}
}

// name is the controller's name in the metrics of kube-controller-manager.
func name(d reconcile.Description) string { return cmp.Or(append(slices.Clone(d.Aliases), d.Name)...) }

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
