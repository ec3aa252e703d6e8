package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
)

// A wake asks for a turn, which names the wake. A wake that was set in no trace may begin one.
func TestAWakeAsksForATurn(t *testing.T) {
	for _, by := range []events.Trace{{}, {Parent: "p"}} {
		o := open(t, Settings{})
		o.engine.Wake(7, events.Wake{Controller: "toy", Key: web, Trace: by})
		e := o.engine.entries[web]
		want := events.Trigger{Stream: subject.WakeStream, Sequence: 7, Trace: by}
		if !slices.Equal(e.Triggers, []events.Trigger{want}) || !e.dirty || e.Rank != workqueue.AfterChange || e.first != (by.Parent == "") {
			t.Errorf("the key wants a turn: %t, because of %v; it may begin a trace: %t", e.dirty, e.Triggers, e.first)
		}
		o.engine.Wake(8, events.Wake{Controller: "toy", Key: web, Trace: events.Trace{Parent: "q"}})
		if e.first != (by.Parent == "") {
			t.Error("another wake changes whether it may begin a trace")
		}
		if o.run(); o.engine.Tally().Nothing != 1 {
			t.Errorf("two wakes made %d turns", o.engine.Tally().Nothing)
		}
	}
}

// A change waits since the bus stored it, and of several the first counts.
func TestSinceWhenAChangeWaits(t *testing.T) {
	at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
	e := &entry{}
	for _, c := range []struct{ stored, want int }{{5, 5}, {7, 5}, {3, 3}} {
		e.addCauses(cache.Causes{Triggers: []events.Trigger{{Sequence: uint64(c.stored)}}, Oldest: []cache.Backlog{{Kind: "pods", Sequence: uint64(c.stored), Stored: at(c.stored)}}})
		if !e.since.Equal(at(c.want)) {
			t.Errorf("after a change of minute %d the key waits since %v, want since the oldest", c.stored, e.since)
		}
	}
	if len(e.Triggers) != 3 || !slices.Equal(e.Oldest, []cache.Backlog{{Kind: "pods", Sequence: 3, Stored: at(3)}}) {
		t.Errorf("the key waits for %v, because of %v", e.Oldest, e.Triggers)
	}
}

// tornPod is an office in which a pod that cannot be mapped to keys has been parked.
func tornPod(t *testing.T) (o *office, key events.Key) {
	o = open(t, Settings{})
	pod := aPod("p", "web", 1)
	pod.Annotations = map[string]string{"toy": "maps-badly"}
	o.change(kinds.Pods.Kind, events.Is, pod)
	key = events.Key(podOf("p"))
	o.engine.Recalled(key, events.LanePark, Past{}, nil)
	o.take(events.LanePark)
	o.engine.Stored(key, events.LanePark, 1, nil)
	if o.takeRecalls(); len(o.engine.Parked()) != 1 {
		t.Fatal("the key is not parked")
	}
	return o, key
}

// A parked message is tried again when its object has changed, and its keys then have turns. If
// the object was deleted, it is unparked.
func TestAMessageThatIsSetAsideIsRestored(t *testing.T) {
	o, key := tornPod(t)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("other", 1, 0, 0, ""))
	o.engine.Folded(kinds.Pods.Name)
	if o.run(); len(o.engine.Parked()) != 1 || len(o.takeRecalls()) != 0 {
		t.Error("the key is tried again although its object has not changed")
	}
	torn := aPod("p", "web", 2)
	torn.Annotations = map[string]string{"toy": "maps-badly"}
	o.change(kinds.Pods.Kind, events.Is, torn)
	if len(o.engine.Parked()) != 1 || o.engine.entries[key].version != "2" {
		t.Errorf("with a version that cannot be mapped either, the parked keys are %v, want it", o.engine.Parked())
	}
	o, _ = tornPod(t)
	nothing := o.engine.Tally().Nothing
	o.memory.Dealt(kinds.Pods.Name, 2) // the change itself asks for nothing
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 2))
	if len(o.engine.Parked()) != 0 || o.engine.Tally().Nothing != nothing+1 {
		t.Errorf("with a version that can be mapped, the parked keys are %v after %d turns, want none after 1", o.engine.Parked(), o.engine.Tally().Nothing-nothing)
	}
	o = open(t, Settings{})
	damaged := delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 1), 1)
	damaged.Data, o.sequence[kinds.Pods.Name] = []byte("torn"), 1
	o.memory.Fold(kinds.Pods.Name, []events.Message{damaged})
	o.engine.Folded(kinds.Pods.Name)
	o.engine.Recalled(key, events.LanePark, Past{}, nil)
	o.engine.Stored(key, events.LanePark, 1, nil)
	if len(o.engine.Parked()) != 1 {
		t.Error("an object that cannot be read is not parked")
	}
	if o.change(kinds.Pods.Kind, events.Gone, aPod("p", "web", 2)); len(o.engine.Parked()) != 0 {
		t.Errorf("of an object that is gone these are parked: %v, want none", o.engine.Parked())
	}
}

