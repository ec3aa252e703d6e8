package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/shard"
)

// leads is a heartbeat of a writer that holds the Lease.
func leads(writer string, token uint64) report.Heartbeat {
	return report.Heartbeat{Writer: writer, Leads: map[string]uint64{"toy": token}}
}

// The engine of a leased controller decides nothing until a writer holds the Lease, and then asks about
// every key. Its turns have the token of that writer.
func TestALeasedControllerWaitsForTheLease(t *testing.T) {
	var told []bool
	o := open(t, Settings{Leased: true, Led: func(held bool) { told = append(told, held) }})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.engine.Own(shard.All)
	o.engine.Ask(web)
	o.engine.Heartbeat(report.Heartbeat{Writer: "other"})
	o.engine.Heartbeat(report.Heartbeat{Writer: "other", Leads: map[string]uint64{"job": 3}})
	if o.run(); len(o.recalls) > 0 || len(o.engine.entries) > 0 || len(told) > 0 {
		t.Fatalf("without the Lease a key is looked at: recalls %v, %d keys known, reported %v; want nothing", o.recalls, len(o.engine.entries), told)
	}
	if k := o.engine.Key(web); k.Waits != report.NoLease {
		t.Errorf("the key waits because %s", k.Reason)
	}
	o.engine.Heartbeat(leads("w", 7))
	if k := o.engine.Key(web); k.Waits == report.NoLease || k.Waits == report.OtherReplica {
		t.Errorf("with the Lease the key waits because %s", k.Reason)
	}
	o.run()
	o.recalled(Past{}, Past{})
	if turn := o.take(events.LaneWrite); turn.Token != 7 {
		t.Errorf("the token of the turn is %d, want 7", turn.Token)
	}
	if !slices.Equal(told, []bool{true}) {
		t.Errorf("the Lease was reported as %v, want true once", told)
	}
}

// holding is an engine that decides under a writer's Lease, and whose first turn has been stored.
func holding(t *testing.T) *office {
	o := open(t, Settings{Leased: true})
	o.engine.Heartbeat(leads("w", 7))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	return o
}

// looks reports whether the engine looks at a key that changes.
func (o *office) looks(version int) bool {
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", version, 1, 0, ""))
	return slices.ContainsFunc(o.engine.sorted(), func(e *entry) bool { return e.dirty || e.round != nil })
}

// The engine decides nothing more as soon as the holder of the Lease says that it does not hold it, or
// is silent for too long. What other writers say does not matter.
func TestTheEndOfALease(t *testing.T) {
	o := holding(t)
	o.engine.Heartbeat(report.Heartbeat{Writer: "other"})
	if !o.looks(2) {
		t.Fatal("another writer's heartbeat ends the Lease")
	}
	o.engine.Heartbeat(report.Heartbeat{Writer: "w"})
	if o.looks(3) {
		t.Error("the engine decides without the Lease")
	}
	o = holding(t)
	for range 10 {
		o.pass(MaxHeartbeatAge - time.Millisecond)
		o.engine.Heartbeat(leads("w", 7))
	}
	if !o.looks(2) {
		t.Fatal("the engine decides nothing while heartbeats come")
	}
	o.takeRecalls()
	if o.pass(MaxHeartbeatAge); o.looks(3) {
		t.Error("the engine decides although the holder is silent")
	}
	o.engine.Heartbeat(leads("v", 7))
	if !o.looks(4) {
		t.Error("the engine decides nothing under the next holder")
	}
}

// A term with another token is another one: each key is looked at anew, and what is decided has the new
// token. With the same token, Millrace has kept the controllers, and goes on.
func TestTheTermOfATurn(t *testing.T) {
	o := holding(t)
	o.engine.Heartbeat(leads("v", 7))
	if o.run(); len(o.takeRecalls()) > 0 || o.engine.lease.writer != "v" {
		t.Errorf("with the same token the holder is %s, want v, and keys are recalled", o.engine.lease.writer)
	}
	o.engine.Heartbeat(leads("u", 8))
	o.run()
	past := underWay(10)
	past.Outcome = &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{{Status: events.Refused, Reason: "Stale"}}}
	o.recalled(past, Past{})
	if turn := o.take(events.LaneWrite); turn.Token != 8 || turn.expect != 10 {
		t.Errorf("the turn has the token %d, behind %d", turn.Token, turn.expect)
	}
}

// The keys of a replica are those of its share while a writer holds the Lease, whichever comes first.
func TestALeaseAndAShare(t *testing.T) {
	o := open(t, Settings{Leased: true})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.engine.Own(shard.All &^ shard.Set(0).With(shard.Of(web)))
	o.engine.Heartbeat(leads("w", 7))
	if o.run(); len(o.takeRecalls()) > 0 {
		t.Error("the engine looks at a key of another replica")
	}
	o.engine.Own(shard.All)
	if o.run(); len(o.takeRecalls()) == 0 {
		t.Error("the engine does not look at a key that it has gained")
	}
	o.engine.Own(0)
	if o.looks(2) {
		t.Error("the engine looks at a key that it has lost")
	}
}

// A controller without a Lease decides whatever heartbeats say, and its turns have no token.
func TestAControllerWithoutALease(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Heartbeat(leads("w", 7))
	o.engine.Heartbeat(report.Heartbeat{Writer: "w"})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	if turn := o.take(events.LaneWrite); turn.Token != 0 {
		t.Errorf("the token is %d", turn.Token)
	}
}

// A turn that cannot be read any more is replaced by one of the present term.
func TestAReplacementHasATokenToo(t *testing.T) {
	o := holding(t)
	for range 12 {
		o.pass(time.Second)
		o.engine.Heartbeat(leads("w", 7))
	}
	o.recalled(Past{Sequence: 10}, Past{})
	if turn := o.take(events.LaneWrite); turn.Token != 7 || turn.Repeats != 10 {
		t.Errorf("the replacement is %+v", turn.Turn)
	}
}
