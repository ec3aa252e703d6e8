package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// known are the names of the keys that have an entry, in order.
func (o *office) known() (all []string) {
	for _, e := range o.engine.sorted() {
		all = append(all, e.key.Name)
	}
	return all
}

// The engine asks about all objects when the last kind has been read, and not before.
func TestWhatThereIsIsAskedAboutOnce(t *testing.T) {
	o := open(t, Settings{})
	o.memory.Dealt(kinds.ReplicaSets.Name, 1)
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	if o.engine.Open(kinds.Pods.Name); len(o.engine.entries) > 0 || !o.engine.HasOpened() {
		t.Errorf("a kind that was never shut is opened, and %v are asked about", o.known())
	}
	o.engine.Shut(kinds.Pods.Name)
	o.engine.Shut(kinds.ReplicaSets.Name)
	o.engine.Open(kinds.Nodes.Name)
	o.engine.Open(kinds.Pods.Name)
	if len(o.engine.entries) > 0 || o.engine.HasOpened() || o.engine.Busy() || o.engine.Step() {
		t.Errorf("before all kinds are read the engine asks about %v, want nothing", o.known())
	}
	o.engine.Open(kinds.ReplicaSets.Name)
	if !cmp.Equal(o.known(), []string{"web"}) || !o.engine.HasOpened() || !o.engine.Busy() || !o.engine.entries[web].first {
		t.Errorf("when all kinds are read the engine asks about %v, want web", o.known())
	}
	if !o.engine.Step() || o.engine.Step() || o.engine.Busy() {
		t.Error("the engine has more keys than the one")
	}
	o.engine.Shut(kinds.ReplicaSets.Name)
	if !o.engine.HasOpened() {
		t.Error("an engine that has seen all counts as shut while a kind is read again")
	}
}

// The wait for kinds begins with the first that is shut, and ends when the last one opens.
func TestSinceWhenKindsAreRead(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Shut(kinds.Pods.Name)
	o.pass(time.Second)
	o.engine.Shut(kinds.ReplicaSets.Name)
	if !o.engine.shutSince.Equal(epoch) {
		t.Errorf("the engine is shut since %v, want since the beginning", o.engine.shutSince)
	}
	o.engine.Open(kinds.Pods.Name)
	o.engine.Open(kinds.Nodes.Name)
	if !o.engine.freedAt.IsZero() {
		t.Error("the engine is free while a kind is being read")
	}
	o.engine.Open(kinds.ReplicaSets.Name)
	if !o.engine.freedAt.Equal(o.now) {
		t.Errorf("the engine is free since %v, want since now", o.engine.freedAt)
	}
	o.pass(time.Second)
	if o.engine.Open(kinds.ReplicaSets.Name); !o.engine.freedAt.Equal(o.now.Add(-time.Second)) {
		t.Error("opening a kind that is open counts as a wait")
	}
	if o.engine.Shut(kinds.Pods.Name); !o.engine.shutSince.Equal(o.now) {
		t.Errorf("the engine is shut again since %v, want since now", o.engine.shutSince)
	}
}

// The engine decides nothing while a kind is listed in a new epoch, and afterwards makes only
// the turns that changes ask for.
func TestANewEpochAsksForWhatItChanges(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Shut(unfound)
	o.engine.Open(unfound)
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("a", "web", 1), 0), 0)
	o.run()
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("b", "db", 2), 0), 1)
	if !o.engine.shut[kinds.Pods.Name] || !o.engine.listingEpoch[kinds.Pods.Name] || !cmp.Equal(o.known(), []string{"db"}) {
		t.Errorf("in the middle of the new epoch the engine is shut for %v and knows %v, want pods, and db", o.engine.shut, o.known())
	}
	if o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "3", 0), 1); len(o.engine.shut)+len(o.engine.listingEpoch) > 0 || o.engine.epochs[kinds.Pods.Name] != 1 {
		t.Errorf("when the new epoch is complete the engine is shut for %v, want nothing", o.engine.shut)
	}
	if n := o.engine.Tally().Nothing; n != 2 {
		t.Errorf("%d turns, want one of each key that a change asks for", n)
	}
}

