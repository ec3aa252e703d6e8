package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestRoundsAreComparedWithTheirNeighbours: a machine that becomes slower during the run must not look like a
// cost of tracing.
func TestRoundsAreComparedWithTheirNeighbours(t *testing.T) {
	rounds := func(cost float64, rates ...float64) *tracer {
		r := &tracer{}
		for _, rate := range rates {
			r.rounds = append(r.rounds, pace{rate * (1 - cost/100), 2 * (1 + cost/100), []float64{3, 1, cost}})
		}
		return r
	}
	off, few := rounds(0, 10, 40, 20, 80, 160), rounds(5, 10, 40, 20, 80, 160)
	few.rounds[4].rate = 80
	few.share.name = "few"
	want := map[string]float64{
		"scale operations, few": 38, "processor time of one, few": 2.1,
		"processor time of one, few, kube-apiserver": 3, "processor time of one, few, etcd": 1, "processor time of one, few, jaeger": 5,
		"throughput lost, few": 5, "throughput lost, few, lower quartile": 5, "throughput lost, few, upper quartile": 5,
		"processor time added, few": 5, "processor time added, few, lower quartile": 5, "processor time added, few, upper quartile": 5,
	}
	got := map[string]float64{}
	for _, m := range traceMetrics([]*tracer{off, few})[2+len(neighbours):] {
		got[m.Name] = float64(int(m.Value*1000+0.5)) / 1000
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestQuartiles(t *testing.T) {
	var got []float64
	for _, m := range spread("x", []float64{9, 1, 8, 2, 7, 3, 6, 4, 5}) {
		got = append(got, m.Value)
	}
	if want := []float64{5, 3, 7}; !slices.Equal(got, want) {
		t.Errorf("median and quartiles are %v, want %v", got, want)
	}
	if one := spread("x", []float64{4}); one[1].Value != 4 || one[2].Value != 4 {
		t.Errorf("of a single round they are %v", one)
	}
}

func TestMissedCausesAreAddedUpByReason(t *testing.T) {
	tr := &tracer{missed: map[string]int{}}
	for range 2 { // of two rounds
		err := tr.add(strings.NewReader(`# TYPE millrace_watcher_missed_causes_total counter
millrace_watcher_missed_causes_total{kind="pods",reason="late"} 2
millrace_watcher_missed_causes_total{kind="replicasets.apps",reason="late"} 1
millrace_watcher_missed_causes_total{kind="pods",reason="waited"} 1
`))
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []float64
	for _, m := range tr.whyMissed() {
		got = append(got, m.Value)
	}
	if want := []float64{0, 6, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("missed are %v, want %v", got, want)
	}
	if err := tr.add(strings.NewReader("nothing of the kind\n")); err == nil {
		t.Error("whatever is no metric is read")
	}
}
