package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/shard"
)

// An engine does not decide about a key of another replica, and asks about it as soon as it
// owns the key, whatever asked for it before.
func TestOnlyOwnKeysAreDecidedAbout(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Own(shard.All &^ shard.Set(0).With(shard.Of(web)))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.engine.Ask(web)
	o.engine.Wake(1, events.Wake{Controller: "toy", Key: web})
	o.outcome(events.LaneWrite, 5, events.Result{Status: events.Failed})
	if o.run(); len(o.recalls) > 0 || len(o.engine.entries) > 0 {
		t.Fatalf("a key of another replica's is looked at: recalls %v, %d keys known", o.recalls, len(o.engine.entries))
	}
	o.engine.Own(shard.All)
	o.run()
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
}

// A turn in flight when its key becomes another replica's is finished, and the engine decides
// nothing more about the key. When the key comes back it is recalled.
func TestAKeyThatIsGivenAwayIsForgotten(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.engine.Own(0)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	if o.answer(events.LaneWrite, 10, nil); len(o.engine.entries) > 0 {
		t.Errorf("%d keys are known", len(o.engine.entries))
	}
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.none()
	o.engine.Own(shard.All)
	o.run()
	o.recalled(underWay(10), Past{})
	o.none() // turn 10 has no outcome that this engine has heard
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.none()
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.take(events.LaneWrite)
}

// A key that is being recalled is dropped, too.
func TestAKeyThatIsRecalledIsForgottenToo(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.engine.Own(0)
	if o.recalled(underWay(10), Past{}); len(o.engine.entries) > 0 {
		t.Errorf("%d keys are known", len(o.engine.entries))
	}
}

// The replica that owns a key now retries the failed turn of another replica; a success needs
// nothing.
func TestAFailureOfAnUnknownKeyIsTriedAgain(t *testing.T) {
	o := open(t, Settings{})
	if o.outcome(events.LaneWrite, 5, events.Result{Status: events.Applied}); len(o.engine.entries) > 0 {
		t.Error("a success of a key that nothing asks for is remembered")
	}
	before := o.engine.Tally().Nothing
	if o.outcome(events.LaneWrite, 6, events.Result{Status: events.Failed}); o.engine.Tally().Nothing != before+1 {
		t.Error("a failure asks for no turn")
	}
}

// An engine that gains shards asks about their keys and no others, and parks their objects that
// cannot be decoded. One that is not open asks when it opens.
func TestWhatComesIsAskedAbout(t *testing.T) {
	o := open(t, Settings{})
	first := events.Key{Namespace: "default", Name: "w135"} // of the first shard
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("w135", 2, 1, 0, ""))
	torn := events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "torn"}
	m := delta(kinds.ReplicaSets.Kind, events.Is, aSet("torn", 3, 0, 0, ""), 3)
	m.Data = []byte("k8s\x00garbage")
	o.engine.Own(0)
	o.memory.Fold(kinds.ReplicaSets.Name, []events.Message{m})
	o.engine.Folded(kinds.ReplicaSets.Name)
	o.run()
	if len(o.engine.entries) != 0 {
		t.Errorf("%d keys of other replicas are known", len(o.engine.entries))
	}
	o.engine.Own(shard.Set(1))
	o.run()
	if recalls := o.takeRecalls(); o.engine.entries[first] == nil || len(o.engine.entries) != 1 || len(recalls) != 2 {
		t.Errorf("with the first shard it recalls %v and knows %d keys, want both lanes of %v alone", recalls, len(o.engine.entries), first)
	}
	o.engine.Own(shard.Set(1).With(shard.Of(web)))
	o.run()
	if recalls := o.takeRecalls(); o.engine.entries[web] == nil || len(o.engine.entries) != 2 || len(recalls) != 2 {
		t.Errorf("with another shard it recalls %v and knows %d keys, want both lanes of %v besides", recalls, len(o.engine.entries), web)
	}
	o.engine.Own(shard.All)
	if o.run(); o.engine.entries[events.Key(torn)] == nil || len(o.engine.entries) != 3 || len(o.recalls) != 1 || o.recalls[0] != events.LanePark {
		t.Errorf("with all shards it recalls %v and knows %d keys, want the park lane of %v besides", o.recalls, len(o.engine.entries), torn)
	}

	o = open(t, Settings{})
	o.engine.Shut(kinds.Pods.Name)
	o.engine.Own(0)
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	if o.engine.Own(shard.All); len(o.engine.entries) != 0 {
		t.Error("the engine asks about a key before it is open")
	}
	o.engine.Open(kinds.Pods.Name)
	if o.run(); o.engine.Tally().Nothing != 1 {
		t.Errorf("when it is open the engine has made %d turns, want 1", o.engine.Tally().Nothing)
	}
}

// A key that goes to another replica wants nothing here any more, though it is still queued.
func TestAKeyInTheQueueIsGivenAway(t *testing.T) {
	o := open(t, Settings{})
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.engine.Ask(web)
	e := o.engine.entries[web]
	o.engine.Own(0)
	if o.run(); len(o.recalls) != 0 || e.dirty || e.first || len(e.Triggers) != 0 {
		t.Errorf("a key of another replica recalls %v; it wants a turn: %t, because of %v; want nothing", o.recalls, e.dirty, e.Triggers)
	}
}

// A key that goes away and comes back while its turn is being stored is recalled before the
// next turn: another replica may have made one.
func TestAKeyThatComesBackIsRecalled(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.engine.Own(0)
	o.engine.Own(shard.All)
	o.answer(events.LaneWrite, 10, nil)
	o.engine.Outcome(1, events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{{Status: events.Failed}}})
	o.pass(time.Second)
	o.none()
	o.recalled(underWay(11), Past{})
}

// A key of another replica is dropped when nothing of it is in flight here.
func TestWhatKeepsAKeyThatWasGivenAway(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*office, *entry)
		kept   bool
	}{
		"nothing":           {func(*office, *entry) {}, false},
		"a round":           {func(_ *office, e *entry) { e.round = &round{} }, true},
		"a recall":          {func(_ *office, e *entry) { e.recalling = 1 }, true},
		"a record":          {func(_ *office, e *entry) { e.parking = "it breaks" }, true},
		"a write again":     {func(_ *office, e *entry) { e.write.repeating = true }, true},
		"a report again":    {func(_ *office, e *entry) { e.status.repeating = true }, true},
		"it is its own":     {func(o *office, _ *entry) { o.engine.share = shard.All }, true},
		"one in its place":  {func(o *office, e *entry) { o.engine.entries[e.key] = &entry{key: e.key} }, true},
		"only what it knew": {func(_ *office, e *entry) { e.write.turn, e.wake = 7, epoch }, false},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		o.engine.share = 0
		c.change(o, e)
		if o.engine.dropUnowned(e); (len(o.engine.entries) == 1) != c.kept {
			t.Errorf("%s: %d keys are known", what, len(o.engine.entries))
		}
	}
}

// The gauges of a key that goes to another replica are dropped.
func TestTheGaugesOfAKeyThatIsGivenAway(t *testing.T) {
	settings, _, shared := figured()
	o := open(t, settings)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	o.engine.Own(0)
	if got := *shared; len(got) != 2 || got[0] != "web wanted" || got[1] != "web" {
		t.Errorf("reported are %q, want web with its wish, and without", got)
	}
}
