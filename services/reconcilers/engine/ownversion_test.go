package engine

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Another replica's turn had seen a newer version of the key's own object than this memory has.
// All of its effects have come back, and yet this engine must not act before it has seen that
// version: here the object no longer asks for a pod.
func TestNextTurnKnowsWhatTheLastOneKnew(t *testing.T) {
	o := begun(t, Settings{Pace: -1})
	told := events.Outcome{
		Key: web, Lane: events.LaneWrite, Turn: 10, UID: "uid-web", ResourceVersion: "7", Results: []events.Result{created("p", "5")},
	}
	o.engine.Outcome(1, told)
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 6, 2, 1, "")) // asks for another one
	o.run()
	for _, turn := range o.stored {
		if turn.Lane == events.LaneWrite {
			t.Fatalf("a turn that acts was decided on version 6, the one before it on 7: %+v", turn)
		}
	}
	o.stored = nil
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 3, 1, ""))
	o.run()
	if turn := o.take(events.LaneWrite); turn.ResourceVersion != "7" {
		t.Errorf("the next turn was decided on version %s", turn.ResourceVersion)
	}
}
