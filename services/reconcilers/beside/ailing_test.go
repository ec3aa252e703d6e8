package beside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// seen returns a session that has read some ConfigMaps.
func seen(t *testing.T, controller reconcile.Any, names ...string) *session {
	t.Helper()
	x, _, s := onAiling(t, controller)
	for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
		x.world.begin(kind, 0, nil)
	}
	for _, name := range names {
		s.say(kinds.ConfigMaps.Kind, name, "m", "kubectl", one)
	}
	must(t, s.bus.Read(t.Context(), bus.Passage{Stream: subject.LogStream("configmaps")}, func(batch []events.Message) error {
		for _, m := range batch {
			ref, err := subject.ParseDelta(m.Subject)
			must(t, err)
			d, err := events.DecodeDelta(ref, m)
			must(t, err)
			x.world.fold(arrival{kind: kinds.ConfigMaps.Kind, message: m, delta: d})
		}
		return nil
	}))
	return x
}

func TestWhatAWorkerReadsAndOwns(t *testing.T) {
	x := seen(t, copies, "web")
	d := x.engines[0]
	at := events.Position{"configmaps": 3, "pods": 4}
	if got := d.reads(at); len(got) != 1 || got["configmaps"] != 3 {
		t.Errorf("the controller reads %v, want its own kind at 3", got)
	}
	d.described.Inputs = []reconcile.Input{{Every: true}}
	if got := d.reads(at); len(got) != 2 {
		t.Errorf("a controller of every kind reads %v, want both kinds", got)
	}
	key := events.Key{Kind: "x", Namespace: "ns", Name: "web"}
	if d.own(key) != events.Ref(key) {
		t.Errorf("a key that is no object is of %v", d.own(key))
	}
	d.described.Owns = &kinds.Pods.Kind
	if got := d.own(key); got != (events.Ref{Kind: "pods", Namespace: "ns", Name: "web"}) {
		t.Errorf("the key is of %v, want the pod", got)
	}
	if d.String() != "shadow of copies" {
		t.Errorf("the engine is called %s", d)
	}
	every := reconcile.Controller[bool]{Name: "all", Inputs: []reconcile.Input{{Every: true}, {Kind: kinds.Pods.Kind}, {Kind: kinds.ConfigMaps.Kind}}}
	if named, all := names([]reconcile.Any{copies, every}); !all || !slices.Equal(named, []kinds.Name{"configmaps", "serviceaccounts", "pods"}) {
		t.Errorf("the named kinds are %v, and every kind: %t", named, all)
	}
	if _, all := names([]reconcile.Any{copies}); all {
		t.Error("a controller that names its kinds reads every kind")
	}
}

// all returns each key of the existing objects once, in order. A mapping that panics gives no keys.
func TestTheKeysOfAWorker(t *testing.T) {
	x := seen(t, copies, "web", "db", "api")
	d := x.engines[0]
	if got := fmt.Sprint(d.all()); got != fmt.Sprint([]events.Key{{Name: "api"}, {Name: "db"}, {Name: "web"}}) {
		t.Errorf("the keys are %s", got)
	}
	was := reconcile.Object{Kind: kinds.ConfigMaps.Kind, Object: &metav1.ObjectMeta{Namespace: "gone"}}
	if got := d.keys(was, reconcile.Object{}); len(got) != 1 || got[0].Name != "gone" {
		t.Errorf("of an object that is gone the keys are %v, want gone", got)
	}
	other := reconcile.Object{Kind: kinds.Pods.Kind, Object: &metav1.ObjectMeta{Namespace: "x"}}
	if got := d.keys(reconcile.Object{}, other); len(got) != 0 {
		t.Errorf("of a kind that is not read the keys are %v, want none", got)
	}
	twice := d.described.Inputs[0]
	d.described.Inputs = []reconcile.Input{twice, twice, {Kind: kinds.ConfigMaps.Kind}}
	if got := d.keys(was, reconcile.Object{}); len(got) != 1 {
		t.Errorf("of two mappings to one key the keys are %v, want 1", got)
	}
	reversed := twice
	reversed.Keys = func(reconcile.Snapshot, reconcile.Object, reconcile.Object) []events.Key {
		return []events.Key{{Name: "z"}, {Name: "a"}}
	}
	d.described.Inputs = []reconcile.Input{reversed}
	if got := fmt.Sprint(d.all()); got != fmt.Sprint([]events.Key{{Name: "a"}, {Name: "z"}}) {
		t.Errorf("of a mapping in another order the keys are %s, want sorted", got)
	}
	panics, broken := twice, 0
	panics.Keys = func(reconcile.Snapshot, reconcile.Object, reconcile.Object) []events.Key { panic("so") }
	d.broken = func(events.Key, any) { broken++ }
	d.described.Inputs = []reconcile.Input{panics}
	if got := d.keys(was, reconcile.Object{}); len(got) != 0 || broken != 1 {
		t.Errorf("of a mapping that panics the keys are %v, reported %d times; want none, and once", got, broken)
	}
}

