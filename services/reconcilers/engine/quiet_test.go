package engine

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// watched is an office of a choosy controller.
func watched(t *testing.T) (o *office, asked *int) {
	asked = new(int)
	o = &office{t: t, memory: cache.New(), now: epoch, sequence: map[kinds.Name]uint64{}}
	for _, kind := range []kinds.Kind{kinds.Pods.Kind, kinds.ReplicaSets.Kind} {
		o.memory.Follow(kind)
	}
	o.memory.Register(choosy(asked).Describe())
	o.engine = New(choosy(asked), o.memory, o, Settings{}, o.now)
	return o, asked
}

func TestAChangeThatConcernsNoKeyIsNoTurn(t *testing.T) {
	o, asked := watched(t)
	served(t, "the create", o.change(kinds.Pods.Kind, events.Is, aPod("p", "", 1)))
	for version := 2; version < 5; version++ {
		served(t, "a change", o.change(kinds.Pods.Kind, events.Is, aPod("p", "", version)))
	}
	if *asked != 1 {
		t.Errorf("asked %d times for the create and three changes of no matter", *asked)
	}
	served(t, "the adoption", o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5)))
	if *asked != 2 {
		t.Errorf("asked %d times after the adoption too", *asked)
	}
}

// The memory is often ahead of the engine: all changes that have been folded make one turn.
func TestChangesAheadOfTheEngineAreOneTurn(t *testing.T) {
	o, asked := watched(t)
	for version := 1; version < 5; version++ {
		o.fold(kinds.Pods.Kind, events.Is, aPod("p", "", version))
	}
	if o.run(); *asked != 1 {
		t.Errorf("asked %d times", *asked)
	}
}

// A reader keeps nothing of kinds whose changes ask for no turn.
func TestNothingIsKeptOfWhatAsksForNoTurn(t *testing.T) {
	o, _ := watched(t)
	o.memory.Fold(kinds.ReplicaSets.Name, []events.Message{delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""), 1)})
	o.memory.View("toy", nil, func(s cache.Snapshot) {
		if n := s.TakeChanges(); len(n.Keys)+len(n.Causes)+len(n.Unmapped) > 0 {
			t.Errorf("a controller that watches keeps the changes %+v, want none", n)
		}
	})
}
