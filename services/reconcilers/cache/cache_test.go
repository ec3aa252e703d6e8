package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache/cachetest"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// names prints a list as "namespace/name version" in its order.
func names[T metav1.Object](list []T) string {
	var out []string
	for _, o := range list {
		out = append(out, o.GetNamespace()+"/"+o.GetName()+" "+o.GetResourceVersion())
	}
	return strings.Join(out, ", ")
}

// The memory answers like a plain search through the last delta of every object, however the
// deltas are batched and repeated.
func TestMemoryIsAFold(t *testing.T) {
	owners := []string{"", "web", "db"}
	spaces := []string{"default", "other"}
	rapid.Check(t, func(t *rapid.T) {
		m := New()
		m.Register(toy().Describe())
		m.Follow(kinds.Pods.Kind)
		m.Follow(kinds.ReplicaSets.Kind)
		model := map[string]metav1.Object{}
		var batch []events.Message
		flush := func() { m.Fold(kinds.Pods.Name, batch); batch = nil }
		steps := rapid.IntRange(1, 80).Draw(t, "steps")
		for i := 1; i <= steps; i++ {
			pod := aPod(fmt.Sprint("p", rapid.IntRange(0, 12).Draw(t, "name")), rapid.SampledFrom(owners).Draw(t, "owner"), i)
			pod.Namespace = rapid.SampledFrom(spaces).Draw(t, "namespace")
			pod.UID = types.UID(fmt.Sprint(pod.Namespace, "/", pod.Name, rapid.IntRange(0, 1).Draw(t, "life"), "-", i/20))
			op, at := events.Is, pod.Namespace+"/"+pod.Name
			if rapid.IntRange(0, 3).Draw(t, "op") == 0 {
				op = events.Gone
			}
			if op == events.Is && m.dead(pod.UID, batch) {
				continue // a uid never lives again
			}
			message := delta(kinds.Pods.Kind, op, pod, uint64(i))
			if batch = append(batch, message); rapid.Bool().Draw(t, "twice") {
				batch = append(batch, message)
			}
			if delete(model, at); op == events.Is {
				model[at] = pod
			}
			if rapid.IntRange(0, 5).Draw(t, "flush") == 0 {
				flush()
			}
		}
		flush()
		check(t, m, model, owners, spaces)
	})
}

// dead reports whether the object of a uid has been deleted in what was folded, or will be in
// batch.
func (m *Cache) dead(uid types.UID, batch []events.Message) bool {
	if _, gone := m.kinds[kinds.Pods.Name].gone[uid]; gone {
		return true
	}
	for _, b := range batch {
		if b.Get(events.HeaderUID) == string(uid) && b.Get(events.HeaderOp) == string(events.Gone) {
			return true
		}
	}
	return false
}

func check(t *rapid.T, m *Cache, model map[string]metav1.Object, owners, spaces []string) {
	search := func(keep func(metav1.Object) bool) string {
		var found []metav1.Object
		for _, o := range model {
			if keep(o) {
				found = append(found, o)
			}
		}
		slices.SortFunc(found, func(a, b metav1.Object) int {
			return strings.Compare(a.GetNamespace()+"\x00"+a.GetName(), b.GetNamespace()+"\x00"+b.GetName())
		})
		return names(found)
	}
	same := func(what, got, want string) {
		if got != want {
			t.Fatalf("%s is\n%s, want\n%s", what, got, want)
		}
	}
	controller := func(o metav1.Object) types.UID {
		if c := metav1.GetControllerOf(o); c != nil {
			return c.UID
		}
		return ""
	}
	m.View("toy", nil, func(s Snapshot) {
		same("all", names(s.List(kinds.Pods.Name, "")), search(func(metav1.Object) bool { return true }))
		for _, ns := range spaces {
			same("namespace", names(s.List(kinds.Pods.Name, ns)), search(func(o metav1.Object) bool { return o.GetNamespace() == ns }))
			same("orphans", names(s.Orphans(kinds.Pods.Name, ns)),
				search(func(o metav1.Object) bool { return o.GetNamespace() == ns && controller(o) == "" }))
		}
		for _, owner := range owners[1:] {
			uid := types.UID("uid-" + owner)
			owned := search(func(o metav1.Object) bool { return controller(o) == uid })
			same("controlled", names(s.ControlledBy(kinds.Pods.Name, uid)), owned)
			same("dependents", names(s.Dependents(uid)), owned)
		}
		for _, o := range model {
			got, ok := s.Get(kinds.Pods.Name, o.GetNamespace(), o.GetName())
			by, found := s.ByUID(o.GetUID())
			if !ok || !found || by.Object != got || got.GetUID() != o.GetUID() {
				t.Fatalf("%s is not found by name or uid", o.GetName())
			}
		}
	})
	if got := len(m.uids); got != len(model) {
		t.Fatalf("%d uids are known of %d objects", got, len(model))
	}
}

