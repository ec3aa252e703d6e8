// Package metrictest reads the metrics of a program in a test, as Prometheus reads them: [Scrape] is
// what a registry or some collectors say now.
package metrictest

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Label is a label of a series.
type Label struct{ Name, Value string }

// Series is one line of a scrape.
type Series struct {
	Name   string
	Labels []Label // sorted by name
	Value  float64 // of a counter or a gauge; of a histogram, how many observations it has
}

// Label returns the value of a label, "" where there is none.
func (s Series) Label(name string) string {
	for _, l := range s.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// Has reports whether a label has this value, or, in the form name=value, whether this one has.
func (s Series) Has(label string) bool {
	return slices.ContainsFunc(s.Labels, func(l Label) bool { return l.Value == label || l.Name+"="+l.Value == label })
}

// Scrape is the series of one scrape, sorted by name.
type Scrape []Series

// Read scrapes a registry.
func Read(t testing.TB, from prometheus.Gatherer) (all Scrape) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			one := Series{Name: f.GetName(), Value: m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())}
			for _, l := range m.GetLabel() {
				one.Labels = append(one.Labels, Label{l.GetName(), l.GetValue()})
			}
			all = append(all, one)
		}
	}
	return all
}

// Collect scrapes collectors.
func Collect(t testing.TB, from ...prometheus.Collector) Scrape {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(from...)
	return Read(t, registry)
}

// Of returns the series with a name, and with all of these labels ([Series.Has]). The name "" stands for
// every name.
func (s Scrape) Of(name string, labels ...string) (some Scrape) {
	for _, one := range s {
		lacks := func(label string) bool { return !one.Has(label) }
		if (name == "" || one.Name == name) && !slices.ContainsFunc(labels, lacks) {
			some = append(some, one)
		}
	}
	return some
}

// Sum is the sum of the series that [Scrape.Of] returns, 0 where there are none.
func (s Scrape) Sum(name string, labels ...string) (sum float64) {
	for _, one := range s.Of(name, labels...) {
		sum += one.Value
	}
	return sum
}

// Value is the value of the first series with a name. A test without one ends.
func (s Scrape) Value(t testing.TB, name string) float64 {
	t.Helper()
	some := s.Of(name)
	if len(some) == 0 {
		t.Fatalf("there is no metric %s", name)
	}
	return some[0].Value
}
