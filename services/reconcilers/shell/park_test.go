package shell

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

func TestPoisonIsParkedAndDelaysNobody(t *testing.T) {
	for annotation, reason := range map[string]string{"panics": "a set that breaks", "lies": "not among what"} {
		o := open(t, Settings{})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, annotation))
		served(t, "another key", o.change(kinds.ReplicaSets.Kind, events.Is, aSet("good", 2, 0, 0, "")))
		o.pass(time.Second)
		o.pass(time.Second)
		o.pass(time.Second)
		o.pass(time.Second)
		if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.Park}) {
			t.Fatalf("recalls are %v", got)
		}
		o.desk.Recalled(web, events.Park, Past{Sequence: 3}, nil)
		park := o.take(events.Park)
		if park.expect != 3 || !strings.Contains(park.Because, reason) {
			t.Errorf("the record is %+v", park)
		}
		if p := o.desk.Parked(); len(p) > 0 {
			t.Errorf("before the record, parked are %+v", p)
		}
		o.answer(events.Park, 4, nil)
		if p := o.desk.Parked(); len(p) != 1 || p[0].Key != web {
			t.Errorf("parked are %+v", p)
		}
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 9, 0, 0, ""))
		if p := o.desk.Parked(); len(p) != 0 {
			t.Errorf("still parked after a change: %+v", p)
		}
	}
}

func TestDamagedBodyIsParked(t *testing.T) {
	o := open(t, Settings{})
	m := delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""), 1)
	m.Data = []byte("k8s\x00garbage")
	o.memory.Fold(kinds.ReplicaSets.Name, []events.Message{m})
	o.sequence[kinds.ReplicaSets.Name] = 1
	ref := events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}
	o.desk.Folded(kinds.ReplicaSets.Name)
	o.run()
	o.desk.Recalled(events.Key(ref), events.Park, Past{}, nil)
	o.take(events.Park)
	o.desk.Stored(events.Key(ref), events.Park, 1, nil)
	if p := o.desk.Parked(); len(p) != 1 || !strings.HasPrefix(p[0].Reason, "decode") {
		t.Errorf("parked are %+v", p)
	}
	served(t, "a good version", o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, "")))
	if p := o.desk.Parked(); len(p) != 0 {
		t.Errorf("still parked: %+v", p)
	}
}

func TestBrokenMappingIsParked(t *testing.T) {
	o := open(t, Settings{})
	pod := aPod("p", "web", 1)
	pod.Annotations = map[string]string{"toy": "maps-badly"}
	o.change(kinds.Pods.Kind, events.Is, pod)
	key := events.Key{Kind: kinds.Pods.Name, Namespace: "default", Name: "p"}
	o.desk.Recalled(key, events.Park, Past{}, nil)
	o.take(events.Park)
	o.desk.Stored(key, events.Park, 1, nil)
	if p := o.desk.Parked(); len(p) != 1 || !strings.Contains(p[0].Reason, "a mapping that breaks") {
		t.Errorf("parked are %+v", p)
	}
	if !o.desk.Unpark(key) {
		t.Error("it cannot be tried again")
	}
	if got := o.takeRecalls(); !cmp.Equal(got[len(got)-1], events.Park) {
		t.Errorf("what still breaks is not set aside again: recalls are %v", got)
	}
	o.desk.Recalled(key, events.Park, Past{Sequence: 1}, nil)
	o.take(events.Park)
	o.desk.Stored(key, events.Park, 2, nil)
	pod = aPod("p", "web", 2)
	pod.Annotations = map[string]string{"toy": "maps-badly"}
	o.fold(kinds.Pods.Kind, events.Gone, pod)
}

func TestTooLargeTurnIsParked(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	for range 5 {
		o.recalled(Past{}, Past{})
		o.take(events.Act)
		o.answer(events.Act, 0, bus.ErrTooLarge)
		o.pass(time.Second)
	}
	o.desk.Recalled(web, events.Park, Past{}, nil)
	o.take(events.Park)
	o.answer(events.Park, 1, nil)
	if p := o.desk.Parked(); len(p) != 1 || !strings.HasPrefix(p[0].Reason, "store a turn: ") {
		t.Errorf("parked are %+v", p)
	}
	o.none()
}

// One object of ten thousand panics its controller always. All others have their
// turns in one go, each as early as if it were not there; it is set aside after a
// few attempts, visibly, and from then on costs one attempt whenever it changes.
func TestOnePoisonAmongTenThousand(t *testing.T) {
	const healthy, poison = 10_000, 5_000
	o := open(t, Settings{})
	round := func(version int) (steps int) {
		var batch []events.Message
		for i := range healthy + 1 {
			name, annotation := fmt.Sprint("set-", i), ""
			if i == poison {
				name, annotation = "web", "panics"
			}
			o.sequence[kinds.ReplicaSets.Name]++
			set := aSet(name, version*100_000+i, 0, 0, annotation)
			batch = append(batch, delta(kinds.ReplicaSets.Kind, events.Is, set, o.sequence[kinds.ReplicaSets.Name]))
		}
		o.memory.Fold(kinds.ReplicaSets.Name, batch)
		o.desk.Folded(kinds.ReplicaSets.Name)
		for o.desk.Step() {
			steps++
		}
		return steps
	}
	served := func() {
		t.Helper()
		if b, waits := o.desk.Backlog()[kinds.ReplicaSets.Name]; waits && b.Sequence%(healthy+1) != poison+1 {
			t.Fatalf("change %d has had no turn", b.Sequence)
		}
	}
	steps := round(1)
	if served(); steps != healthy+1 {
		t.Errorf("%d looks for %d keys", steps, healthy+1)
	}
	for range 4 {
		o.pass(time.Second)
	}
	if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.Park}) {
		t.Fatalf("recalls are %v", got)
	}
	o.desk.Recalled(web, events.Park, Past{}, nil)
	if park := o.take(events.Park); !strings.Contains(park.Because, "a set that breaks") {
		t.Errorf("the record is %+v", park)
	}
	o.answer(events.Park, 1, nil)
	broken := o.desk.Tally().Broken
	if p := o.desk.Parked(); len(p) != 1 || p[0].Key != web || broken != 5 {
		t.Errorf("parked are %+v after %d attempts", p, broken)
	}
	steps = round(2)
	if served(); steps != healthy+1 || o.desk.Tally().Broken != broken+1 {
		t.Errorf("%d looks for %d keys, %d attempts at the poisoned one", steps, healthy+1, o.desk.Tally().Broken-broken)
	}
}
