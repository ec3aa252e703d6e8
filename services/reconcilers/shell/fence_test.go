package shell

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A birth carried out twice is unchanged the second time, and yet unseen.
func TestUnchangedIsAwaitedToo(t *testing.T) {
	o := begun(t, Settings{})
	found := born("p", "5")
	found.Status = events.Unchanged
	s := o.outcome(events.Act, 10, found)
	o.none()
	stillWaits(t, "unseen", s)
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.run()
	stillWaits(t, "seen, with a report to be stored", s)
	o.take(events.Tell)
	o.answer(events.Tell, 11, nil)
	served(t, "seen and reported", s)
}

// An object that was there before does not stand for its next version.
func TestEffectIsAVersionNotAName(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 3, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Tell)
	o.answer(events.Tell, 1, nil)
	o.outcome(events.Tell, 1, events.Result{
		Status: events.Applied, UID: "uid-web", Version: "8",
		Ref: events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"},
	})
	o.none()
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 0, 3, ""))
	o.run()
	o.none()
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 8, 0, 2, ""))
	o.run()
	o.take(events.Tell)
}

// What a report leaves undone waits on.
func TestADroppedPartWaitsOn(t *testing.T) {
	o := begun(t, Settings{Pace: -1})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 1, ""))
	o.take(events.Tell) // its creates are held back
	o.answer(events.Tell, 11, nil)
	stillWaits(t, "a change whose creates are held back", s)
}

// A report that is under way holds up what rests on the status, and nothing else.
func TestOnlyWhatRestsOnTheStatusWaitsForAReport(t *testing.T) {
	for how, waits := range map[string]bool{"": true, "overlooks": false} {
		o := open(t, Settings{Pace: -1})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 5, how))
		o.recalled(Past{}, Past{})
		o.take(events.Tell)
		o.answer(events.Tell, 1, nil)
		s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 5, how))
		if waits {
			o.none()
			o.outcome(events.Tell, 1, events.Result{Status: events.Unchanged})
		}
		o.take(events.Act)
		stillWaits(t, "the report of that is to be made", s)
	}
}

// A failure that is reported on the object is not tried again because of its own
// report; what somebody else changes may be the cure.
func TestForeignChangeEndsTheBackoffOnce(t *testing.T) {
	o := begun(t, Settings{Backoff: time.Second, Pace: -1})
	self := events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}
	o.outcome(events.Act, 10, events.Result{Status: events.Failed, Message: "quota"})
	o.none()

	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 5, "")) // somebody else's
	if turn := o.take(events.Act); turn.Attempt != 2 || turn.ResourceVersion != "2" {
		t.Fatalf("the early try is %+v", turn)
	}
	tell := o.take(events.Tell)
	o.answer(events.Act, 11, nil)
	o.answer(tell.Lane, 12, nil)
	o.outcome(events.Tell, 12, events.Result{Status: events.Applied, Ref: self, UID: "uid-web", Version: "3"})
	o.outcome(events.Act, 11, events.Result{Status: events.Failed, Message: "quota"})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 1, 0, "")) // its own report
	o.none()
	o.change(kinds.Pods.Kind, events.Is, aPod("other", "", 4))
	o.none()

	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 5, 1, 0, "")) // the cure
	if turn := o.take(events.Act); turn.Attempt != 3 || turn.ResourceVersion != "5" {
		t.Fatalf("the second early try is %+v", turn)
	}
	o.answer(events.Act, 13, nil)
	o.outcome(events.Act, 13, events.Result{Status: events.Failed, Message: "quota"})
	o.pass(3999 * time.Millisecond)
	o.none() // that version has been tried: 1, 2, 4 s
	o.pass(time.Millisecond)
	o.take(events.Act)
}

// An outcome may reach a desk before any of the kinds that it speaks of: what was
// applied is awaited all the same.
func TestOutcomeBeforeItsKind(t *testing.T) {
	o := &office{t: t, memory: NewMemory(), now: epoch, sequence: map[kinds.Name]uint64{}}
	o.memory.Register(toy().Describe())
	o.desk = NewDesk(toy(), o.memory, o, Settings{}, o.now)
	o.desk.Shut(kinds.ReplicaSets.Name)
	o.desk.Shut(kinds.Pods.Name)
	o.outcome(events.Act, 10, born("p", "5"))
	o.memory.Follow(kinds.ReplicaSets.Kind)
	o.memory.Follow(kinds.Pods.Kind)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.desk.Open(kinds.ReplicaSets.Name)
	o.desk.Open(kinds.Pods.Name)
	o.run()
	o.recalled(Past{
		Sequence: 10, Turn: &events.Turn{},
		Outcome: &events.Outcome{Key: web, Lane: events.Act, Turn: 10, Results: []events.Result{born("p", "5")}},
	}, Past{})
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.run()
	o.answer(o.take(events.Tell).Lane, 11, nil)
	o.none()
}

// When the turn stream has lost its end, sequences are given a second time. The
// outcome of the first turn of that number says nothing about the second.
func TestTurnStreamThatLostItsEnd(t *testing.T) {
	o := begun(t, Settings{})
	first := o.outcome(events.Act, 10, born("p", "5"))
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.run()
	tell := o.take(events.Tell)
	o.answer(tell.Lane, 11, nil)
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 5, 1, 1, ""))
	o.outcome(events.Tell, 11, events.Result{Status: events.Unchanged})
	o.none()
	served(t, "the first outcome", first)

	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 6, 2, 1, ""))
	if turn := o.take(events.Act); turn.expect != 10 {
		t.Fatalf("stored behind %d, want 10", turn.expect)
	}
	o.answer(events.Act, 0, bus.ErrOvertaken)
	lost := Past{Sequence: 3, Turn: &events.Turn{}, Outcome: &events.Outcome{
		Key: web, Lane: events.Act, Turn: 10, Results: []events.Result{born("p", "5")},
	}}
	o.recalled(lost, Past{Sequence: 11, Turn: &events.Turn{}, Outcome: &events.Outcome{Key: web, Lane: events.Tell, Turn: 11}})
	if turn := o.take(events.Act); turn.expect != 3 {
		t.Fatalf("stored behind %d, want 3", turn.expect)
	}
	o.answer(events.Act, 4, nil)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 3, 1, ""))
	o.none() // turn 4 has no outcome
	o.outcome(events.Act, 4, born("q", "8"))
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("q", "web", 8))
	o.run()
	o.take(events.Act)
}

// What stood in the way of a command is seen before the next try: on the view that
// it was decided on, the same would be decided again, and refused again.
func TestAConflictIsSeenBeforeTheNextTry(t *testing.T) {
	for _, status := range []events.Status{events.Conflict, events.Failed} {
		o := begun(t, Settings{Pace: -1})
		o.outcome(events.Act, 10, events.Result{
			Status: status, UID: "uid-web", Version: "7",
			Ref: events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"},
		})
		o.pass(time.Second)
		o.none()
		o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 2, 0, ""))
		o.run()
		if turn := o.take(events.Act); turn.ResourceVersion != "7" || len(turn.Commands) != 2 {
			t.Errorf("after a %s: %+v", status, turn.Turn)
		}
	}
}
