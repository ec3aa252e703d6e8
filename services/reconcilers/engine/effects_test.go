package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// The engine asks for the end of the stream of an effect that has not come back within
// Patience: once until the bus answers, and again if the answer is an error.
func TestAnEffectThatStaysAwayIsAskedAbout(t *testing.T) {
	o := begun(t, Settings{Patience: 3 * time.Second})
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.mark(kinds.Pods.Kind, "6", 1)
	asked := func(what string, want int) {
		t.Helper()
		if len(o.reaches) != want {
			t.Errorf("%s: the engine asked %d times where the log ends, want %d", what, len(o.reaches), want)
		}
	}
	o.pass(3*time.Second - 1)
	asked("before the patience is over", 0)
	o.pass(1)
	asked("when it is over", 1)
	o.pass(time.Minute)
	asked("while there is no answer", 1)
	o.engine.Reached(kinds.Pods.Name, 0, errors.New("away"))
	o.run()
	o.none()
	o.pass(3 * time.Second)
	asked("where the bus did not say", 2)
	o.engine.Reached(kinds.Pods.Name, 2, nil)
	o.run()
	o.none()
	o.pass(time.Minute)
	asked("while it is read to there", 2)
	o.mark(kinds.Pods.Kind, "7", 2)
	o.take(events.LaneWrite)
}

// The engine does not ask about an effect beyond the version up to which its kind has been
// reported.
func TestOnlyWhatCanBeLostIsAskedAbout(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LaneWrite, 10, created("p", "5"), created("q", "9"))
	o.mark(kinds.Pods.Kind, "6", 1)
	o.pass(time.Minute)
	asked := func() (all []string) {
		for _, u := range o.engine.entries[web].write.effects {
			if u.asked {
				all = append(all, u.Result.Ref.Name)
			}
		}
		return all
	}
	if got := asked(); !cmp.Equal(got, []string{"p"}) {
		t.Errorf("asked about are %v", got)
	}
	o.engine.Reached(kinds.Pods.Name, 1, nil)
	o.run()
	o.none() // the other one is still to come
	if e := o.engine.entries[web]; len(e.write.effects) != 1 || e.write.effects[0].Goal != 0 {
		t.Errorf("the awaited effects are %+v", e.write.effects)
	}
	o.change(kinds.Pods.Kind, events.Is, aPod("q", "web", 9))
	if len(o.stored) == 0 {
		t.Error("when all effects are seen or lost the key has no turn")
	}
}

// The end of a stream concerns only the effects that the engine asked about before.
func TestOfWhichEffectsAnAnswerIs(t *testing.T) {
	o := open(t, Settings{})
	e := o.engine.entry(web)
	asked := func(u effect, goal uint64) effect { u.asked, u.Goal = true, goal; return u }
	e.write.effects = []effect{
		asked(of("pods", "a", "u", "5", false), 0), of("pods", "b", "u", "5", false), asked(of("pods", "c", "u", "5", false), 5),
		asked(of(kinds.ReplicaSets.Name, "d", "u", "5", false), 0),
	}
	e.status.effects = []effect{asked(of("pods", "e", "u", "5", false), 0)}
	o.engine.awaitEffects(e, &e.write)
	o.engine.awaitEffects(e, &e.status)
	o.engine.reaching["pods"] = true
	o.engine.Reached("pods", 7, nil)
	var goals []uint64
	for _, u := range append(e.write.effects, e.status.effects...) {
		goals = append(goals, u.Goal)
	}
	if want := []uint64{8, 0, 5, 0, 8}; !cmp.Equal(goals, want) || o.engine.reaching["pods"] {
		t.Errorf("the effects are awaited up to %v, want %v", goals, want)
	}
}

