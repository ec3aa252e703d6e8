package reconcile_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// TestAnOutcomeIsNotOlderThanItsTurn: if the writer's clock is behind, an answer would be too
// old at once, and the controller would ask again and again.
func TestAnOutcomeIsNotOlderThanItsTurn(t *testing.T) {
	key := events.Key{Namespace: reconciletest.Namespace, Name: "web"}
	own := &metav1.ObjectMeta{UID: "u", ResourceVersion: "1"}
	decided := reconciletest.Now
	for _, c := range []struct{ at, decided, want time.Time }{
		{decided.Add(time.Minute), decided, decided.Add(time.Minute)}, // the writer had much to do
		{decided.Add(-time.Hour), decided, decided},
		{decided, time.Time{}, decided}, // of a writer that did not say so yet
	} {
		world := reconciletest.NewWorld()
		world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: "u", ResourceVersion: "1", At: c.at, Decided: c.decided})
		for how, look := range map[string]func(reconcile.Snapshot, events.Key, metav1.Object) (events.Outcome, bool){
			"answers": reconcile.Answers,
			"last": func(s reconcile.Snapshot, k events.Key, own metav1.Object) (events.Outcome, bool) {
				return reconcile.LastOf(s, k, events.LaneWrite, own)
			},
		} {
			if o, ok := look(world, key, own); !ok || !o.At.Equal(c.want) {
				t.Errorf("%s: decided at %v, and done at %v: it is of %v (%t)", how, c.decided, c.at, o.At, ok)
			}
		}
	}
}
