package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	var values []time.Duration
	for i := 100; i >= 1; i-- { // unsorted on purpose
		values = append(values, time.Duration(i))
	}
	for _, c := range []struct {
		share float64
		want  time.Duration
	}{{0, 1}, {0.5, 50}, {0.99, 99}, {1, 100}} {
		if got := quantile(values, c.share); got != c.want {
			t.Errorf("quantile(%v) = %v, want %v", c.share, got, c.want)
		}
	}
	if values[0] != 100 {
		t.Error("quantile sorted the caller's values")
	}
	if got := quantile([]time.Duration{7}, 0.5); got != 7 {
		t.Errorf("quantile of one value = %v", got)
	}
}

func TestRoundsAreReducedToTheirMedian(t *testing.T) {
	got := medians([][]metric{{{"up", "s", 3}, {"down", "s", 1}}, {{"up", "s", 1}, {"down", "s", 2}}, {{"up", "s", 2}, {"down", "s", 9}}})
	if want := []metric{{"up", "s", 2}, {"down", "s", 2}}; !slices.Equal(got, want) {
		t.Errorf("the medians are %v, want %v", got, want)
	}
}

// For a value that was measured several times the table has the median, and the page all numbers.
func TestTurnsAreReducedToTheirMedianAndListed(t *testing.T) {
	r := newResults(full)
	for turn := range 3 {
		r.add("job", "kcm-tuned", metric{"until it is complete", "s", []float64{20, 26, 22}[turn]})
		r.add("job", "millrace", metric{"until it is complete", "s", []float64{22, 25, 11}[turn]})
		r.add("job", "kcm", metric{"requests to the API server", "", float64(turn)})
	}
	r.add("wall", "kcm-tuned", metric{"creates", "1/s", 500})
	file := filepath.Join(t.TempDir(), "results.json")
	if err := r.save(file); err != nil {
		t.Fatal(err)
	}
	kept := newResults(full)
	if err := kept.load(file, nil, nil); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := kept.document(page); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| job | until it is complete | s | - | 22.0 | 22.0 | - | 1.00x |",
		"| job | requests to the API server |  | 1.00 | - | - | - | - |",
		"| job | until it is complete | 20.0, 26.0, 22.0 | 22.0, 25.0, 11.0 | 1.10x, 0.96x, 0.50x |",
	} {
		if strings.Count(string(data), want) != 1 {
			t.Errorf("page lacks %q:\n%s", want, data)
		}
	}
	again := newResults(full)
	if err := again.load(file, []string{"millrace"}, []string{"job"}); err != nil {
		t.Fatal(err)
	}
	again.add("job", "millrace", metric{"until it is complete", "s", 40})
	if got := again.Rows[0]; got.Values["millrace"] != 40 || got.Turns["millrace"] != nil {
		t.Errorf("after a new measurement of 40 s the row is %+v, want only that value", got)
	}
}

func TestTableComparesContenders(t *testing.T) {
	r := newResults(full)
	r.add("heal", "kcm-tuned", metric{"p50", "ms", 10})
	r.add("heal", "millrace", metric{"p50", "ms", 8})
	r.add("wall", "kcm", metric{"rate", "1/s", 1234})
	want := [][]string{
		{"wall", "rate", "1/s", "1234", "-", "-", "-", "-"},
		{"heal", "p50", "ms", "-", "10.0", "8.00", "-", "0.80x"},
	}
	got := r.cells()[1:]
	if len(got) != len(want) {
		t.Fatalf("got %d rows, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if strings.Join(got[i], "|") != strings.Join(want[i], "|") {
			t.Errorf("row %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func TestDocumentIsATable(t *testing.T) {
	r := newResults(full)
	r.add("burst", "kcm", metric{"until all Pods exist", "s", 24})
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := r.document(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one Deployment of 500 replicas", "| burst | until all Pods exist | s | 24.0 | - | - | - | - |", "10000 Pods", "10000 Pods in 500 namespaces", "a Job of 1000 completions", "2000 objects"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("page lacks %q:\n%s", want, data)
		}
	}
	if strings.Contains(string(data), "%!") {
		t.Errorf("page has a formatting error:\n%s", data)
	}
}

func TestEarlierResultsAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	earlier := newResults(full)
	earlier.add("heal", "kcm", metric{"p50", "ms", 40})
	earlier.add("heal", "millrace", metric{"p50", "ms", 99})
	earlier.add("kill", "millrace", metric{"writer", "s", 9})
	if err := earlier.save(file); err != nil {
		t.Fatal(err)
	}
	r := newResults(full)
	if err := r.load(file, []string{"millrace"}, []string{"heal"}); err != nil {
		t.Fatal(err)
	}
	r.add("heal", "millrace", metric{"p50", "ms", 10})
	want := [][]string{
		{"heal", "p50", "ms", "40.0", "-", "10.0", "0.25x", "-"},
		{"kill", "writer", "s", "-", "-", "9.00", "-", "-"}, // this scenario was not measured again
	}
	if got := r.cells()[1:]; !reflect.DeepEqual(got, want) {
		t.Errorf("after heal was measured again, the table is %v, want %v", got, want)
	}
	other := newResults(small)
	if err := other.load(file, nil, nil); err == nil {
		t.Error("load accepted results of another amount of work, want an error")
	}
}
