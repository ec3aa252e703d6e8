package engine

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A log has lost the message with which a pod was created. The engine must not decide on the pods that
// were created later alone: neither to act, nor to report a state that never was.
func TestNothingIsDecidedOnAnInconsistentView(t *testing.T) {
	o, kind := open(t, Settings{}), kinds.Pods.Kind
	log := counted(t,
		delta(kind, events.Is, aPod("a", "other", 1), 1),
		delta(kind, events.Is, aPod("b", "other", 2), 2),
		delta(kind, events.Is, aPod("a", "other", 3), 3),
	)
	fold := func(m events.Message) {
		o.memory.Fold(kind.Name, []events.Message{m})
		o.engine.Folded(kind.Name)
		o.run()
	}
	fold(log[1]) // without the first
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 7, ""))
	o.recalled(Past{}, Past{})
	o.none()
	fold(log[2])
	if turn := o.take(events.LaneWrite); len(turn.Commands) != 1 {
		t.Errorf("the turn is %+v", turn)
	}
	o.take(events.LaneStatus)
}

// A deletion that a relist found in a new epoch has a version of the old epoch. It must not
// count as the effect of a create of that name in the new epoch.
func TestABurialOfTheOldEpochIsNoEffectOfTheNew(t *testing.T) {
	o := begun(t, Settings{})
	old := aPod("p", "", 900)
	old.UID = "uid-of-the-old-one"
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, old, 0), 0)
	burial := delta(kinds.Pods.Kind, events.Gone, old, 0)
	burial.Header[events.HeaderSync] = []string{"true"}
	o.tell(kinds.Pods.Kind, burial, 1)
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "499", 0), 1)
	o.applied(10, "500", 1)
	o.none()
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "", 500), 0), 1)
	o.setsToo()
	o.take(events.LaneWrite)
}