// A mark of an older epoch, which a lagging watcher makes, shuts nothing; nor does a delta of
// the same epoch, or of a kind that the controller does not read.
func TestWhatBeginsNoEpoch(t *testing.T) {
	o := open(t, Settings{})
	o.engine.askedAll = true
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "3", 0), 1)
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "2", 0), 0)
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("a", "web", 4), 0), 1)
	o.memory.Follow(kinds.Nodes.Kind)
	o.tell(kinds.Nodes.Kind, delta(kinds.Nodes.Kind, events.Is, aPod("n", "", 4), 0), 7)
	if len(o.engine.shut)+len(o.engine.listingEpoch) > 0 || o.engine.skew.epoch != 1 {
		t.Errorf("the engine is shut for %v in epoch %d, want nothing, and 1", o.engine.shut, o.engine.skew.epoch)
	}
}

// A kind that is being read opens when it has been read, and not when its new epoch is
// complete; nor does the wait for the other kinds begin before the engine has been open.
func TestAnEpochOfAKindThatIsBeingRead(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Shut(kinds.Pods.Name)
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("a", "web", 1), 0), 1)
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "3", 0), 1)
	if !o.engine.shut[kinds.Pods.Name] || len(o.engine.listingEpoch) > 0 || o.engine.skew != (epochSkew{}) {
		t.Errorf("the engine is shut for %v, with the skew %+v; want pods, and none", o.engine.shut, o.engine.skew)
	}
	o.engine.Open(kinds.Pods.Name)
	if o.engine.epochs[kinds.Pods.Name] != 1 {
		t.Errorf("the epoch is %d", o.engine.epochs[kinds.Pods.Name])
	}
}

// A kind whose stream is recreated in the middle of a new epoch stays shut until it has been
// read, and the engine asks about it then: its objects were reported before.
func TestAKindThatIsForgottenInTheMiddleOfAnEpoch(t *testing.T) {
	o := open(t, Settings{})
	o.engine.askedAll = true
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("b", "db", 2), 0), 1)
	o.engine.Forgot(kinds.Pods.Name, o.memory.Forget(kinds.Pods.Name)["toy"])
	o.memory.Dealt(kinds.Pods.Name, 99)
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("a", "web", 1), 0), 1)
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "3", 0), 1)
	if !o.engine.shut[kinds.Pods.Name] || !cmp.Equal(o.known(), []string{"db"}) {
		t.Errorf("before the kind is read the engine is shut for %v and knows %v, want pods, and db", o.engine.shut, o.known())
	}
	if o.engine.Open(kinds.Pods.Name); !cmp.Equal(o.known(), []string{"db", "web"}) {
		t.Errorf("when the kind is read the engine knows %v, want db and web", o.known())
	}
}

// When a kind is forgotten, the engine decides nothing, doubts every key, and reports the
// reason until the kind has been read.
func TestAForgottenKindShutsAndDoubts(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	e := o.engine.entry(web)
	e.known, e.write.turn, e.write.outcome, e.status.turn, e.status.outcome = true, 7, 7, 8, 8
	o.engine.Forgot(kinds.Pods.Name, []events.Key{{Namespace: "default", Name: "db"}})
	if !o.engine.shut[kinds.Pods.Name] || e.known || e.write.outcome != 0 || e.status.outcome != 0 || !cmp.Equal(o.known(), []string{"db", "web"}) {
		t.Errorf("the engine is shut for %v and knows %v, with the entry %+v; want it not known any more", o.engine.shut, o.known(), e)
	}
	if w := o.engine.whyShut(epoch); w.condition != report.CacheInconsistent {
		t.Errorf("the engine is shut because of %s, want CacheInconsistent", w.condition)
	}
	o.engine.Open(kinds.Pods.Name)
	o.engine.Shut(kinds.Pods.Name)
	if w := o.engine.whyShut(epoch); w.condition != report.NotRead {
		t.Errorf("when the kind is read for another reason the engine is shut because of %s, want NotRead", w.condition)
	}
}

// When a kind opens, effects on it that came back before are no longer awaited, and the others
// get its epoch.
func TestAKindThatIsOpenedIsLookedAt(t *testing.T) {
	o := open(t, Settings{})
	e := o.engine.entry(web)
	o.engine.Shut(kinds.Pods.Name)
	o.memory.Fold("pods", []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("p", "", 5), 1)})
	e.write.effects = []effect{of("pods", "p", "uid-p", "5", false), of("pods", "q", "", "6", false)}
	e.status.effects = []effect{of("pods", "q", "", "6", false)}
	o.engine.awaitEffects(e, &e.write)
	o.engine.awaitEffects(e, &e.status)
	o.engine.Open(kinds.Pods.Name)
	if len(e.write.effects) != 1 || !e.write.effects[0].Dated || len(e.status.effects) != 1 || !e.status.effects[0].Dated || o.engine.taken["pods"] != 1 {
		t.Errorf("awaited are %+v and %+v", e.write.effects, e.status.effects)
	}
}