// Due wakes are sorted by time, and then by key.
func TestWhichWakesAreDue(t *testing.T) {
	now := time.Now()
	key := func(kind kinds.Name, namespace, name string) events.Key {
		return events.Key{Kind: kind, Namespace: namespace, Name: name}
	}
	d := &engine{wakes: map[events.Key]time.Time{
		key("", "a", "late"): now, key("", "b", "x"): now.Add(-time.Second), key("", "a", "y"): now.Add(-time.Second), key("", "a", "x"): now.Add(-time.Second),
		key("k", "a", "x"): now.Add(-time.Second), key("", "a", "never"): now.Add(1),
	}}
	want := []events.Key{key("", "a", "x"), key("", "a", "y"), key("", "b", "x"), key("k", "a", "x"), key("", "a", "late")}
	if got := d.due(now); !slices.Equal(got, want) {
		t.Errorf("due are %v, want %v", got, want)
	}
}

// A turn records what it rests on, its object, and when the key is to be asked again.
func TestATurnOfAShadowSaysWhatItRestsOn(t *testing.T) {
	x := seen(t, copies, "web")
	d := x.engines[0]
	key := events.Key{Name: "web"}
	a, ok := d.ask(x.world.at, key, time.Now(), d.matcher.Last)
	if !ok || len(a.wants) != 1 || len(a.decision.Commands) != 1 {
		t.Fatalf("the answer is %+v, %t", a.decision, ok)
	}
	x.world.epochs["configmaps"] = 1
	a.own = &metav1.ObjectMeta{UID: "u", ResourceVersion: "5", Generation: 2}
	a.decision.WakeAt = time.Now().Add(time.Hour)
	a.decision.Commands[0].OnApplied = &events.Notice{Message: "done"}
	d.described.Owns = &kinds.Pods.Kind
	turn, wants := d.turn(a, key, events.LaneWrite, events.Trigger{Sequence: 7}, "v1")
	if !wants || turn.Controller != "copies" || turn.Seen["configmaps"] != 1 || turn.Epochs["configmaps"] != 1 || len(turn.Epochs) != 1 || turn.Kind != "pods" ||
		turn.UID != "u" || turn.ResourceVersion != "5" || turn.Generation != 2 || turn.WakeAt == nil || turn.Code != "v1" || turn.Triggers[0].Sequence != 7 || len(turn.Notices) != 1 || turn.Digest == 0 {
		t.Errorf("the turn is %+v, %t", turn, wants)
	}
	a.own, a.decision.WakeAt = nil, time.Time{}
	if turn, wants := d.turn(a, key, events.LaneStatus, events.Trigger{}, ""); wants || turn.UID != "" || turn.WakeAt != nil {
		t.Errorf("the turn of a lane without a decision is %+v, %t; want none", turn, wants)
	}
	if a, ok := d.ask(events.Position{"configmaps": 99}, key, time.Now(), nil); ok && a.seen["configmaps"] != 99 {
		t.Errorf("on another view it saw %v", a.seen)
	}
	x.world.begin(kinds.ConfigMaps.Kind, 5, nil)
	if _, ok := d.ask(events.Position{"configmaps": 1}, key, time.Now(), nil); ok {
		t.Error("on a view that is not remembered it answers")
	}
	if o := (asker{d, events.Position{"configmaps": 1}, time.Now()}).Object(key); o != nil {
		t.Errorf("on a view that is not remembered there is %v", o)
	}
	if keys := d.keys(reconcile.Object{}, reconcile.Object{Kind: kinds.ConfigMaps.Kind, Object: &metav1.ObjectMeta{}}); len(keys) != 1 {
		t.Errorf("the keys are %v", keys)
	}
}

// Two objects are equally good to delete only if the controller says so, and if the view is known and
// has both.
func TestWhatIsAsGoodOnAView(t *testing.T) {
	good := copies
	good.AsGood = func(_ string, chosen, other types.UID, _ time.Time) bool { return chosen != other }
	ref := func(namespace string) events.Ref {
		return events.Ref{Kind: "configmaps", Namespace: namespace, Name: "m"}
	}
	key := events.Key{Name: "web"}
	for what, c := range map[string]struct {
		controller reconcile.Any
		view       shadow.View
		other      events.Ref
		want       bool
	}{
		"as it says":              {good, shadow.View{}, ref("db"), true},
		"it says nothing":         {copies, shadow.View{}, ref("db"), false},
		"the same one":            {good, shadow.View{}, ref("web"), false},
		"one that is not there":   {good, shadow.View{}, ref("x"), false},
		"a view too far back":     {good, shadow.View{Back: map[kinds.Name]int{"configmaps": 99}}, ref("db"), false},
		"a view of before it was": {good, shadow.View{Back: map[kinds.Name]int{"configmaps": 1}}, ref("db"), false},
		"no change back":          {good, shadow.View{Back: map[kinds.Name]int{"configmaps": 0}}, ref("db"), true},
	} {
		x := seen(t, c.controller, "web", "db")
		a := asker{x.engines[0], x.world.at, x.world.now}
		if got := a.AsGood(key, c.view, ref("web"), c.other); got != c.want {
			t.Errorf("%s: AsGood is %t, want %t", what, got, c.want)
		}
		if _, known := a.Ask(key, c.view); known != (c.view.Back["configmaps"] < 99) {
			t.Errorf("%s: Ask returns a decision: %t, want only on a view that is known", what, known)
		}
	}
}

