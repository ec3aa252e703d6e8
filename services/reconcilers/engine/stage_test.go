package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// traveller is an office that records the stages. It folds two changes of web, stored an hour
// and a minute ago.
func traveller(t *testing.T) (o *office, stages *[]string) {
	stages = &[]string{}
	o = open(t, Settings{Passed: func(stage Stage, took time.Duration, trace events.Trace) {
		*stages = append(*stages, fmt.Sprintf("%s %v %s", stage, took, trace.Parent))
	}})
	for version, age := range []time.Duration{time.Hour, time.Minute} {
		m := delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", version+1, 1, 0, ""), uint64(version+1))
		m.Header[events.HeaderTraceParent], m.Time = []string{"cause"}, epoch.Add(-age)
		o.memory.Fold(kinds.ReplicaSets.Name, []events.Message{m})
	}
	o.sequence[kinds.ReplicaSets.Name] = 2
	o.engine.Folded(kinds.ReplicaSets.Name)
	o.run()
	return o, stages
}

func TestEveryHopIsMeasured(t *testing.T) {
	o, stages := traveller(t)
	if got := o.engine.Backlog()[kinds.ReplicaSets.Name]; got.Sequence != 1 || !got.Stored.Equal(epoch.Add(-time.Hour)) {
		t.Errorf("the change that waits longest is %+v, want 1, stored an hour ago", got)
	}
	o.pass(time.Second)
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.pass(2 * time.Second)
	o.answer(events.LaneWrite, 10, nil)
	o.pass(3 * time.Second)
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.pass(4 * time.Second)
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	want := []string{"decided 1h0m1s cause", "stored 2s cause", "written 3s cause", "seen 4s cause"}
	if got := (*stages)[:min(4, len(*stages))]; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if b := o.engine.Backlog(); b[kinds.ReplicaSets.Name] != (cache.Backlog{}) {
		t.Errorf("after its turn the change still waits: %+v", b)
	}
}

// The outcome of another replica's turn ends no stage of this one's turn.
func TestAStageOfAnotherReplicaIsNotMeasured(t *testing.T) {
	o, stages := traveller(t)
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	o.outcome(events.LaneWrite, 12, created("p", "5"))
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	if want := []string{"decided 1h0m0s cause", "stored 0s cause"}; !cmp.Equal(*stages, want) {
		t.Error(cmp.Diff(want, *stages))
	}
}

// The fence reports the kind of an awaited effect, and nothing while it waits for an outcome.
func TestWhatTheFenceWaitsFor(t *testing.T) {
	var held []kinds.Name
	o := begun(t, Settings{Held: func(kind kinds.Name) { held = append(held, kind) }})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 1, ""))
	if len(held) > 0 {
		t.Errorf("before the outcome the key waits for %v, want no kind", held)
	}
	o.recallTellNothing()
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	held = nil
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 2, 0, ""))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 4, 3, 0, ""))
	if len(held) == 0 || held[0] != kinds.Pods.Name {
		t.Errorf("the key waits for %v, want pods", held)
	}
}

// The stage Seen ends once, when every effect has come back, and a turn without effects has
// none.
func TestTheWayBackOfATurn(t *testing.T) {
	foreign := events.Result{Status: events.Applied, Version: "5", Ref: events.Ref{Kind: "configmaps", Namespace: "default", Name: "c"}}
	refused := events.Result{Status: events.Refused, Version: "5", Ref: podOf("p")}
	for what, c := range map[string]struct {
		results []events.Result
		want    string // the stages after Stored
	}{
		"one pod":                   {[]events.Result{created("p", "5")}, "written seen"},
		"two pods":                  {[]events.Result{created("p", "5"), created("q", "5")}, "written seen"},
		"nothing":                   {[]events.Result{nothing}, "written"},
		"what is not read":          {[]events.Result{foreign}, "written"},
		"what was refused":          {[]events.Result{refused}, "written"},
		"a pod, beside the refused": {[]events.Result{refused, created("p", "5")}, "written seen"},
	} {
		var stages []string
		o := begun(t, Settings{Passed: func(stage Stage, _ time.Duration, _ events.Trace) { stages = append(stages, string(stage)) }})
		l := &o.engine.entries[web].write
		o.engine.Outcome(10, events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: 10, Results: c.results})
		for i, name := range []string{"p", "q", "p", "q"} {
			o.fold(kinds.Pods.Kind, events.Is, aPod(name, "web", 5+i))
			o.engine.dropReturned(o.engine.entries[web])
		}
		if got, want := fmt.Sprint(stages), fmt.Sprintf("[stored %s]", c.want); got != want || l.stages != (stageTimes{}) {
			t.Errorf("%s: the stages are %s, want %s", what, got, want)
		}
	}
}

