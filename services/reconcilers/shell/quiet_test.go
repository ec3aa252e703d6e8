package shell

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// choosy is a controller whose turn a pod's change is only when it is born, ends
// or changes hands, as it is for the garbage collector. asked counts its turns.
func choosy(asked *int) reconcile.Controller[bool] {
	return reconcile.Controller[bool]{
		Name: "toy", Owns: &kinds.Pods.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Pods.Kind, Keys: func(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
				if !was.None() && !now.None() && len(was.GetOwnerReferences()) == len(now.GetOwnerReferences()) {
					return nil
				}
				if now.None() {
					now = was
				}
				return []events.Key{{Namespace: now.GetNamespace(), Name: now.GetName()}}
			}},
			{Kind: kinds.ReplicaSets.Kind},
		},
		Observe: func(reconcile.Snapshot, events.Key) (bool, bool) { *asked++; return true, true },
		Decide:  func(bool, time.Time) reconcile.Decision { return reconcile.Nothing("as it should be") },
	}
}

// watched is an office of a choosy controller.
func watched(t *testing.T) (o *office, asked *int) {
	asked = new(int)
	o = &office{t: t, memory: NewMemory(), now: epoch, sequence: map[kinds.Name]uint64{}}
	for _, kind := range []kinds.Kind{kinds.Pods.Kind, kinds.ReplicaSets.Kind} {
		o.memory.Follow(kind)
	}
	o.memory.Register(choosy(asked).Describe())
	o.desk = NewDesk(choosy(asked), o.memory, o, Settings{}, o.now)
	return o, asked
}

func (o *office) ticket(kind kinds.Kind, obj object, sequence uint64) *slip {
	s := &slip{}
	o.desk.Ticket(events.Ref{Kind: kind.Name, Namespace: obj.GetNamespace(), Name: obj.GetName()}, sequence, events.Trace{}, s)
	return s
}

func TestAChangeThatConcernsNobodyIsNoTurn(t *testing.T) {
	o, asked := watched(t)
	want(t, "the birth", o.change(kinds.Pods.Kind, events.Is, aPod("p", "", 1)), "done")
	for version := 2; version < 5; version++ {
		want(t, "a change", o.change(kinds.Pods.Kind, events.Is, aPod("p", "", version)), "done")
	}
	if *asked != 1 {
		t.Errorf("asked %d times for the birth and three changes of no matter", *asked)
	}
	want(t, "the adoption", o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5)), "done")
	if *asked != 2 {
		t.Errorf("asked %d times after the adoption too", *asked)
	}
}

// The memory is often ahead of the tickets: one ticket pays for all changes that
// are folded, and the next ones know that.
func TestTicketsBehindTheFoldAreNoTurnsEither(t *testing.T) {
	o, asked := watched(t)
	for version := 1; version < 5; version++ {
		o.fold(kinds.Pods.Kind, events.Is, aPod("p", "", version))
	}
	for sequence := uint64(1); sequence < 5; sequence++ {
		s := o.ticket(kinds.Pods.Kind, aPod("p", "", 0), sequence)
		o.run()
		want(t, "a ticket", s, "done")
	}
	if *asked != 1 {
		t.Errorf("asked %d times", *asked)
	}
}

// The state stream has dropped the message of the first ticket when there is a
// second one. If this desk dies now, only the second one comes again.
func TestAQuietTicketStandsInForOneInHand(t *testing.T) {
	o, _ := watched(t)
	first := o.ticket(kinds.Pods.Kind, aPod("p", "", 1), o.fold(kinds.Pods.Kind, events.Is, aPod("p", "", 1)))
	second := o.ticket(kinds.Pods.Kind, aPod("p", "", 2), o.fold(kinds.Pods.Kind, events.Is, aPod("p", "", 2)))
	want(t, "the quiet ticket before the turn", second, "")
	o.run()
	want(t, "the first ticket", first, "done")
	want(t, "the quiet ticket", second, "done")
}

// What is delivered again has a turn: nobody knows whether it had one.
func TestWhatComesAgainIsATurn(t *testing.T) {
	o, asked := watched(t)
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "", 1))
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "", 2))
	again := o.ticket(kinds.Pods.Kind, aPod("p", "", 2), 2)
	o.run()
	want(t, "the ticket", again, "done")
	if *asked != 2 {
		t.Errorf("asked %d times", *asked)
	}
}

// Nothing is remembered of what is gone, nor of kinds that make nobody's turn:
// their tickets never come.
func TestQuietDebtsEnd(t *testing.T) {
	o, _ := watched(t)
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "", 1))
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "", 2))
	o.change(kinds.Pods.Kind, events.Gone, aPod("p", "", 3))
	if owed := o.memory.readers["toy"].owed; len(owed) > 0 {
		t.Errorf("owes %v", owed)
	}
}