// The keys of an object as it is now, or why it has none.
func TestWhatAnObjectIsMappedTo(t *testing.T) {
	o, _ := tornPod(t)
	o.memory.Follow(kinds.Nodes.Kind)
	o.fold(kinds.Pods.Kind, events.Is, aPod("good", "web", 2))
	o.fold(kinds.Pods.Kind, events.Is, aPod("gone", "web", 3))
	o.fold(kinds.Pods.Kind, events.Gone, aPod("gone", "web", 4))
	o.sequence[kinds.Pods.Name]++
	damaged := delta(kinds.Pods.Kind, events.Is, aPod("damaged", "web", 5), o.sequence[kinds.Pods.Name])
	damaged.Data = []byte("torn")
	o.memory.Fold(kinds.Pods.Name, []events.Message{damaged})
	for called, want := range map[string]struct {
		keys    int
		reason  bool
		version string
	}{
		"good": {1, false, "2"}, "gone": {0, false, "4"}, "damaged": {0, true, "5"}, "p": {0, true, "1"}, "never": {0, false, ""},
	} {
		keys, reason, version := o.engine.mapped(podOf(called))
		if len(keys) != want.keys || (reason != "") != want.reason || version != want.version {
			t.Errorf("%s: the keys are %v, because of %q, of version %q", called, keys, reason, version)
		}
	}
	if keys, reason, version := o.engine.mapped(events.Ref{Kind: kinds.Nodes.Name, Name: "n"}); keys != nil || reason != "" || version != "" {
		t.Errorf("of a kind that is not read the keys are %v, because of %q, of version %q; want none", keys, reason, version)
	}
}

// Each turn without commands is reported as a success.
func TestATurnThatWantsNothingWentWell(t *testing.T) {
	var codes []int
	o := open(t, Settings{Answered: func(code int, took time.Duration) { codes = append(codes, code) }})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	if !slices.Equal(codes, []int{200}) {
		t.Errorf("the outcome is measured with the codes %v, want 200", codes)
	}
}

// A turn continues the trace of the newest traced change, before that of an outcome.
func TestWhichTraceATurnGoesOn(t *testing.T) {
	trigger := func(stream, parent string) events.Trigger {
		return events.Trigger{Stream: stream, Trace: events.Trace{Parent: parent}}
	}
	outcome := subject.OutcomeStream("toy")
	for want, triggers := range map[string][]events.Trigger{
		"":  {trigger("S", "")},
		"a": {trigger("S", "a"), trigger("S", ""), trigger(outcome, "o")},
		"b": {trigger("S", "a"), trigger("S", "b"), trigger(outcome, "")},
		"p": {trigger(outcome, "o"), trigger(outcome, "p"), trigger("S", "")},
	} {
		c := cache.Causes{Triggers: triggers}
		if got := traceOf(c.Triggers).Parent; got != want {
			t.Errorf("the trace of %v is %q, want %q", triggers, got, want)
		}
	}
	e := &entry{}
	if e.newest() != (events.Trigger{}) {
		t.Error("an entry without triggers has a newest one")
	}
	for i := range uint64(4) {
		e.addTrigger(events.Trigger{Sequence: i})
	}
	if e.newest().Sequence != 3 {
		t.Errorf("the newest is %v", e.newest())
	}
	if e.dropServed(events.Trigger{Sequence: 1}); len(e.Triggers) != 2 || e.Triggers[0].Sequence != 2 {
		t.Errorf("behind the second are %v", e.Triggers)
	}
	if e.dropServed(events.Trigger{Sequence: 99}); len(e.Triggers) != 2 {
		t.Errorf("behind one that is not there are %v", e.Triggers)
	}
	if e.woken(events.Trace{}); !e.first || len(e.Triggers) != 2 {
		t.Error("a wake without a trace begins none")
	}
	if e.woken(events.Trace{Parent: "p"}); len(e.Triggers) != 3 || e.newest().Stream != subject.WakeStream {
		t.Errorf("a wake with a trace is %v", e.newest())
	}
}
