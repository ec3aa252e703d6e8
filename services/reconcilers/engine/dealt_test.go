package engine

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A change is dealt with when each key that it asked for has had its turn, and that turn is
// stored.
func TestAChangeIsDealtWithWhenItsTurnIsStored(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	is := func(what string, sets, pods uint64) {
		t.Helper()
		want := map[kinds.Name]uint64{kinds.ReplicaSets.Name: sets, kinds.Pods.Name: pods}
		if got := o.engine.Dealt(); !cmp.Equal(got, want) {
			t.Errorf("%s: dealt with up to %v, want %v", what, got, want)
		}
	}
	o.change(kinds.Pods.Kind, events.Is, aPod("alone", "", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("db", 1, 0, 0, ""))
	is("nothing was wanted", 1, 1)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 0, ""))
	is("while the key is recalled", 1, 1)
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 2))
	is("while the turn is being stored", 1, 1)
	o.answer(events.LaneWrite, 10, nil)
	o.answer(o.take(events.LaneStatus).Lane, 11, nil)
	is("when its turns are stored", 2, 2)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 3, 1, ""))
	is("while the write of before has no outcome", 2, 2)
}

// The engine has dealt with all changes before the oldest one that waits.
func TestHowFarAKindHasBeenDealtWith(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Shut("pods")
	for i := range 3 {
		o.fold(kinds.ReplicaSets.Kind, events.Is, aSet(fmt.Sprint("web", i), i+1, 0, 0, ""))
	}
	if dealt := o.engine.Dealt(); dealt[kinds.ReplicaSets.Name] != 0 {
		t.Errorf("while all keys wait the log is dealt with up to %d, want 0", dealt[kinds.ReplicaSets.Name])
	}
	if oldest := o.engine.Backlog()[kinds.ReplicaSets.Name]; oldest.Sequence != 1 {
		t.Errorf("the oldest that waits is %d", oldest.Sequence)
	}
	o.engine.Open("pods")
	o.run()
	if dealt := o.engine.Dealt(); dealt[kinds.ReplicaSets.Name] != 3 || len(o.engine.Backlog()) != 0 {
		t.Errorf("when no key waits the log is dealt with up to %d, want 3", dealt[kinds.ReplicaSets.Name])
	}
}
