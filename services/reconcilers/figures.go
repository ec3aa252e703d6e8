package reconcilers

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// figures holds the metrics that controllers declare, and their values. A metric that two
// controllers declare is one metric, like that of upstream's ReplicaSet and
// ReplicationController controllers. It is safe for concurrent use once all metrics are added.
type figures struct {
	histograms map[string]*prometheus.HistogramVec
	counters   map[string]*prometheus.CounterVec
	gauges     map[string]*gauge
}

func newFigures() figures {
	return figures{
		histograms: map[string]*prometheus.HistogramVec{}, counters: map[string]*prometheus.CounterVec{}, gauges: map[string]*gauge{},
	}
}

// add adds a metric. One without labels is exported from the start.
func (f figures) add(m reconcile.Metric) {
	switch {
	case f.histograms[m.Name] != nil, f.counters[m.Name] != nil, f.gauges[m.Name] != nil:
	case m.Sort == reconcile.Counter:
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
		if f.counters[m.Name] = c; len(m.Labels) == 0 {
			c.WithLabelValues()
		}
	case m.Sort == reconcile.Gauge, m.Sort == reconcile.Mark:
		f.gauges[m.Name] = newGauge(m)
	default:
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}, m.Labels)
		if f.histograms[m.Name] = h; len(m.Labels) == 0 {
			h.WithLabelValues()
		}
	}
}

func (f figures) collectors() []prometheus.Collector {
	var all []prometheus.Collector
	for _, name := range slices.Sorted(maps.Keys(f.histograms)) {
		all = append(all, f.histograms[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f.counters)) {
		all = append(all, f.counters[name])
	}
	return all
}

func (f figures) descs() []*prometheus.Desc {
	var all []*prometheus.Desc
	for _, name := range slices.Sorted(maps.Keys(f.gauges)) {
		all = append(all, f.gauges[name].desc)
	}
	return all
}

// measured adds a figure to a histogram or counter. The laws of controllers make sure that it
// fits its metric.
func (f figures) measured(figure reconcile.Figure) {
	if h := f.histograms[figure.Metric]; h != nil {
		h.WithLabelValues(figure.Labels...).Observe(figure.Value)
	}
	if c := f.counters[figure.Metric]; c != nil {
		c.WithLabelValues(figure.Labels...).Add(figure.Value)
	}
}

// shared returns what sets the gauges of a controller from its newest decision about a key.
func (f figures) shared(d reconcile.Description) func(events.Key, []reconcile.Figure) {
	own := map[string]*gauge{}
	for _, m := range d.Metrics {
		if g := f.gauges[m.Name]; g != nil {
			own[m.Name] = g
		}
	}
	return func(key events.Key, said []reconcile.Figure) {
		for name, g := range own {
			g.say(speaker{d.Name, key}, slices.DeleteFunc(slices.Clone(said), func(s reconcile.Figure) bool { return s.Metric != name }))
		}
	}
}

// collect exports the gauges of a controller.
func (f figures) collect(out chan<- prometheus.Metric, d reconcile.Description) {
	for _, m := range d.Metrics {
		if g := f.gauges[m.Name]; g != nil {
			g.collect(out)
		}
	}
}

// gauge is the sum over all keys for each set of labels, or 1 for a mark.
type gauge struct {
	desc *prometheus.Desc
	mark bool

	mu   sync.Mutex
	said map[speaker][]reconcile.Figure
	sums map[string]*sum // by labels
}

type speaker struct {
	controller string
	key        events.Key
}

type sum struct {
	labels []string
	value  float64
	count  int // of figures in it
}

func newGauge(m reconcile.Metric) *gauge {
	g := &gauge{desc: prometheus.NewDesc(m.Name, m.Help, m.Labels, nil), mark: m.Sort == reconcile.Mark, said: map[speaker][]reconcile.Figure{}, sums: map[string]*sum{}}
	if len(m.Labels) == 0 {
		g.sums[""] = &sum{count: 1} // exported from the start
	}
	return g
}

func (g *gauge) say(who speaker, now []reconcile.Figure) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range now {
		g.put(f, f.Value, 1)
	}
	for _, f := range g.said[who] {
		g.put(f, -f.Value, -1)
	}
	if g.said[who] = now; len(now) == 0 {
		delete(g.said, who)
	}
}

func (g *gauge) put(f reconcile.Figure, value float64, count int) {
	at := strings.Join(f.Labels, "\x00")
	s := g.sums[at]
	if s == nil {
		s = &sum{labels: f.Labels}
		g.sums[at] = s
	}
	s.value += value
	if s.count += count; s.count == 0 {
		delete(g.sums, at)
	}
}

func (g *gauge) collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.sums {
		value := s.value
		if g.mark {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, s.labels...)
	}
}
