package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/shard"
)

// The outcomes of turns that were settled long ago are lost. The engine recalls even a key that
// wants nothing, and stores its turn again, so that the record has the outcome.
func TestLostOutcomesAreFoundAgain(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 6, 1, 1, ""))
	o.run()
	o.none()
	o.engine.Lost(subject.OutcomeStream("toy"))
	o.run()
	o.recalled(underWay(10), Past{})
	o.none()
	o.attend(12 * time.Second)
	o.recalled(underWay(10), Past{})
	if again := o.take(events.LaneWrite); again.Repeats != 10 {
		t.Errorf("stored %+v", again)
	}
}

// A turn whose change was dealt with long ago is lost.
func TestALostTurnIsMadeAgain(t *testing.T) {
	o := begun(t, Settings{})
	o.engine.Lost(subject.TurnStream("toy"))
	o.run()
	o.recalled(Past{}, Past{})
	if turn := o.take(events.LaneWrite); turn.expect != 0 || turn.Repeats != 0 {
		t.Errorf("stored %+v", turn)
	}
}

func TestLostWakesAreSetAgain(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "wakes"))
	o.engine.Scheduled(web, o.wakes[0].At, nil)
	o.engine.Lost(subject.WakeStream)
	o.run()
	if len(o.wakes) != 2 || !o.wakes[1].At.Equal(o.wakes[0].At) {
		t.Errorf("the wakes are %+v", o.wakes)
	}
}

// The result of a recall that began before a loss may be lost by now, and its two halves may be
// from before and after. The key is recalled again before the engine decides, and its turn is
// stored behind the last one that the stream has then.
func TestARecallFromBeforeTheLossDoesNotCount(t *testing.T) {
	before := Past{Sequence: 9, Turn: &events.Turn{}, Outcome: &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 9}}
	after := Past{Sequence: 3, Turn: &events.Turn{}, Outcome: &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 3}}
	lost := map[string]func(o *office){
		"a stream of turns":    func(o *office) { o.engine.Lost(subject.TurnStream("toy")) },
		"a stream of outcomes": func(o *office) { o.engine.Lost(subject.OutcomeStream("toy")) },
		"perhaps either":       func(o *office) { o.engine.Invalidate() },
	}
	for name, lose := range lost {
		for answered := range 3 { // how many answers of the recall came before
			o := open(t, Settings{})
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
			if got := o.takeRecalls(); len(got) != 2 {
				t.Fatalf("recalls are %v", got)
			}
			answers := []func(){
				func() { o.engine.Recalled(web, events.LaneWrite, before, nil) },
				func() { o.engine.Recalled(web, events.LaneStatus, Past{}, nil) },
			}
			for _, answer := range answers[:answered] {
				answer()
			}
			lose(o)
			for _, answer := range answers[answered:] {
				answer()
			}
			o.run()
			o.none()
			o.pass(time.Second)
			o.recalled(after, Past{})
			if turn := o.take(events.LaneWrite); turn.expect != 3 {
				t.Errorf("%s is lost after %d answers: stored behind %d, want 3", name, answered, turn.expect)
			}
		}
	}
}

// A loss concerns only the keys that this replica owns.
func TestALossConcernsOwnKeys(t *testing.T) {
	o := open(t, Settings{})
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("db", 2, 0, 0, ""))
	o.run()
	o.engine.Own(shard.All &^ shard.Set(0).With(shard.Of(web)))
	o.engine.Lost(subject.TurnStream("toy"))
	for key, e := range o.engine.entries {
		if key == web || !e.mustRecall {
			t.Errorf("%v is to be recalled: %t", key, e.mustRecall)
		}
	}
	if len(o.engine.entries) != 1 {
		t.Errorf("%d keys are known", len(o.engine.entries))
	}
}

// The refusal of a forged turn behind a turn in flight does not open the fence: the turn's own
// outcome does.
func TestARefusedForgeryOpensNoFence(t *testing.T) {
	o := begun(t, Settings{})
	forged := events.Result{Status: events.Refused, Reason: events.BadSignature}
	o.engine.Outcome(1, events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: 11, Results: []events.Result{forged}})
	e := o.engine.entries[web]
	if e.write.settled() || e.write.outcome >= 10 {
		t.Error("the fence opened for the refusal of what is no turn of ours")
	}
	if e.known {
		t.Error("the key is not recalled, although something lies behind its turn")
	}
	o.engine.Outcome(1, events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{forged}})
	if e.write.outcome != 10 || e.write.failures != 1 {
		t.Errorf("the refusal of the turn itself is outcome %d with %d failures, want 10 with 1", e.write.outcome, e.write.failures)
	}
}

// A key whose outcome was dropped has its next turn at once, behind the last one.
func TestAKeyWhoseOutcomeWasDroppedGoesOn(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	past := underWay(10)
	past.Dropped = true
	o.recalled(past, Past{})
	if turn := o.take(events.LaneWrite); turn.expect != 10 || turn.Repeats != 0 {
		t.Errorf("the next turn is %+v", turn)
	}
}
