package engine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// tell folds a message of an epoch.
func (o *office) tell(kind kinds.Kind, m events.Message, epoch uint64) {
	o.t.Helper()
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		o.t.Fatal(err)
	}
	d, err := events.DecodeDelta(ref, m)
	if err != nil {
		o.t.Fatal(err)
	}
	d.Kind, d.Epoch = kind.Name, epoch
	o.sequence[kind.Name]++
	again := subject.Message(d)
	again.Sequence = o.sequence[kind.Name]
	o.memory.Fold(kind.Name, []events.Message{again})
	o.engine.Folded(kind.Name)
	o.run()
}

// setsToo reports the sets in epoch 1: unchanged, and with the mark that completes the list.
func (o *office) setsToo() {
	o.t.Helper()
	o.tell(kinds.ReplicaSets.Kind, delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""), 0), 1)
	o.none()
	o.tell(kinds.ReplicaSets.Kind, markAt(kinds.ReplicaSets.Kind, "1", 0), 1)
}

func (o *office) applied(turn uint64, version string, epoch uint64) {
	o.heard(events.Outcome{
		Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: turn, Results: []events.Result{created("p", version)},
		Epochs: events.Epochs{kinds.Pods.Name: epoch},
	})
}

// The API server was restored to an earlier time. A write after that has a lower version than
// the versions seen before, which must not count as its effect.
func TestAnEffectOfTheNewEpochIsNotSeenInTheOld(t *testing.T) {
	o := begun(t, Settings{})
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "", 900), 0), 0)
	o.applied(10, "500", 1)
	o.none()
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "", 499), 0), 1)
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "499", 0), 1)
	o.none()
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "", 500), 0), 1)
	o.none() // the sets are still those of the old one
	o.setsToo()
	if turn := o.take(events.LaneWrite); !cmp.Equal(turn.Epochs, events.Epochs{kinds.Pods.Name: 1, kinds.ReplicaSets.Name: 1}) {
		t.Errorf("the turn is of %v", turn.Epochs)
	}
}

// Effects of writes before the restore will never come: the fence does not wait for their
// versions, which may be far ahead.
func TestAnEffectOfTheOldEpochIsNotAwaitedInTheNew(t *testing.T) {
	o := begun(t, Settings{})
	o.applied(10, "900", 0)
	o.none()
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "", 500), 0), 1)
	o.none() // the new epoch is still being told
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "500", 0), 1)
	o.setsToo()
	o.take(events.LaneWrite)
}

// An outcome that names no epoch, and comes while a new epoch is being listed, counts as of the
// new epoch: the engine awaits its effects.
func TestAnEffectWithoutAnEpochIsAwaited(t *testing.T) {
	o := begun(t, Settings{})
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("other", "", 499), 0), 1)
	o.outcome(events.LaneWrite, 10, created("p", "500"))
	o.pass(time.Minute)
	if len(o.reaches) > 0 {
		t.Error("the engine asks where the log ends, as if the effect were of an earlier epoch")
		o.engine.Reached(kinds.Pods.Name, o.sequence[kinds.Pods.Name], nil)
	}
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "499", 0), 1)
	o.setsToo()
	o.pass(time.Minute)
	o.none()
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "", 500), 0), 1)
	o.take(events.LaneWrite)
}

// An effect that got its epoch when its kind opened ends with that epoch: after the next
// restore the engine does not wait for it.
func TestAnEffectIsDatedWhenItsKindIsThere(t *testing.T) {
	o := begun(t, Settings{})
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("other", "", 499), 0), 1)
	o.outcome(events.LaneWrite, 10, created("p", "500"))
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "499", 0), 1)
	o.setsToo()
	o.none()
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("other", "", 300), 0), 2)
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "300", 0), 2)
	o.none() // the sets are still those of the epoch before
	o.tell(kinds.ReplicaSets.Kind, delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""), 0), 2)
	o.tell(kinds.ReplicaSets.Kind, markAt(kinds.ReplicaSets.Kind, "1", 0), 2)
	o.pass(time.Minute)
	for _, kind := range o.reaches {
		o.engine.Reached(kind, o.sequence[kind], nil)
	}
	o.run()
	o.take(events.LaneWrite)
}

