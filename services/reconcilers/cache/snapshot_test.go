package cache

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// restored is a memory of pods whose API server was restored to an earlier time: in epoch 1
// "ended" was deleted at version 9, and in epoch 2 "there" is at version 5, and "gone" was
// deleted at version 6.
func restored(t *testing.T, see func(Snapshot)) {
	t.Helper()
	m := New()
	m.Follow(kinds.Pods.Kind)
	m.Register(toy().Describe())
	fold := func(sequence, epoch uint64, op events.Op, called string, version int) {
		told := delta(kinds.Pods.Kind, op, aPod(called, "", version), sequence)
		m.Fold(kinds.Pods.Name, []events.Message{changed(t, told, func(d *events.Delta) { d.Epoch = epoch })})
	}
	fold(1, 1, events.Is, "ended", 8)
	fold(2, 1, events.Gone, "ended", 9)
	fold(3, 1, events.Is, "there", 90)
	fold(4, 2, events.Is, "there", 5)
	fold(5, 2, events.Is, "gone", 5)
	fold(6, 2, events.Gone, "gone", 6)
	m.View("toy", nil, see)
}

// Versions of different epochs cannot be compared: a deletion before the epoch of an Effect is
// not that Effect, and a state of a later epoch is later.
func TestWhichEffectsHaveReturnedInTheirEpoch(t *testing.T) {
	in := func(epoch uint64, u Effect) Effect { u.Dated, u.Epoch = true, epoch; return u }
	restored(t, func(s Snapshot) {
		for what, c := range map[string]struct {
			due  Effect
			back bool
		}{
			"an end of the epoch before":            {in(2, of("pods", "ended", "uid-ended", "5", false)), false},
			"an end of the epoch before, of no uid": {in(2, of("pods", "ended", "", "5", false)), false},
			"an end of its epoch":                   {in(1, of("pods", "ended", "uid-ended", "8", false)), true},
			"an end, of another uid":                {in(1, of("pods", "ended", "other", "8", false)), true},
			"an end, of another uid and later":      {in(1, of("pods", "ended", "other", "10", false)), false},
			"an end of a later epoch":               {in(1, of("pods", "gone", "other", "80", false)), true},
			"a later version of the epoch before":   {in(1, of("pods", "there", "uid-there", "99", false)), true},
			"one of its epoch":                      {in(2, of("pods", "there", "uid-there", "5", false)), true},
			"a later one of its epoch":              {in(2, of("pods", "there", "uid-there", "6", false)), false},
			"a removal that a restore has undone":   {in(1, of("pods", "there", "uid-there", "", true)), true},
			"a removal of its epoch":                {in(2, of("pods", "there", "uid-there", "", true)), false},
			"of no epoch that is known":             {of("pods", "there", "uid-there", "6", false), false},
			"of an epoch that is to come":           {in(3, of("pods", "there", "uid-there", "5", false)), false},
		} {
			if s.HasReturned(c.due) != c.back {
				t.Errorf("%s: the effect has returned: %t, want %t", what, !c.back, c.back)
			}
		}
		if e := s.Epochs(); len(e) != 1 || e["pods"] != 2 {
			t.Errorf("the epochs are %v", e)
		}
	})
	withPods(t, func(s Snapshot) {
		first := of("pods", "there", "", "99", false)
		if first.Seen = 1; !s.HasReturned(first) {
			t.Error("the first position was not reached")
		}
	})
}

