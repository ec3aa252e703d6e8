package engine

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// An engine does not wait for an effect on a kind that has no stream, once a discovery that
// began after the effect was known has ended.
func TestEffectNowhereIsGivenUpAfterARecheck(t *testing.T) {
	o := &office{t: t, memory: cache.New(), now: epoch, sequence: map[kinds.Name]uint64{}}
	o.memory.Register(spread().Describe())
	o.engine = New(spread(), o.memory, o, Settings{}, o.now)
	settled := func() bool {
		is := o.engine.entry(web).write.settled()
		if o.engine.AwaitsDiscovery() == is {
			t.Errorf("settled: %t, and the engine waits for a discovery: %t", is, !is)
		}
		return is
	}
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
