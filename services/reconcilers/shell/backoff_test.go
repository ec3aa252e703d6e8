package shell

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// lacking has a set that lacks a pod beside the one that it has, and that may report
// once an hour; its turn 10 has failed.
func lacking(t *testing.T, backoff time.Duration) *office {
	o := open(t, Settings{Backoff: backoff, Pace: time.Hour})
	o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 2, 1, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.answer(events.Act, 10, nil)
	o.refused(10)
	return o
}

func (o *office) refused(turn uint64) {
	o.outcome(events.Act, turn, events.Result{Status: events.Failed, Message: "quota"})
}

// A pod that changes may be the cure, or may have to be dealt with before the failure is.
func TestAChangeOfADependentEndsTheBackoff(t *testing.T) {
	o := lacking(t, time.Minute)
	o.pass(30 * time.Second)
	o.none()
	o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 2))
	if turn := o.take(events.Act); turn.Attempt != 2 {
		t.Errorf("after one failure it is attempt %d", turn.Attempt)
	}
	o.answer(events.Act, 11, nil)
	o.refused(11)
	o.pass(119 * time.Second)
	o.none() // that change has had its turn, and the failures are counted on
	o.pass(time.Second)
	o.take(events.Act)
}

// What changes while a turn is on its way has had no turn, and what goes on changing has
// one in a second.
func TestChangesOfDependentsAreNoHotLoop(t *testing.T) {
	o := lacking(t, time.Minute)
	for version := range 50 {
		o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", version+2))
	}
	o.pass(999 * time.Millisecond)
	o.none()
	o.pass(time.Millisecond)
	o.take(events.Act)
	o.answer(events.Act, 11, nil)
	o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 60))
	o.refused(11)
	o.none()
	o.pass(time.Second)
	o.take(events.Act)
}

// A change that waits for its report, too, has had its try.
func TestAChangeEndsTheBackoffOnce(t *testing.T) {
	o := open(t, Settings{Backoff: time.Minute, Pace: time.Hour})
	o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 2, 5, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.take(events.Tell)
	o.answer(events.Tell, 1, nil)
	o.outcome(events.Tell, 1, events.Result{Status: events.Unchanged})
	o.answer(events.Act, 10, nil)
	o.refused(10)
	o.pass(30 * time.Second)
	waits := o.change(kinds.Pods.Kind, events.Is, aPod("old", "web", 2))
	o.take(events.Act)
	o.answer(events.Act, 11, nil)
	o.refused(11)
	stillWaits(t, "while the report is paced", waits)
	o.pass(119 * time.Second)
	o.none()
	o.pass(time.Second)
	o.take(events.Act)
}

// What a turn did itself is no reason to try again what it could not do.
func TestOwnWritesEndNoBackoff(t *testing.T) {
	o := open(t, Settings{Backoff: time.Minute, Pace: time.Hour})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 2, 1, ""))
	o.recalled(Past{}, Past{})
	creates := o.take(events.Act).Commands
	o.take(events.Tell)
	o.answer(events.Tell, 1, nil)
	o.outcome(events.Tell, 1, events.Result{Status: events.Unchanged})
	o.answer(events.Act, 10, nil)
	made := events.Result{Status: events.Applied, Ref: creates[0].Ref(), UID: "uid-one", Version: "5"}
	o.outcome(events.Act, 10, made, events.Result{Status: events.Failed, Ref: creates[1].Ref(), Message: "quota"})
	pod := aPod(creates[0].Name, "web", 5)
	pod.UID = "uid-one"
	o.change(kinds.Pods.Kind, events.Is, pod)
	o.pass(30 * time.Second)
	o.none()
	pod = pod.DeepCopy()
	pod.ResourceVersion = "6" // the scheduler gives it a node
	o.change(kinds.Pods.Kind, events.Is, pod)
	o.take(events.Act)
}
