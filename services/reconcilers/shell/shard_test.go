package shell

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Keys are spread evenly over the shards, and every replica puts a key into the same one.
func TestKeysAreSpreadOverShards(t *testing.T) {
	const each = 200
	counts := make([]int, Shards)
	for i := range Shards * each {
		counts[Shard(events.Key{Namespace: "default", Name: string(rune('a'+i%26)) + "-" + string(rune(0x4e00+i))})]++
	}
	for shard, n := range counts {
		if n < each/2 || n > 2*each {
			t.Errorf("shard %d has %d keys of %d", shard, n, Shards*each)
		}
	}
	if got := Shard(events.Key{Kind: "pods", Namespace: "default", Name: "web"}); got != Shard(events.Key{Kind: "pods", Namespace: "default", Name: "web"}) || got == Shard(web) && got == Shard(events.Key{Kind: "pods"}) {
		t.Errorf("the shard is %d", got)
	}
}

// A key of another replica's is not decided about, and is asked about as soon as it is this
// one's, whatever asked for it before.
func TestOnlyOwnKeysAreDecidedAbout(t *testing.T) {
	o := open(t, Settings{})
	o.desk.Own(Everything &^ Share(0).With(Shard(web)))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.desk.Ask(web)
	o.desk.Wake(1, events.Wake{Controller: "toy", Key: web})
	o.outcome(events.Act, 5, events.Result{Status: events.Failed})
	if o.run(); len(o.recalls) > 0 || len(o.desk.entries) > 0 {
		t.Fatalf("a key of another replica's is looked at: recalls %v, %d keys known", o.recalls, len(o.desk.entries))
	}
	o.desk.Own(Everything)
	o.run()
	o.recalled(Past{}, Past{})
	o.take(events.Act)
}

// A turn that is under way when its key becomes another replica's is finished, and nothing
// more is decided about the key; when the key comes back it is recalled.
func TestAKeyThatIsGivenAwayIsForgotten(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.desk.Own(0)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	if o.answer(events.Act, 10, nil); len(o.desk.entries) > 0 {
		t.Errorf("%d keys are known", len(o.desk.entries))
	}
	o.outcome(events.Act, 10, born("p", "5"))
	o.none()
	o.desk.Own(Everything)
	o.run()
	o.recalled(underWay(10), Past{})
	o.none() // turn 10 has no outcome that this desk has heard
	o.outcome(events.Act, 10, born("p", "5"))
	o.none()
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.take(events.Act)
}

// So is a key that is being recalled.
func TestAKeyThatIsRecalledIsForgottenToo(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.desk.Own(0)
	if o.recalled(underWay(10), Past{}); len(o.desk.entries) > 0 {
		t.Errorf("%d keys are known", len(o.desk.entries))
	}
}

// A failure of a turn that another replica made is tried again by the replica that owns its key
// now; of a success there is nothing to be done.
func TestAFailureOfAnUnknownKeyIsTriedAgain(t *testing.T) {
	o := open(t, Settings{})
	if o.outcome(events.Act, 5, events.Result{Status: events.Applied}); len(o.desk.entries) > 0 {
		t.Error("a success of a key that nothing asks for is remembered")
	}
	before := o.desk.Tally().Nothing
	if o.outcome(events.Act, 6, events.Result{Status: events.Failed}); o.desk.Tally().Nothing != before+1 {
		t.Error("a failure asks for no turn")
	}
}