// On a view, a controller knows only the outcome that the view names, of the asked key in the write lane.
func TestWhichOutcomeIsKnownOnAView(t *testing.T) {
	var heard []bool
	c := copies
	c.Observe = func(s reconcile.Snapshot, k events.Key) (string, bool) {
		for _, asked := range []events.Key{k, {Name: "other"}} {
			for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus} {
				_, known := s.Last(asked, lane)
				heard = append(heard, known)
			}
		}
		return "", true
	}
	x := seen(t, c, "web")
	a := asker{x.engines[0], x.world.at, x.world.now}
	a.Ask(events.Key{Name: "web"}, shadow.View{Last: &events.Outcome{Turn: 3}})
	if !slices.Equal(heard, []bool{true, false, false, false}) {
		t.Errorf("known are %v", heard)
	}
	heard = nil
	if a.Ask(events.Key{Name: "web"}, shadow.View{}); slices.Contains(heard, true) {
		t.Errorf("where nothing is said known are %v", heard)
	}
}

// If the world does not hold a log up to the position that was read, it has no keys and no objects.
func TestNoKeysOfAWorldThatIsNotKnown(t *testing.T) {
	x, _, _ := onAiling(t, copies)
	x.world.at["configmaps"] = 3
	x.world.kinds["configmaps"] = kinds.ConfigMaps.Kind
	d, there := x.engines[0], reconcile.Object{Kind: kinds.ConfigMaps.Kind, Object: &metav1.ObjectMeta{Namespace: "web"}}
	if keys := d.keys(reconcile.Object{}, there); len(keys) != 0 {
		t.Errorf("the keys are %v, want none", keys)
	}
	if keys := d.all(); len(keys) != 0 {
		t.Errorf("all keys are %v, want none", keys)
	}
	if o := x.world.object(x.world.at, kinds.ConfigMaps.Kind, events.Ref{Kind: "configmaps", Namespace: "web", Name: "m"}); !o.None() {
		t.Errorf("there is %v", o)
	}
}

// asked counts the calls of Kinds, which all fail.
type asked struct {
	*ailing
	times *int
}

func (a asked) Kinds(context.Context) ([]kinds.Kind, error) { *a.times++; return nil, away }

// The service restarts a comparison that cannot begin every second, and its check has the reason.
func TestAComparisonIsBegunAnewEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times, s := 0, begin(t)
		service, err := New(Config{Bus: asked{&ailing{Bus: s.bus}, &times}, Controllers: []reconcile.Any{copies}})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- service.Run(ctx) }()
		time.Sleep(10*time.Second + tick) // virtual
		synctest.Wait()
		if err := service.Checks()["shadows"](); times != 11 || !errors.Is(err, away) {
			t.Errorf("in ten seconds the comparison began %d times, and the check says %v; want 11 and the error of the bus", times, err)
		}
		if restarts := testutil.ToFloat64(service.metrics.restarts); restarts != 11 {
			t.Errorf("the metric counts %v restarts, want 11", restarts)
		}
		cancel()
		if err := <-done; err != nil || service.Checks()["shadows"]() == nil {
			t.Errorf("the service ends with %v, want nil and a failing check", err)
		}
	})
}

// In a round, every controller's findings are stored in its own stream. A finding that cannot be stored
// ends the round with an error.
func TestEachControllerHasItsRound(t *testing.T) {
	other := copies
	other.Name = "others"
	x, a, s := onAiling(t, copies, other)
	must(t, s.bus.EnsureShadow(t.Context(), other.Name))
	for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
		x.world.begin(kind, 0, nil)
	}
	x.world.now, x.begun = time.Now(), true
	want := []shadow.Want{{Verb: events.VerbDelete, Ref: events.Ref{Kind: "serviceaccounts", Namespace: "web", Name: "copy"}, UID: "u"}}
	for _, d := range x.engines {
		d.matcher.Decided(shadow.Answer{Key: events.Key{Name: "web"}, Wants: want, At: x.world.now.Add(-time.Hour)})
	}
	must(t, x.advance(t.Context(), time.Now()))
	for _, name := range []string{copies.Name, other.Name} {
		if at, err := s.bus.StreamState(t.Context(), subject.ShadowStream(name)); err != nil || at.Messages != 1 {
			t.Errorf("of %s %d findings are stored, want 1 (%v)", name, at.Messages, err)
		}
	}
	a.put = fmt.Errorf("put: %w", bus.ErrClosed)
	for _, d := range x.engines {
		d.wakes[events.Key{Name: "web"}] = time.Time{}.Add(1)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	x.engines[0].kept = []kept{{Found: shadow.Found{Finding: report.Finding{Controller: copies.Name}}}}
	if err := x.advance(ended, time.Now()); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("a finding that cannot be stored: %v, want ErrClosed", err)
	}
}