// If a forgotten kind has been read again before the engine was told, the engine checks all
// keys that wait for it when it opens: the last deltas are only a part of what has come back.
func TestAKindThatIsReadAgainIsLookedAtWhole(t *testing.T) {
	o := open(t, Settings{})
	e := o.engine.entry(web)
	e.write.effects = []effect{of("pods", "p", "uid-p", "50", false)}
	o.engine.awaitEffects(e, &e.write)
	for i := range 5 {
		o.fold(kinds.Pods.Kind, events.Is, aPod("a", "", i+1))
	}
	o.engine.Forgot(kinds.Pods.Name, o.memory.Forget(kinds.Pods.Name)["toy"])
	o.memory.Fold("pods", []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("p", "", 50), 1)})
	for i := range 6 {
		o.memory.Fold("pods", []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("a", "", i+51), uint64(i+2))})
	}
	o.engine.Folded(kinds.Pods.Name)
	if o.engine.Open(kinds.Pods.Name); len(e.write.effects) > 0 {
		t.Errorf("effects that have come are awaited: %+v", e.write.effects)
	}
}

// When the engine asks about all objects, it parks those that cannot be decoded or mapped to
// keys, in order.
func TestWhatCannotBeReadIsSetAsideWhenAllIsAskedAbout(t *testing.T) {
	o := open(t, Settings{})
	for _, kind := range []kinds.Name{kinds.Pods.Name, kinds.ReplicaSets.Name} {
		o.memory.Dealt(kind, 99)
	}
	for i, name := range []string{"z", "y"} {
		torn := delta(kinds.ReplicaSets.Kind, events.Is, aSet(name, i+1, 1, 0, ""), uint64(i+1))
		torn.Data = []byte("k8s\x00garbage")
		o.memory.Fold(kinds.ReplicaSets.Name, []events.Message{torn})
	}
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 0, 0, ""))
	for i, name := range []string{"c", "b", "a"} {
		pod := aPod(name, "web", i+1)
		pod.Annotations = map[string]string{"toy": "maps-badly"}
		o.fold(kinds.Pods.Kind, events.Is, pod)
	}
	o.engine.AskAll()
	var parking []string
	for _, e := range o.engine.sorted() {
		if e.parking != "" {
			parking = append(parking, e.key.Name)
		}
	}
	if want := []string{"a", "b", "c", "y", "z"}; !cmp.Equal(parking, want) || len(o.recalls) != 5 || !o.engine.entries[web].dirty {
		t.Errorf("the keys that are being parked are %v, want %v", parking, want)
	}
	_, unread := o.engine.keys()
	if !slices.IsSortedFunc(unread, func(a, b cache.Unmapped) int { return a.Ref.Compare(b.Ref) }) || len(unread) != 5 || unread[0].Version != "3" || unread[4].Version != "1" {
		t.Errorf("the objects that cannot be mapped are %+v, want 5 in order", unread)
	}
	if keys, unread := o.engine.keys(kinds.ReplicaSets.Name); !cmp.Equal(keys, []events.Key{web}) || len(unread) != 2 {
		t.Errorf("of ReplicaSets the keys are %v, and %d cannot be mapped; want web, and 2", keys, len(unread))
	}
	if keys, unread := o.engine.keys(kinds.Nodes.Name); len(keys)+len(unread) != 0 {
		t.Errorf("of a kind that is not read the keys are %v, %v; want none", keys, unread)
	}
}

// A controller that reads every kind awaits no result without a kind.
func TestWhichKindsAreRead(t *testing.T) {
	every := toy()
	every.Inputs = append(slices.Clone(every.Inputs), reconcile.Input{Every: true})
	all := New(every, cache.New(), nil, Settings{}, epoch)
	some := open(t, Settings{}).engine
	for kind, want := range map[kinds.Name][2]bool{"pods": {true, true}, "configmaps": {true, false}, "": {false, false}, kinds.ReplicaSets.Name: {true, true}} {
		if got := [2]bool{all.reads(kind), some.reads(kind)}; got != want {
			t.Errorf("%q is read: %v, want %v", kind, got, want)
		}
	}
	if all.named[""] || !all.every || some.every {
		t.Errorf("named are %v", all.named)
	}
}
