package shell

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// spread is a controller for which a change of a set asks for a turn of each pod that the set
// controls, as for the garbage collector.
func spread() reconcile.Controller[bool] {
	return reconcile.Controller[bool]{
		Name: "toy", Inputs: []reconcile.Input{{Every: true, Keys: func(s reconcile.Snapshot, was, _ reconcile.Object) (keys []events.Key) {
			if was.None() {
				return nil
			}
			for _, pod := range s.ControlledBy(kinds.Pods.Name, was.GetUID()) {
				keys = append(keys, events.Key{Kind: kinds.Pods.Name, Namespace: pod.GetNamespace(), Name: pod.GetName()})
			}
			return keys
		}}},
	}
}

// An object may concern as many keys as it has dependents. Each is asked for once, however
// often the object changes, and names the newest changes.
func TestEveryKeyOfAChangeIsKept(t *testing.T) {
	m := NewMemory()
	m.Register(spread().Describe())
	m.Follow(kinds.ReplicaSets.Kind)
	m.Follow(kinds.Pods.Kind)
	touch := func(version int) {
		m.Fold(kinds.ReplicaSets.Name, []events.Message{
			delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", version, 1, 0, ""), uint64(version)),
		})
	}
	const many = 1000
	var batch []events.Message
	for i := range many {
		batch = append(batch, delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("web-", i), "web", i+1), uint64(i+1)))
	}
	m.Fold(kinds.Pods.Name, batch)
	last := events.MaxTriggers + 2
	for version := 1; version <= last; version++ {
		touch(version)
	}
	all := m.readers["toy"].takeChanges()
	if len(all.keys) != many {
		t.Fatalf("%d keys are asked for, want %d", len(all.keys), many)
	}
	for _, k := range all.keys {
		why := all.causes[k]
		if n := len(why.triggers); n != events.MaxTriggers || why.triggers[n-1].Sequence != uint64(last) {
			t.Fatalf("%v is asked for by %+v", k, why.triggers)
		}
		if want := []Backlog{{Kind: kinds.ReplicaSets.Name, Sequence: 2}}; !slices.Equal(why.oldest, want) {
			t.Fatalf("%v waits since %+v, want %+v", k, why.oldest, want)
		}
	}
	if again := m.readers["toy"].takeChanges(); len(again.keys) > 0 {
		t.Errorf("what was taken is asked for again: %v", again.keys)
	}
}

// An engine does not wait for an effect on a kind that has no stream, once a discovery that
// began after the effect was known has ended.
func TestEffectNowhereIsGivenUpAfterARecheck(t *testing.T) {
	o := &office{t: t, memory: NewMemory(), now: epoch, sequence: map[kinds.Name]uint64{}}
	o.memory.Register(spread().Describe())
	o.engine = NewEngine(spread(), o.memory, o, Settings{}, o.now)
	settled := func() bool { return o.engine.entry(web).write.settled() }
	result := events.Result{
		Status: events.Applied, UID: types.UID("x"), Version: "5",
		Ref: events.Ref{Kind: "widgets.example.com", Namespace: "default", Name: "w"},
	}
	o.engine.entry(web)
	o.engine.Discover() // began before the outcome was known: may have missed the kind
	o.outcome(events.LaneWrite, 10, result)
	o.engine.Discovered()
	if settled() {
		t.Error("given up after a discovery that began before")
	}
	o.engine.Discover()
	if settled() {
		t.Error("given up before the discovery has ended")
	}
	o.engine.Discovered()
	if !settled() {
		t.Error("not given up")
	}

	result.Version = "6"
	o.outcome(events.LaneWrite, 11, result)
	o.engine.Discover()
	o.engine.Shut(result.Ref.Kind) // it is found
	o.engine.Discovered()
	if settled() {
		t.Error("given up although the kind has been found")
	}
}