// A snapshot does not show an outcome of an epoch that has ended: its answers may no longer be
// true.
func TestOutcomesOfAnEpochThatHasEnded(t *testing.T) {
	restored(t, func(s Snapshot) {
		for what, c := range map[string]struct {
			epochs events.Epochs
			seen   bool
		}{
			"of the epoch before":               {events.Epochs{"pods": 1}, false},
			"of the first epoch":                {events.Epochs{"pods": 0}, false},
			"of this epoch":                     {events.Epochs{"pods": 2}, true},
			"of an epoch that is to come":       {events.Epochs{"pods": 3}, true},
			"of a kind that is not read":        {events.Epochs{"secrets": 1}, true},
			"of two kinds, one of which is old": {events.Epochs{"secrets": 2, "pods": 1}, false},
			"of no epoch that is known":         {nil, true},
		} {
			s.last = func(events.Key, events.Lane) (events.Outcome, bool) { return events.Outcome{Epochs: c.epochs}, true }
			if _, seen := s.Last(events.Key{}, events.LaneWrite); seen != c.seen {
				t.Errorf("%s: the outcome is seen: %t, want %t", what, seen, c.seen)
			}
		}
	})
}

// KindOf finds a kind by its group and kind, and of several the first by name.
func TestWhichKindIsFound(t *testing.T) {
	m := New()
	every := reconcile.Description{Name: "every", Inputs: []reconcile.Input{{Every: true}}}
	m.Register(every)
	m.Register(reconcile.Description{Name: "nodes", Inputs: []reconcile.Input{{Kind: kinds.Nodes.Kind}}})
	for _, kind := range []kinds.Kind{kinds.Pods.Kind, kinds.ReplicaSets.Kind, kinds.Nodes.Kind} {
		m.Follow(kind)
	}
	for _, called := range []kinds.Name{"widgets.example.com", "gadgets.example.com", "things.example.com"} {
		m.Follow(kinds.Kind{Name: called, Kind: "Widget"})
	}
	m.View("every", nil, func(s Snapshot) {
		for _, c := range []struct {
			group, kind string
			want        kinds.Name
		}{
			{"", "Pod", "pods"}, {"apps", "ReplicaSet", kinds.ReplicaSets.Name}, {"apps", "Pod", ""}, {"", "ReplicaSet", ""},
			{"example.com", "Widget", "gadgets.example.com"}, {"", "Widget", ""},
		} {
			if k, ok := s.KindOf(c.group, c.kind); k.Name != c.want || ok != (c.want != "") {
				t.Errorf("%s of %q is %q, %t", c.kind, c.group, k.Name, ok)
			}
		}
		if seen := s.Seen(); len(seen) != 6 {
			t.Errorf("seen are %v", seen)
		}
	})
	m.View("nodes", nil, func(s Snapshot) {
		if _, ok := s.KindOf("", "Pod"); ok {
			t.Error("a kind that is not read is found")
		}
	})
}

// A list is in the order of the names, and that of a namespace ends with the namespace.
func TestAListOfANamespaceIsInOrder(t *testing.T) {
	m := New()
	m.Follow(kinds.Pods.Kind)
	m.Register(toy().Describe())
	for i, at := range []struct{ namespace, name string }{{"b", "y"}, {"a", "z"}, {"c", "w"}, {"b", "x"}} {
		pod := aPod(at.name, "web", i+1)
		pod.Namespace, pod.UID = at.namespace, types.UID(at.namespace+at.name)
		m.Fold(kinds.Pods.Name, []events.Message{delta(kinds.Pods.Kind, events.Is, pod, uint64(i+1))})
	}
	m.View("toy", nil, func(s Snapshot) {
		for what, c := range map[string]struct {
			list []metav1.Object
			want string
		}{
			"all":       {s.List("pods", ""), "a/z 2, b/x 4, b/y 1, c/w 3"},
			"of b":      {s.List("pods", "b"), "b/x 4, b/y 1"},
			"of none":   {s.List("pods", "aa"), ""},
			"dependent": {s.ControlledBy("pods", "uid-web"), "a/z 2, b/x 4, b/y 1, c/w 3"},
		} {
			if got := names(c.list); got != c.want {
				t.Errorf("%s: %s, want %s", what, got, c.want)
			}
		}
		k, _ := s.kind("pods")
		for h := range k.in("b") {
			if h.ref.Name != "x" {
				t.Errorf("%s comes first", h.ref.Name)
			}
			break
		}
	})
}