func TestMemoryIgnoresThePast(t *testing.T) {
	o := follow()
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	old := aPod("p", "web", 3)
	o.change(kinds.Pods.Kind, events.Is, old)
	other := aPod("p", "web", 4)
	other.UID = "former"
	o.change(kinds.Pods.Kind, events.Gone, other)
	o.View("toy", nil, func(s Snapshot) {
		if got := names(s.List(kinds.Pods.Name, "")); got != "default/p 5" {
			t.Errorf("the memory holds %q", got)
		}
	})
	o.change(kinds.Pods.Kind, events.Gone, aPod("p", "web", 6))
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	if n := o.Count(kinds.Pods.Name); n != 0 {
		t.Errorf("%d objects after the end of the only one", n)
	}
}

func TestLaterEpochIsLater(t *testing.T) {
	o := follow()
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 50))
	m := delta(kinds.Pods.Kind, events.Is, aPod("p", "", 20), 2)
	m.Header[events.HeaderEpoch] = []string{"1"}
	o.Fold(kinds.Pods.Name, []events.Message{m})
	o.View("toy", nil, func(s Snapshot) {
		if got := names(s.Orphans(kinds.Pods.Name, "default")); got != "default/p 20" {
			t.Errorf("after the restore the cache holds %q, want the pod at 20", got)
		}
	})
}

func TestForgetNamesEveryKey(t *testing.T) {
	o := follow()
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 1))
	o.change(kinds.Pods.Kind, events.Is, aPod("q", "db", 2))
	keys := o.Forget(kinds.Pods.Name)["toy"]
	if got := fmt.Sprint(keys); got != "[default/web default/db]" {
		t.Errorf("keys are %s", got)
	}
	o.Follow(kinds.Pods.Kind)
	if o.Position(kinds.Pods.Name) != 0 || o.Count(kinds.Pods.Name) != 0 {
		t.Error("after Follow the cache still has messages or objects")
	}
}

// A controller sees only the kinds that it reads.
func TestSceneIsLimitedToWhatIsRead(t *testing.T) {
	o := follow()
	o.Register(reconcile.Description{Name: "narrow", Inputs: []reconcile.Input{{Kind: kinds.ReplicaSets.Kind}}})
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 1))
	o.View("narrow", nil, func(s Snapshot) {
		_, byUID := s.ByUID("uid-p")
		_, kind := s.KindOf("", "Pod")
		if byUID || kind || len(s.Dependents("uid-web")) > 0 || len(s.List(kinds.Pods.Name, "")) > 0 || len(s.Seen()) != 1 {
			t.Error("a kind that is not read can be seen")
		}
	})
	o.View("toy", nil, func(s Snapshot) {
		if k, ok := s.KindOf("", "Pod"); !ok || k.Name != kinds.Pods.Name {
			t.Error("a kind that is read is not found")
		}
	})
}

