package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A write may depend on the status of the key's own object. While a report is in flight, that
// status is stale.
func TestAnActWaitsForTheReport(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 3, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 1, nil)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 3, ""))
	o.none() // the report has no outcome
	o.outcome(events.LaneStatus, 1, events.Result{
		Status: events.Applied, UID: "uid-web", Version: "3",
		Ref: events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"},
	})
	o.none() // and then has not come back
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 1, 0, ""))
	o.run()
	o.take(events.LaneWrite)
}

// An outcome may reach an engine more than once, and counts once.
func TestAnOutcomeThatComesTwiceCountsOnce(t *testing.T) {
	o := begun(t, Settings{Backoff: time.Second})
	failed := events.Result{Status: events.Failed, Message: "quota"}
	o.engine.Outcome(1, events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{failed}})
	o.outcome(events.LaneWrite, 10, failed)
	o.pass(time.Second)
	if turn := o.take(events.LaneWrite); turn.Attempt != 2 {
		t.Errorf("attempt %d after one failure, want 2", turn.Attempt)
	}
}

// An error of a recall does not mean that the key has no past.
func TestARecallThatFailedIsRepeated(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.takeRecalls()
	o.engine.Recalled(web, events.LaneWrite, Past{}, errors.New("the bus is away"))
	o.engine.Recalled(web, events.LaneStatus, Past{}, nil)
	o.run()
	o.none()
	o.pass(time.Second)
	o.none()
	o.recalled(Past{Sequence: 7, Turn: &events.Turn{}}, Past{})
	o.none() // turn 7 has no outcome
}

// A turn needs the past of both lanes.
func TestNothingIsStoredBeforeBothLanesAreKnown(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 3, ""))
	o.takeRecalls()
	o.engine.Recalled(web, events.LaneWrite, Past{}, nil)
	o.run()
	o.none()
	o.engine.Recalled(web, events.LaneStatus, Past{Sequence: 4, Turn: &events.Turn{}}, nil)
	o.run()
	o.none() // report 4 has no outcome
}

// A deletion has no version of its own. However far its kind has been reported, while the
// object exists in the memory its deletion is still to come.
func TestAnEndIsAwaitedWhileTheObjectIsThere(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 1, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	o.outcome(events.LaneWrite, 10, events.Result{
		Status: events.Applied, Removed: true, UID: "uid-p", Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "p"},
	})
	o.memory.Fold(kinds.Pods.Name, []events.Message{markAt(kinds.Pods.Kind, "9", 2)})
	o.engine.Folded(kinds.Pods.Name)
	o.pass(10 * time.Second)
	if !cmp.Equal(o.reaches, []kinds.Name(nil)) {
		t.Errorf("asked where %v end, as if the end of the pod were lost", o.reaches)
	}
	o.none()
}

// A change that comes while a turn is being stored has a turn of its own after that.
func TestAChangeDuringARoundHasItsTurn(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "wakes"))
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 0, ""))
	if len(o.wakes) != 1 || len(o.recalls) != 0 {
		t.Fatalf("during the round there are wakes %+v and recalls %v", o.wakes, o.recalls)
	}
	o.engine.Scheduled(web, o.wakes[0].At, nil)
	o.run()
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	stillWaits(t, "before the turn is stored", s)
	o.answer(events.LaneWrite, 1, nil)
	served(t, "after", s)
}
