package reconcilers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// readings returns the labels and value of each metric, sorted.
func readings(t *testing.T, f figures, d reconcile.Description) string {
	t.Helper()
	found := make(chan prometheus.Metric, 100)
	f.collect(found, d)
	for _, c := range f.collectors() {
		c.Collect(found)
	}
	close(found)
	var lines []string
	for m := range found {
		var said dto.Metric
		if err := m.Write(&said); err != nil {
			t.Fatal(err)
		}
		line := ""
		for _, l := range said.GetLabel() {
			line += l.GetValue() + " "
		}
		lines = append(lines, line+fmt.Sprint(said.GetCounter().GetValue()+said.GetGauge().GetValue()+said.GetHistogram().GetSampleSum()))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// A gauge is the sum of the present figures of all keys, without keys that give no figure
// any more.
func TestGaugesAreSums(t *testing.T) {
	d := reconcile.Description{Metrics: []reconcile.Metric{
		{Name: "all", Sort: reconcile.Gauge}, {Name: "each", Sort: reconcile.Gauge, Labels: []string{"of"}},
		{Name: "done", Sort: reconcile.Counter, Labels: []string{"of"}}, {Name: "took", Buckets: []float64{1}},
	}}
	f := newFigures()
	for _, m := range slices.Concat(d.Metrics, d.Metrics) { // twice: two controllers may share one
		f.add(m)
	}
	if got := readings(t, f, d); got != "0, 0" {
		t.Errorf("at first they say %q", got)
	}
	say := func(name string, value float64, of string) {
		f.shared(d)(events.Key{Name: name}, []reconcile.Figure{{Metric: "all", Value: value}, {Metric: "each", Value: value, Labels: []string{of}}})
	}
	say("a", 3, "x")
	say("b", 4, "y")
	say("a", 5, "y")
	f.measured(reconcile.Count("done", 2, "z"))
	f.measured(reconcile.Figure{Metric: "took", Value: 7})
	if got := readings(t, f, d); got != "7, 9, y 9, z 2" {
		t.Errorf("the figures are %q, want \"7, 9, y 9, z 2\"", got)
	}
	f.shared(d)(events.Key{Name: "a"}, nil)
	f.shared(d)(events.Key{Name: "b"}, nil)
	if got := readings(t, f, d); got != "0, 7, z 2" {
		t.Errorf("when no key reports any more the figures are %q, want \"0, 7, z 2\"", got)
	}
}

// A mark is 1 as long as at least one key gives it.
func TestMarks(t *testing.T) {
	d := reconcile.Description{Metrics: []reconcile.Metric{{Name: "marked", Sort: reconcile.Mark, Labels: []string{"of"}}}}
	f := newFigures()
	f.add(d.Metrics[0])
	say := func(key string, labels ...string) {
		var said []reconcile.Figure
		for _, of := range labels {
			said = append(said, reconcile.Figure{Metric: "marked", Value: 1, Labels: []string{of}})
		}
		f.shared(d)(events.Key{Name: key}, said)
	}
	for _, step := range []struct {
		key    string
		labels []string
		want   string
	}{
		{"a", []string{"x"}, "x 1"}, {"b", []string{"x", "y"}, "x 1, y 1"}, {"a", nil, "x 1, y 1"}, {"b", []string{"y"}, "y 1"}, {"b", nil, ""},
	} {
		say(step.key, step.labels...)
		if got := readings(t, f, d); got != step.want {
			t.Errorf("after %s says %v they say %q, not %q", step.key, step.labels, got, step.want)
		}
	}
}