// The effects of another replica's later turn do not end the stage Seen.
func TestTheWayBackOfAnotherTurnIsNotMeasured(t *testing.T) {
	o, stages := traveller(t)
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.outcome(events.LaneWrite, 12, created("q", "6"))
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.change(kinds.Pods.Kind, events.Is, aPod("q", "web", 6))
	if want := []string{"decided 1h0m0s cause", "stored 0s cause", "written 0s cause"}; !cmp.Equal(*stages, want) {
		t.Errorf("the stages are %v, want %v", *stages, want)
	}
}

// The outcome of another turn does not end a stage while a turn is being stored. A bus whose
// clock is ahead makes no stage negative.
func TestTheWayToTheBus(t *testing.T) {
	var stages []string
	o := open(t, Settings{Passed: func(stage Stage, took time.Duration, _ events.Trace) {
		stages = append(stages, fmt.Sprint(stage, " ", took))
	}})
	m := delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""), 1)
	m.Time = epoch.Add(time.Hour)
	o.memory.Fold(kinds.ReplicaSets.Name, []events.Message{m})
	o.engine.Folded(kinds.ReplicaSets.Name)
	o.run()
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.outcome(events.LaneWrite, 1, nothing)
	o.pass(time.Second)
	o.answer(events.LaneWrite, 2, nil)
	o.outcome(events.LaneWrite, 2, nothing)
	if want := []string{"decided 0s", "stored 1s", "written 0s"}; !cmp.Equal(stages[:min(3, len(stages))], want) {
		t.Errorf("the stages are %v, want %v", stages, want)
	}
}

// The first turn of a stream is measured, too.
func TestTheWayOfTheFirstTurn(t *testing.T) {
	o, stages := traveller(t)
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 1, nil)
	o.pass(time.Second)
	if o.outcome(events.LaneWrite, 1, nothing); !slices.Contains(*stages, "written 1s cause") {
		t.Errorf("the stages are %v", *stages)
	}
}

// A key that waits reports one kind at a time, whichever lanes wait.
func TestAKeyThatWaitsIsToldOnce(t *testing.T) {
	var held []kinds.Name
	o := open(t, Settings{Held: func(kind kinds.Name) { held = append(held, kind) }})
	sets := of(kinds.ReplicaSets.Name, "web", "u", "5", false)
	for what, c := range map[string]struct {
		write, status []effect
		want          []kinds.Name
	}{
		"nothing":    {nil, nil, nil},
		"a write":    {[]effect{of("pods", "p", "u", "5", false), sets}, nil, []kinds.Name{"pods"}},
		"a report":   {nil, []effect{sets}, []kinds.Name{kinds.ReplicaSets.Name}},
		"both of it": {[]effect{of("pods", "p", "u", "5", false)}, []effect{sets}, []kinds.Name{"pods"}},
	} {
		held = nil
		if o.engine.reportHeld(&entry{write: lane{effects: c.write}, status: lane{effects: c.status}}); !slices.Equal(held, c.want) {
			t.Errorf("%s: the key waits for %v, want %v", what, held, c.want)
		}
	}
}

// Backlog is the oldest waiting change of each kind, also while its turn is being stored.
func TestTheOldestThatWaitsIsTold(t *testing.T) {
	o := open(t, Settings{})
	b := func(kind kinds.Name, sequence uint64) cache.Backlog {
		return cache.Backlog{Kind: kind, Sequence: sequence, Stored: epoch}
	}
	one, two := o.engine.entry(web), o.engine.entry(events.Key{Name: "db"})
	one.Oldest = []cache.Backlog{b("pods", 7), b("nodes", 4)}
	two.Oldest, two.round = []cache.Backlog{b("pods", 5)}, &round{waiting: []cache.Backlog{b("nodes", 3), b("jobs.batch", 9)}}
	o.engine.markPending(one)
	o.engine.markPending(two)
	want := map[kinds.Name]cache.Backlog{"pods": b("pods", 5), "nodes": b("nodes", 3), "jobs.batch": b("jobs.batch", 9)}
	for range 10 { // the keys come in any order
		if got := o.engine.Backlog(); !cmp.Equal(got, want) {
			t.Fatalf("the oldest are %v, want %v", got, want)
		}
	}
}
