package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A report that cannot be corrected later is stored when every effect has come back, and no
// sooner.
func TestASureReportWaitsForTheAct(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "counts"))
	o.recalled(Past{}, Past{})
	create := o.take(events.LaneWrite).Commands[0]
	o.answer(events.LaneWrite, 1, nil)

	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 5, "counts"))
	o.none() // the create has no outcome
	o.outcome(events.LaneWrite, 1, events.Result{Status: events.Applied, Ref: create.Ref(), UID: "uid-" + "p", Version: "7"})
	o.none() // and then has not come back
	created := aPod(create.Name, "web", 7)
	created.UID = "uid-p"
	o.change(kinds.Pods.Kind, events.Is, created)
	o.take(events.LaneStatus)
}

// Such a report costs a look at everything, and stores nothing while the write is in flight:
// changes in that time do not ask for it again and again.
func TestASureReportIsNotAskedForWithoutEnd(t *testing.T) {
	settings, _, asked := figured()
	settings.Pace, settings.Progress = time.Millisecond, time.Second
	o := open(t, settings)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "counts"))
	o.recalled(Past{}, Past{})
	create := o.take(events.LaneWrite).Commands[0]
	o.answer(events.LaneWrite, 1, nil)
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
	o.outcome(events.LaneWrite, 1, events.Result{Status: events.Applied, Ref: create.Ref(), UID: created.UID, Version: "1000"})
	o.change(kinds.Pods.Kind, events.Is, created)
	o.take(events.LaneStatus)
}

// Events about a write are stored with it. While the write backs off after a failure nothing
// changes, and so they would be stored again and again.
func TestNothingIsToldOfAnActThatHasToWait(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "announces"))
	o.recalled(Past{}, Past{})
	create := o.take(events.LaneWrite).Commands[0]
	o.answer(events.LaneWrite, 1, nil)
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 2, nil)
	o.outcome(events.LaneWrite, 1, events.Result{Status: events.Failed, Ref: create.Ref()})
	o.outcome(events.LaneStatus, 2, events.Result{Status: events.Applied})
	o.none()
	o.pass(time.Minute)
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 3, nil)
	o.take(events.LaneStatus)
}

// A report that has to be sure waits for a consistent snapshot.
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
	o.take(events.LaneStatus)
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
