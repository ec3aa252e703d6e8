package oracle_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle"
)

// TestAutoscalersThatCannotReportLiveAsUpstreams: the API server refuses the status of an autoscaler in some
// rounds.
func TestAutoscalersThatCannotReportLiveAsUpstreams(t *testing.T) {
	fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		life := mutedLife(r)
		diff, err := life.Compare(t)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) differ:\n%s\nfrom %d replicas under %v, rounds %+v\n%s", diff, life.Replicas, life.Gates, life.Rounds, page(r, []runtime.Object{life.Autoscaler}))
		}
	})
}

// mutedLife is the life of an autoscaler whose status is refused in some rounds.
func mutedLife(t *rapid.T) oracle.Autoscaling {
	life := autoscalerLife(t)
	oracle.Uses("many-events")
	life.Rounds = life.Rounds[:min(len(life.Rounds), 25/(len(life.Autoscaler.Spec.Metrics)+3))]
	for i := range life.Rounds {
		if rapid.IntRange(0, 3).Draw(t, "cannot report") == 0 {
			life.Rounds[i].Unreported = "it may not say so"
		}
	}
	return life
}
