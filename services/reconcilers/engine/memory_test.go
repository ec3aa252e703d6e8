package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// The fence awaits an effect again whose kind was forgotten after it had come back.
func TestForgettingShutsTheFence(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.run()
	o.answer(o.take(events.LaneStatus).Lane, 11, nil)
	o.engine.Shut(kinds.Pods.Name)
	o.engine.Forgot(kinds.Pods.Name, o.memory.Forget(kinds.Pods.Name)["toy"])
	o.engine.Open(kinds.Pods.Name) // too early: the stream lags
	o.run()
	write := events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{created("p", "5")}}
	o.recalled(Past{Sequence: 10, Turn: &events.Turn{}, Outcome: &write}, Past{Sequence: 11, Turn: &events.Turn{}})
	o.none()
}

// An effect that had not come back when its kind was forgotten may never do so: its object may
// have been deleted before the kind was listed again, and then no change names the key that
// waits for it. The engine asks about that key.
func TestForgettingAsksForWhatIsAwaited(t *testing.T) {
	o := begun(t, Settings{})
	o.engine.askedAll = true // it was open before
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.run()
	o.engine.Shut(kinds.Pods.Name)
	o.engine.Forgot(kinds.Pods.Name, o.memory.Forget(kinds.Pods.Name)["toy"])
	o.engine.Open(kinds.Pods.Name)
	o.run()
	if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.LaneWrite, events.LaneStatus}) {
		t.Errorf("the key is not asked about: %v", got)
	}
}