// A key has one timer that checks its awaited effects, and none when it awaits nothing.
func TestAKeyLooksAfterItsEffectsOnce(t *testing.T) {
	o := open(t, Settings{})
	e := o.engine.entry(web)
	if o.engine.awaitEffects(e, &e.write); e.effectCheckSet || o.engine.timers.Len() != 0 {
		t.Error("a key that awaits nothing looks after something")
	}
	e.write.effects, e.status.effects = []effect{of("pods", "a", "u", "5", false)}, []effect{of("pods", "b", "u", "5", false)}
	for range 3 {
		o.engine.awaitEffects(e, &e.write)
		o.engine.awaitEffects(e, &e.status)
	}
	for range 3 {
		if !e.effectCheckSet || o.engine.timers.Len() != 1 {
			t.Fatalf("the effects are checked again: %t, with %d timers; want true, 1", e.effectCheckSet, o.engine.timers.Len())
		}
		o.pass(o.engine.settings.Patience)
	}
	e.write.effects, e.status.effects = nil, nil
	if o.pass(o.engine.settings.Patience); e.effectCheckSet || o.engine.timers.Len() != 0 {
		t.Errorf("with no effect awaited they are checked again: %t, with %d timers; want false, 0", e.effectCheckSet, o.engine.timers.Len())
	}
}

// A key that was dismissed asks for nothing.
func TestAKeyThatIsGoneIsNotLookedAfter(t *testing.T) {
	o := open(t, Settings{})
	gone := &entry{key: web, dirty: true}
	gone.write.effects = []effect{of("pods", "p", "u", "5", false)}
	o.mark(kinds.Pods.Kind, "6", 1)
	if o.engine.checkEffects(gone); len(o.reaches) > 0 || gone.effectCheckSet || o.engine.Busy() {
		t.Errorf("the engine asks where %v end; the effects are checked again: %t; want neither", o.reaches, gone.effectCheckSet)
	}
}

// A key is asked for a turn when all effects of a lane have come back, and no sooner.
func TestWhatHasComeBackAsksForATurn(t *testing.T) {
	back, out := of("pods", "p", "uid-p", "5", false), of("pods", "q", "uid-q", "6", false)
	for what, c := range map[string]struct {
		write, status []effect
		want          bool
	}{
		"a write":                   {[]effect{back}, nil, true},
		"a report":                  {nil, []effect{back}, true},
		"a write, and no report":    {[]effect{back}, []effect{out}, true},
		"a report, and no write":    {[]effect{out}, []effect{back}, true},
		"a part of a write":         {[]effect{back, out}, nil, false},
		"a part of a report":        {nil, []effect{out, back}, false},
		"nothing":                   {[]effect{out}, []effect{out}, false},
		"as much of both as awaits": {[]effect{back}, []effect{back}, true},
	} {
		for how, look := range map[string]func(*office, *entry){
			"folded":    func(o *office, _ *entry) { o.engine.recheck("pods") },
			"impatient": func(o *office, e *entry) { o.engine.checkEffects(e) },
		} {
			o := open(t, Settings{})
			e := o.engine.entry(web)
			o.memory.Fold("pods", []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("p", "", 5), 1)})
			e.write.effects, e.status.effects = append([]effect(nil), c.write...), append([]effect(nil), c.status...)
			o.engine.awaitEffects(e, &e.write)
			o.engine.awaitEffects(e, &e.status)
			o.pass(time.Second)
			look(o, e)
			if e.dirty != c.want || e.Queued != c.want {
				t.Errorf("%s, %s: the key asks for a turn: %t, want %t", what, how, e.dirty, c.want)
			}
			if left := e.awaits("pods"); left != (len(o.engine.awaiting["pods"]) == 1) && how == "folded" {
				t.Errorf("%s: the key awaits pods: %t, and the engine lists %v", what, left, o.engine.awaiting)
			}
			if seen := o.engine.seenAt.Equal(o.now); seen != (what != "nothing") {
				t.Errorf("%s, %s: something has been seen: %t", what, how, seen)
			}
		}
	}
}

// Each key that awaits a kind is checked when the kind is folded, whatever the result for the
// others.
func TestEachKeyThatAwaitsAKindIsLookedAt(t *testing.T) {
	o := open(t, Settings{})
	var all []*entry
	for i, name := range []string{"a", "b", "c", "d"} {
		e := o.engine.entry(events.Key{Namespace: "default", Name: name})
		e.write.effects = []effect{of("pods", []string{"p", "q"}[i%2], "", "5", false)}
		o.engine.awaitEffects(e, &e.write)
		all = append(all, e)
	}
	o.memory.Fold("pods", []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("p", "", 5), 1)})
	o.engine.recheckIf("pods", func(e *entry) bool { return e != all[0] })
	var left []string
	for _, e := range o.engine.awaiting["pods"] {
		left = append(left, e.key.Name)
	}
	if want := []string{"a", "b", "d"}; !cmp.Equal(left, want) || !all[0].awaits("pods") || len(all[2].listed) != 0 || len(all[1].listed) != 1 {
		t.Errorf("pods are awaited by %v, want %v", left, want)
	}
}