func BenchmarkFoldAndList(b *testing.B) {
	batch := make([]events.Message, 10000)
	for i := range batch {
		batch[i] = delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", i), fmt.Sprint("set", i%500), i+1), uint64(i+1))
	}
	for b.Loop() {
		m := New()
		m.Register(toy().Describe())
		m.Follow(kinds.Pods.Kind)
		m.Fold(kinds.Pods.Name, batch)
	}
}

// No query finds objects of a forgotten kind; the kind itself stays known until Unfollow.
func TestAForgottenKindIsFoundInNoWay(t *testing.T) {
	o := follow()
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 1))
	o.change(kinds.Pods.Kind, events.Is, aPod("q", "", 2))
	o.Forget(kinds.Pods.Name)
	known := func(want bool) {
		t.Helper()
		o.View("toy", nil, func(s Snapshot) {
			_, byUID := s.ByUID("uid-p")
			if _, known := s.Kind(kinds.Pods.Name); byUID || known != want || len(s.Dependents("uid-web")) > 0 || len(s.List(kinds.Pods.Name, "")) > 0 ||
				len(s.ControlledBy(kinds.Pods.Name, "uid-web")) > 0 || len(s.Orphans(kinds.Pods.Name, "default")) > 0 {
				t.Errorf("an object of the forgotten kind is found; the kind is known: %t", known)
			}
		})
	}
	known(true)
	o.Unfollow(kinds.Pods.Name)
	known(false)
}

// A controller that registers twice is listed once, and a damaged message counts until the next census.
func TestDamageCountsUntilItIsMadeGood(t *testing.T) {
	o := follow()
	o.Register(toy().Describe())
	if got := o.names; !slices.Equal(got, []string{"toy"}) {
		t.Errorf("the controllers are %v", got)
	}
	m := events.Seal(delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 1), 1))
	m.Header[events.HeaderRV] = []string{"9"}
	if o.Fold(kinds.Pods.Name, []events.Message{m}); o.Completeness(kinds.Pods.Name).Broken == nil {
		t.Error("a message with wrong sums is no damage")
	}
	if o.Fold(kinds.Pods.Name, []events.Message{markAt(kinds.Pods.Kind, "9", 2)}); o.Completeness(kinds.Pods.Name).Broken == nil {
		t.Error("the cache counts as complete before a census has followed")
	}
	if o.Fold(kinds.Pods.Name, []events.Message{said(markAt(kinds.Pods.Kind, "9", 3))}); o.Completeness(kinds.Pods.Name).Broken != nil {
		t.Error("the cache does not count as complete although a census has followed")
	}
}

// A deletion that is reported long after it happened leaves no tombstone.
func TestAnEndOfLongAgoIsNotRemembered(t *testing.T) {
	k := newKindCache(kinds.Pods.Kind)
	k.newest = epoch.Add(tombstoneAge + 1)
	if k.addTombstone(tombstone{uid: "u", at: epoch, name: types.NamespacedName{Namespace: "default", Name: "p"}}); len(k.gone)+len(k.last)+len(k.tombstones) != 0 {
		t.Errorf("remembered are %v, %v and %v", k.gone, k.last, k.tombstones)
	}
}

// followed is a cache of ReplicaSets and pods, which the controller toy reads.
type followed struct {
	*Cache
	sequence map[kinds.Name]uint64
}

func follow() *followed {
	f := &followed{New(), map[kinds.Name]uint64{}}
	f.Follow(kinds.ReplicaSets.Kind)
	f.Follow(kinds.Pods.Kind)
	f.Register(toy().Describe())
	return f
}

// change folds the next message of a kind's log.
func (f *followed) change(kind kinds.Kind, op events.Op, obj cachetest.Object) {
	f.sequence[kind.Name]++
	f.Fold(kind.Name, []events.Message{delta(kind, op, obj, f.sequence[kind.Name])})
}
