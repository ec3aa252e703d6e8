package shell

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A report that cannot be put right later is made when everything that was done
// has come back, and no sooner.
func TestASureReportWaitsForTheAct(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "counts"))
	o.recalled(Past{}, Past{})
	create := o.take(events.Act).Commands[0]
	o.answer(events.Act, 1, nil)

	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 5, "counts"))
	o.none() // the create has no outcome
	o.outcome(events.Act, 1, events.Result{Status: events.Applied, Ref: create.Ref(), UID: "uid-" + "p", Version: "7"})
	o.none() // and then has not come back
	created := aPod(create.Name, "web", 7)
	created.UID = "uid-p"
	o.change(kinds.Pods.Kind, events.Is, created)
	o.take(events.Tell)
}

// It costs a look at everything, and while the act is under way comes to nothing: what
// changes meanwhile does not have it asked for again and again.
func TestASureReportIsNotAskedForWithoutEnd(t *testing.T) {
	settings, _, asked := figured()
	settings.Pace, settings.Progress = time.Millisecond, time.Second
	o := open(t, settings)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "counts"))
	o.recalled(Past{}, Past{})
	create := o.take(events.Act).Commands[0]
	o.answer(events.Act, 1, nil)
	for second := range 3 {
		o.pass(time.Second)
		before := len(*asked)
		for n := range 100 {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 100*second+n+2, 1, 5, "counts"))
		}
		if got := len(*asked) - before; got > 1 {
			t.Errorf("in second %d it was asked %d times", second, got)
		}
	}
	o.none()
	created := aPod(create.Name, "web", 1000)
	o.outcome(events.Act, 1, events.Result{Status: events.Applied, Ref: create.Ref(), UID: created.UID, Version: "1000"})
	o.change(kinds.Pods.Kind, events.Is, created)
	o.take(events.Tell)
}

// What users are told of an act is told with it. While the act rests after a failure nothing
// changes, and so it would be told again and again.
func TestNothingIsToldOfAnActThatHasToWait(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "announces"))
	o.recalled(Past{}, Past{})
	create := o.take(events.Act).Commands[0]
	o.answer(events.Act, 1, nil)
	o.take(events.Tell)
	o.answer(events.Tell, 2, nil)
	o.outcome(events.Act, 1, events.Result{Status: events.Failed, Ref: create.Ref()})
	o.outcome(events.Tell, 2, events.Result{Status: events.Applied})
	o.none()
	o.pass(time.Minute)
	o.take(events.Act)
	o.answer(events.Act, 3, nil)
	o.take(events.Tell)
}

// Nor on a view that is of no one moment.
func TestASureReportWaitsForAConsistentView(t *testing.T) {
	o, kind := open(t, Settings{Pace: -1}), kinds.Pods.Kind
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
	fold(log[1])
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 5, "counts"))
	o.recalled(Past{}, Past{})
	o.none()
	fold(log[2])
	o.take(events.Tell)
}

// A key may name an object of another kind than the one that the controller owns.
func TestAKeyOfAnotherKindNamesItsOwnObject(t *testing.T) {
	d := open(t, Settings{}).engine
	for _, c := range []struct {
		key  events.Key
		want kinds.Name
	}{
		{events.Key{Namespace: "default", Name: "web"}, kinds.ReplicaSets.Name},
		{events.Key{Kind: kinds.Pods.Name, Namespace: "default", Name: "web"}, kinds.Pods.Name},
	} {
		if got := d.own(c.key); got.Kind != c.want || got.Name != c.key.Name {
			t.Errorf("the object of %v is %v", c.key, got)
		}
	}
}