// An effect is nowhere when a discovery that cannot have missed its kind has not found it,
// unless the engine waits for the kind's stream.
func TestWhichEffectsAreNowhere(t *testing.T) {
	o := open(t, Settings{})
	o.memory.Follow(kinds.Nodes.Kind)
	o.engine.named = map[kinds.Name]bool{"jobs.batch": true}
	o.engine.shut["leases.coordination.k8s.io"] = true
	o.engine.discoveries, o.engine.discovered = 4, 3
	o.memory.View("toy", nil, func(s cache.Snapshot) {
		for what, c := range map[string]struct {
			kind      kinds.Name
			discovery int
			want      bool
		}{
			"found by no discovery":         {"configmaps", 2, true},
			"not by the one that it needed": {"configmaps", 3, true},
			"that discovery goes on":        {"configmaps", 4, false},
			"it is followed":                {"nodes", 2, false},
			"it is named":                   {"jobs.batch", 2, false},
			"it is being read":              {"leases.coordination.k8s.io", 2, false},
		} {
			u := of(c.kind, "x", "u", "5", false)
			u.discovery = c.discovery
			if got := o.engine.hasNoStream(s, u); got != c.want {
				t.Errorf("%s: the effect has no stream: %t, want %t", what, got, c.want)
			}
		}
	})
}

// An effect has the present epoch of its kind, once the kind is open, unless the writer has
// named its epoch.
func TestWhenAnEffectIsDated(t *testing.T) {
	o := open(t, Settings{})
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "5", 0), 4)
	told := of("pods", "told", "u", "5", false)
	told.Dated, told.Epoch = true, 2
	l := &lane{effects: []effect{of("pods", "p", "u", "5", false), told, of("jobs.batch", "j", "u", "5", false)}}
	o.engine.shut["pods"] = true
	if o.engine.setEpochs(l); l.effects[0].Dated {
		t.Error("an effect gets an epoch while its kind is being read")
	}
	delete(o.engine.shut, "pods")
	o.engine.setEpochs(l)
	if got := l.effects; !got[0].Dated || got[0].Epoch != 4 || got[1].Epoch != 2 || got[2].Dated {
		t.Errorf("the effects are %+v, want epochs 4 and 2, and none of a kind that is not read", got)
	}
}

// of is the effect of a result about an object in the namespace default.
func of(kind kinds.Name, called string, uid types.UID, version string, removed bool) effect {
	return effect{Effect: cache.Effect{Result: events.Result{
		Ref: events.Ref{Kind: kind, Namespace: "default", Name: called}, UID: uid, Version: version, Removed: removed,
	}}}
}

// A key that awaits several effects of a kind is listed once for that kind.
func TestAKeyAwaitsEachKindOnce(t *testing.T) {
	o := open(t, Settings{})
	e := o.engine.entry(web)
	e.write.effects = []effect{of("pods", "a", "u", "5", false), of("pods", "b", "v", "6", false)}
	o.engine.awaitEffects(e, &e.write)
	if len(o.engine.awaiting["pods"]) != 1 || len(e.listed) != 1 || !e.awaits("pods") || e.awaits("nodes") || !e.effectCheckSet {
		t.Errorf("awaited are %v by %d keys", e.listed, len(o.engine.awaiting["pods"]))
	}
	if state := e.write.state(); len(state.Unseen) != 2 || state.Unseen[1].Name != "b" {
		t.Errorf("the unseen effects are %v", state.Unseen)
	}
	e.write.effects = nil
	if o.engine.recheck("pods"); len(o.engine.awaiting["pods"]) != 0 || len(e.listed) != 0 {
		t.Errorf("%d keys await effects that have come, want none", len(o.engine.awaiting["pods"]))
	}
	if o.engine.awaitEffects(e, &lane{}); len(e.listed) != 0 {
		t.Error("a lane without effects awaits some")
	}
}