// While a new epoch is being listed, an object that has not been reported again may never have
// existed in it: the engine decides nothing.
func TestNothingIsDecidedBetweenEpochs(t *testing.T) {
	o := open(t, Settings{})
	o.engine.askedAll = true
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 9, 0, 0, ""))
	o.tell(kinds.ReplicaSets.Kind, delta(kinds.ReplicaSets.Kind, events.Is, aSet("other", 3, 0, 0, ""), 0), 1)
	s := o.wish(kinds.ReplicaSets.Kind, 2)
	stillWaits(t, "in the middle of a new epoch", s)
	o.tell(kinds.ReplicaSets.Kind, delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, ""), 0), 1)
	o.run()
	stillWaits(t, "still in the middle", s)
	o.tell(kinds.ReplicaSets.Kind, markAt(kinds.ReplicaSets.Kind, "3", 0), 1)
	served(t, "when all has been told", s)
}

// The storage was restored: the set is reported as in the backup, with one pod less, and the
// pods are still those of the history that has ended. An engine that decides now deletes a pod
// of the backup.
func TestNothingIsDecidedOnKindsOfTwoEpochs(t *testing.T) {
	apart := func(t *testing.T) *office {
		o := open(t, Settings{})
		for i, name := range []string{"a", "b", "c"} {
			o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod(name, "web", i+1), 0), 0)
		}
		o.tell(kinds.ReplicaSets.Kind, delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 9, 3, 3, ""), 0), 0)
		o.tell(kinds.ReplicaSets.Kind, delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 4, 2, 2, ""), 0), 1)
		o.tell(kinds.ReplicaSets.Kind, markAt(kinds.ReplicaSets.Kind, "5", 0), 1)
		o.memory.Follow(kinds.Nodes.Kind) // which it does not read, and which stays as it was
		o.engine.AskAll()
		o.recalled(Past{}, Past{})
		o.run()
		o.none()
		return o
	}
	t.Run("until all of them have been told", func(t *testing.T) {
		o := apart(t)
		for i, name := range []string{"a", "b"} {
			o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod(name, "web", i+1), 0), 1)
			o.none()
		}
		gone := delta(kinds.Pods.Kind, events.Gone, aPod("c", "web", 3), 0)
		gone.Header[events.HeaderSync] = []string{"true"}
		o.tell(kinds.Pods.Kind, gone, 1)
		o.none()
		o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "5", 0), 1)
		o.none() // there are two, and two are wanted
		if held := len(o.engine.inconsistent); held > 0 {
			t.Errorf("%d keys still wait", held)
		}
	})
	t.Run("even where the engine has not heard of it yet", func(t *testing.T) {
		o := apart(t)
		m := delta(kinds.Pods.Kind, events.Is, aPod("a", "web", 1), 4)
		m.Header[events.HeaderEpoch] = []string{"1"}
		o.memory.Fold(kinds.Pods.Name, []events.Message{m})
		o.engine.AskAll()
		o.run()
		o.none()
	})
	t.Run("unless one of them is not watched", func(t *testing.T) {
		o := apart(t)
		o.pass(MaxEpochSkew - 1)
		o.none()
		o.pass(1)
		if turn := o.take(events.LaneWrite); len(turn.Commands) != 1 || turn.Commands[0].Verb != events.VerbDelete {
			t.Errorf("the turn is %+v", turn)
		}
		if held := len(o.engine.inconsistent); held > 0 {
			t.Errorf("%d keys still wait", held)
		}
	})
}

// The wait for a kind that no watcher can list again begins with the epoch, and not with the
// first key that it holds back. After MaxEpochSkew nothing waits.
func TestTheWaitForAKindBeginsWithTheEpoch(t *testing.T) {
	o := open(t, Settings{})
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("a", "web", 1), 0), 0)
	o.tell(kinds.ReplicaSets.Kind, delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 4, 1, 1, ""), 0), 1)
	o.tell(kinds.ReplicaSets.Kind, markAt(kinds.ReplicaSets.Kind, "5", 0), 1)
	o.pass(MaxEpochSkew - time.Second) // it has what it wants
	o.tell(kinds.ReplicaSets.Kind, delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 2, 1, ""), 0), 1)
	o.engine.AskAll()
	o.run()
	o.recalled(Past{}, Past{})
	o.none()
	o.pass(time.Second)
	o.take(events.LaneWrite)
}
