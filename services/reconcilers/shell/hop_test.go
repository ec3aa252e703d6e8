package shell

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// traveller is an office that notes the hops, and that hears of a change of web an
// hour after it was stored, and once more.
func traveller(t *testing.T) (o *office, hops *[]string) {
	hops = &[]string{}
	o = open(t, Settings{Passed: func(hop Hop, took time.Duration, trace events.Trace) {
		*hops = append(*hops, fmt.Sprintf("%s %v %s", hop, took, trace.Parent))
	}})
	for version, age := range []time.Duration{time.Hour, time.Minute} {
		m := delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", version+1, 1, 0, ""), uint64(version+1))
		m.Header[events.HeaderTraceParent], m.Time = []string{"cause"}, epoch.Add(-age)
		o.memory.Fold(kinds.ReplicaSets.Name, []events.Message{m})
	}
	o.sequence[kinds.ReplicaSets.Name] = 2
	o.desk.Folded(kinds.ReplicaSets.Name)
	o.run()
	return o, hops
}

func TestEveryHopIsMeasured(t *testing.T) {
	o, hops := traveller(t)
	if got := o.desk.Backlog()[kinds.ReplicaSets.Name]; got.Sequence != 1 || !got.Stored.Equal(epoch.Add(-time.Hour)) {
		t.Errorf("what waits longest is %+v", got)
	}
	o.pass(time.Second)
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.pass(2 * time.Second)
	o.answer(events.Act, 10, nil)
	o.pass(3 * time.Second)
	o.outcome(events.Act, 10, born("p", "5"))
	o.pass(4 * time.Second)
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	want := []string{"decided 1h0m1s cause", "stored 2s cause", "written 3s cause", "seen 4s cause"}
	if got := (*hops)[:min(4, len(*hops))]; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if b := o.desk.Backlog(); b[kinds.ReplicaSets.Name] != (Backlog{}) {
		t.Errorf("after its turn the change still waits: %+v", b)
	}
}

// What came of another replica's turn says nothing of this one's way.
func TestAHopOfAnotherReplicaIsNotMeasured(t *testing.T) {
	o, hops := traveller(t)
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.answer(events.Act, 10, nil)
	o.outcome(events.Act, 12, born("p", "5"))
	o.outcome(events.Act, 10, born("p", "5"))
	if want := []string{"decided 1h0m0s cause", "stored 0s cause"}; !cmp.Equal(*hops, want) {
		t.Error(cmp.Diff(want, *hops))
	}
}

// A turn that waits for what has been done to be seen says for what; one that waits
// for its outcome does not.
func TestWhatTheFenceWaitsFor(t *testing.T) {
	var held []kinds.Name
	o := begun(t, Settings{Held: func(kind kinds.Name) { held = append(held, kind) }})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 1, ""))
	if len(held) > 0 {
		t.Errorf("before the outcome it waits for %v", held)
	}
	o.recallTellNothing()
	o.outcome(events.Act, 10, born("p", "5"))
	held = nil
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 2, 0, ""))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 4, 3, 0, ""))
	if len(held) == 0 || held[0] != kinds.Pods.Name {
		t.Errorf("it waits for %v, and should for pods", held)
	}
}
