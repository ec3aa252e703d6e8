package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// An outcome has the epochs of the kinds whose logs show its effects, and of the kinds that it
// read.
func TestWhatAnOutcomeConcerns(t *testing.T) {
	of := func(kind kinds.Name, r Result) Result { r.Ref.Kind = kind; return r }
	results := []Result{
		of("pods", Result{Status: Applied, Version: "5"}),
		of("pods", Result{Status: Applied, Version: "6"}),
		of("services", Result{Status: Applied, Removed: true}),
		of("configmaps", Result{Status: Answered}),
		of("nodes", Result{Status: Failed}),
		of("events", Result{Status: Skipped}),
	}
	for own, want := range map[kinds.Name][]kinds.Name{
		"":         {"pods", "services", "configmaps"},
		"jobs":     {"jobs", "pods", "services", "configmaps"},
		"services": {"services", "pods", "configmaps"},
	} {
		if got := Concerns(own, results); !cmp.Equal(got, want) {
			t.Errorf("the concerns of %q are %v, want %v", own, got, want)
		}
	}
	if got := Concerns("", nil); got != nil {
		t.Errorf("the concerns of no results are %v, want none", got)
	}
}

// Answers belong to the epoch that the turn rests on, even if the storage has been restored
// since; writes belong to the epoch that the writer knows.
func TestFromWhichEpochAnAnswerIs(t *testing.T) {
	of := func(kind kinds.Name, status Status) Result { return Result{Status: status, Ref: Ref{Kind: kind}} }
	turn := Turn{Epochs: Epochs{"pods": 1, "jobs": 2}}
	for what, c := range map[string]struct {
		results []Result
		now     Epochs
		want    Epochs
	}{
		"read before the storage went back": {[]Result{of("pods", Answered)}, Epochs{"pods": 2}, Epochs{"pods": 1}},
		"read in the first epoch":           {[]Result{of("nodes", Answered)}, Epochs{"nodes": 2}, Epochs{"nodes": 0}},
		"read in this epoch":                {[]Result{of("jobs", Answered)}, Epochs{"jobs": 2}, Epochs{"jobs": 2}},
		"of an epoch before the decision":   {[]Result{of("jobs", Answered)}, Epochs{"jobs": 1}, Epochs{"jobs": 1}},
		"written":                           {[]Result{of("pods", Applied)}, Epochs{"pods": 2}, Epochs{"pods": 2}},
		"written, and another one read":     {[]Result{of("pods", Applied), of("nodes", Answered)}, Epochs{"pods": 2, "nodes": 2}, Epochs{"pods": 2, "nodes": 0}},
		"of no epoch that is known":         {[]Result{of("pods", Answered)}, Epochs{}, Epochs{}},
	} {
		if got := turn.Dated(c.results, c.now); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
