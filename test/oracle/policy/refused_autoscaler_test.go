package policy_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/policy"
)

// TestAutoscalersThatCannotReportLiveAsUpstreams: the API server refuses the status of an autoscaler in some
// rounds.
func TestAutoscalersThatCannotReportLiveAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		life := mutedLife(r)
		diff, err := life.Compare(t)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) differ:\n%s\nfrom %d replicas under %v, rounds %+v\n%s", diff, life.Replicas, life.Gates, life.Rounds, oracletest.Page(r, []runtime.Object{life.Autoscaler}))
		}
	})
}

// mutedLife is the life of an autoscaler whose status is refused in some rounds.
func mutedLife(t *rapid.T) policy.Autoscaling {
	life := autoscalerLife(t)
	exemption.Uses("many-events")
	life.Rounds = life.Rounds[:min(len(life.Rounds), 25/(len(life.Autoscaler.Spec.Metrics)+3))]
	for i := range life.Rounds {
		if rapid.IntRange(0, 3).Draw(t, "cannot report") == 0 {
			life.Rounds[i].Unreported = "it may not say so"
		}
	}
	return life
}

// TestUnreportedAutoscalersBite: an autoscaler that gives up at a refused status, or does not report it, has
// a different life.
func TestUnreportedAutoscalersBite(t *testing.T) {
	lives := rapid.Custom(mutedLife)
	for name, change := range map[string]func(reconcile.Any) reconcile.Any{"gives up": oracletest.GiveUp, "does not tell": oracletest.TellNoFailure} {
		t.Run(name, func(t *testing.T) {
			for seed := range oracletest.Enough {
				life := lives.Example(seed)
				life.Changed = change
				diff, err := life.Compare(t)
				if err != nil {
					t.Fatal(err)
				}
				if diff != "" {
					return
				}
			}
			t.Errorf("nothing was noticed in %d lives", oracletest.Enough)
		})
	}
}
