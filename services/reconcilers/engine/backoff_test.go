package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// lacking has a set that wants one pod more than it has, and may report once an hour. Its turn
// 10 has failed.
func lacking(t *testing.T, backoff time.Duration) *office {
	o := open(t, Settings{Backoff: backoff, Pace: time.Hour})
	o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 2, 1, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	o.refused(10)
	return o
}

func (o *office) refused(turn uint64) {
	o.outcome(events.LaneWrite, turn, events.Result{Status: events.Failed, Message: "quota"})
}

// A change of a pod may be the cure, or may need a turn more than the failure does.
func TestAChangeOfADependentEndsTheBackoff(t *testing.T) {
	o := lacking(t, time.Minute)
	o.pass(30 * time.Second)
	o.none()
	o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 2))
	if turn := o.take(events.LaneWrite); turn.Attempt != 2 {
		t.Errorf("after one failure the turn is attempt %d, want 2", turn.Attempt)
	}
	o.answer(events.LaneWrite, 11, nil)
	o.refused(11)
	o.pass(119 * time.Second)
	o.none() // that change has had its turn, and failures keep adding up
	o.pass(time.Second)
	o.take(events.LaneWrite)
}

// A change that comes while a turn is in flight has had no turn, and repeated changes get one
// turn a second.
func TestChangesOfDependentsAreNoHotLoop(t *testing.T) {
	o := lacking(t, time.Minute)
	for version := range 50 {
		o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", version+2))
	}
	o.pass(999 * time.Millisecond)
	o.none()
	o.pass(time.Millisecond)
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 11, nil)
	o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 60))
	o.refused(11)
	o.none()
	o.pass(time.Second)
	o.take(events.LaneWrite)
}

// A change ends the back-off once, also if it still waits for its paced report.
func TestAChangeEndsTheBackoffOnce(t *testing.T) {
	o := open(t, Settings{Backoff: time.Minute, Pace: time.Hour})
	o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 2, 5, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 1, nil)
	o.outcome(events.LaneStatus, 1, events.Result{Status: events.Unchanged})
	o.answer(events.LaneWrite, 10, nil)
	o.refused(10)
	o.pass(30 * time.Second)
	waits := o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 2))
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 11, nil)
	o.refused(11)
	stillWaits(t, "while the report is paced", waits)
	o.pass(119 * time.Second)
	o.none()
	o.pass(time.Second)
	o.take(events.LaneWrite)
}

// A turn's own writes are no reason to retry its failed commands.
func TestOwnWritesEndNoBackoff(t *testing.T) {
	o := open(t, Settings{Backoff: time.Minute, Pace: time.Hour})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 2, 1, ""))
	o.recalled(Past{}, Past{})
	creates := o.take(events.LaneWrite).Commands
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 1, nil)
	o.outcome(events.LaneStatus, 1, events.Result{Status: events.Unchanged})
	o.answer(events.LaneWrite, 10, nil)
	made := events.Result{Status: events.Applied, Ref: creates[0].Ref(), UID: "uid-one", Version: "5"}
	o.outcome(events.LaneWrite, 10, made, events.Result{Status: events.Failed, Ref: creates[1].Ref(), Message: "quota"})
	pod := aPod(creates[0].Name, "web", 5)
	pod.UID = "uid-one"
	o.change(kinds.Pods.Kind, events.Is, pod)
	o.pass(30 * time.Second)
	o.none()
	pod = pod.DeepCopy()
	pod.ResourceVersion = "6" // the scheduler gives it a node
	o.change(kinds.Pods.Kind, events.Is, pod)
	o.take(events.LaneWrite)
}
