package record_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

// TestAFightIsTold: Why names the parties and the fields of a fight, and reports nothing that
// only looks like one.
func TestAFightIsTold(t *testing.T) {
	type change struct {
		by string
		to int32
	}
	two := func(a, b change, times int) (all []change) {
		for range times {
			all = append(all, a, b)
		}
		return all
	}
	for name, c := range map[string]struct {
		changes []change
		pause   time.Duration
		times   int // 0: no fight
	}{
		"back and forth":     {two(change{"pipeline", 3}, change{"scaler", 7}, 4), 0, 6},
		"by one":             {two(change{"pipeline", 3}, change{"pipeline", 7}, 4), 0, 0},
		"once, and mended":   {two(change{"pipeline", 3}, change{"scaler", 7}, 2), 0, 0},
		"ever on":            {[]change{{"a", 1}, {"b", 2}, {"a", 3}, {"b", 4}, {"a", 5}, {"b", 6}}, 0, 0},
		"once a day":         {two(change{"pipeline", 3}, change{"scaler", 7}, 4), 24 * time.Hour, 0},
		"it was so before":   {append(two(change{"pipeline", 3}, change{"scaler", 7}, 4), change{"pipeline", 9}), 0, 0},
		"it came to be so":   {append([]change{{"pipeline", 1}}, two(change{"pipeline", 3}, change{"scaler", 7}, 3)...), 0, 4},
		"the same once more": {two(change{"pipeline", 3}, change{"scaler", 3}, 4), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(w *world) {
				w.Is(web, "alice", nil)
				for _, change := range c.changes {
					w.Wait(c.pause)
					w.Is(web, change.by, replicas(change.to))
					w.Is(web, events.FieldManager, func(o metav1.Object) { o.SetAnnotations(map[string]string{"seen": o.GetResourceVersion()}) })
				}
				cause, err := w.record.Why(w.Context(), kinds.Deployments.Kind, web, record.Question{})
				w.Must(err)
				f := cause.Fight
				switch {
				case c.times == 0 && f != nil:
					w.Errorf("the history has the fight %+v, want none", f)
				case c.times == 0:
				case f == nil:
					w.Error("the history has no fight")
				case f.Times != c.times || !slices.Equal(f.Fields, []string{"spec.replicas"}) || f.Hands[0].Manager != "pipeline" || f.Hands[1].Manager != "scaler":
					w.Errorf("the fight is %+v, want %d times", f, c.times)
				}
			})
		})
	}
}
