package garbagecollector

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
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

func expect(t *testing.T, c *cluster, want ...string) {
	t.Helper()
	c.settle()
	slices.Sort(want)
	if got := c.names(); got != strings.Join(want, " ") {
		t.Fatalf("there are %q, want %q", got, strings.Join(want, " "))
	}
	before := c.writes
	c.settle()
	if c.writes != before {
		t.Fatalf("%d writes after everything was settled", c.writes-before)
	}
}

func ownersOf(c *cluster, kind kinds.Kind, namespace, name string) string {
	o, ok := c.find(events.Ref{Kind: kind.Name, Namespace: namespace, Name: name})
	if !ok {
		return "gone"
	}
	var owners []string
	for _, ref := range o.GetOwnerReferences() {
		owners = append(owners, fmt.Sprintf("%s:%v", ref.Name, blocks(ref)))
	}
	return strings.Join(owners, " ")
}

func TestOwnerDeletedInTheBackground(t *testing.T) {
	c := inOrder(t)
	set := c.create(sets, "a", "set")
	c.create(pods, "a", "pod", refTo(sets, set, true))
	c.create(pods, "a", "other")
	expect(t, c, "set", "pod", "other")
	if c.writes != 0 {
		t.Fatalf("%d writes while everything has its owner", c.writes)
	}
	c.remove(sets, set, background)
	expect(t, c, "other")
}

func TestOwnerDeletedInTheForegroundWaits(t *testing.T) {
	c := inOrder(t)
	set := c.create(sets, "a", "set")
	slow := c.create(pods, "a", "slow", refTo(sets, set, true))
	c.create(pods, "a", "quick", refTo(sets, set, true))
	c.edit(pods, slow, func(o *metav1.PartialObjectMetadata) { o.Finalizers = []string{"example.com/hold"} })
	c.remove(sets, set, foreground)
	expect(t, c, "set", "slow") // its own finalizer keeps the pod, and the pod keeps its owner
	if o, _ := c.find(events.Ref{Kind: pods.Name, Namespace: "a", Name: "slow"}); o.GetDeletionTimestamp() == nil {
		t.Fatal("the blocking pod is not being deleted")
	}
	c.edit(pods, slow, func(o *metav1.PartialObjectMetadata) { o.Finalizers = nil })
	expect(t, c)
}

func TestOwnerDoesNotWaitForWhatDoesNotBlock(t *testing.T) {
	c := inOrder(t)
	set := c.create(sets, "a", "set")
	pod := c.create(pods, "a", "pod", refTo(sets, set, false))
	c.edit(pods, pod, func(o *metav1.PartialObjectMetadata) { o.Finalizers = []string{"example.com/hold"} })
	c.remove(sets, set, foreground)
	expect(t, c, "pod")
}

func TestForegroundOverThreeLevels(t *testing.T) {
	c := inOrder(t)
	top := c.create(widgets, "a", "top")
	set := c.create(sets, "a", "set", refTo(widgets, top, true))
	pod := c.create(pods, "a", "pod", refTo(sets, set, true))
	c.edit(pods, pod, func(o *metav1.PartialObjectMetadata) { o.Finalizers = []string{"example.com/hold"} })
	c.remove(widgets, top, foreground)
	expect(t, c, "top", "set", "pod")
	if o, _ := c.find(events.Ref{Kind: sets.Name, Namespace: "a", Name: "set"}); !waiting(o) {
		t.Fatal("the middle is not being deleted in the foreground")
	}
	c.edit(pods, pod, func(o *metav1.PartialObjectMetadata) { o.Finalizers = nil })
	expect(t, c)
}

func TestOrphaning(t *testing.T) {
	for _, kind := range []kinds.Kind{pods, widgets} {
		c := inOrder(t)
		set := c.create(sets, "a", "set")
		var want []string
		for i := range burst + 3 { // more than one turn can hold
			name := fmt.Sprintf("dependent-%03d", i)
			c.create(kind, "a", name, refTo(sets, set, true))
			want = append(want, name)
		}
		c.settle()
		c.remove(sets, set, orphan)
		expect(t, c, want...)
		if owners := ownersOf(c, kind, "a", "dependent-502"); owners != "" {
			t.Errorf("%s still has owners %s", kind.Name, owners)
		}
	}
}

func TestTwoOwners(t *testing.T) {
	for _, how := range []metav1.DeletionPropagation{background, foreground} {
		for _, kind := range []kinds.Kind{pods, widgets} {
			c := inOrder(t)
			one, two := c.create(sets, "a", "one"), c.create(sets, "a", "two")
			c.create(kind, "a", "dependent", refTo(sets, one, true), refTo(sets, two, true))
			c.settle()
			c.remove(sets, one, how)
			expect(t, c, "dependent", "two")
			if owners := ownersOf(c, kind, "a", "dependent"); owners != "two:true" {
				t.Errorf("%s %s: owners %s, want two alone", how, kind.Name, owners)
			}
		}
	}
}

func TestCircle(t *testing.T) {
	for _, how := range []metav1.DeletionPropagation{background, foreground} {
		c := inOrder(t)
		a := c.create(sets, "a", "a")
		b := c.create(widgets, "a", "b", refTo(sets, a, true))
		last := c.create(pods, "a", "c", refTo(widgets, b, true))
		c.edit(sets, a, func(o *metav1.PartialObjectMetadata) {
			o.OwnerReferences = []metav1.OwnerReference{refTo(pods, last, true)}
		})
		expect(t, c, "a", "b", "c")
		c.remove(sets, a, how)
		expect(t, c)
	}
}

func TestOwnerMadeAnew(t *testing.T) {
	c := inOrder(t)
	set := c.create(sets, "a", "set")
	c.create(pods, "a", "pod", refTo(sets, set, true))
	c.settle()
	c.remove(sets, set, background)
	c.create(sets, "a", "set")
	expect(t, c, "set")
}

func TestOwnerThatNeverWas(t *testing.T) {
	c := inOrder(t)
	c.create(pods, "a", "pod", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "never", UID: "never"})
	expect(t, c)
}

func TestOwnerInAnotherNamespace(t *testing.T) {
	c := inOrder(t)
	set := c.create(sets, "a", "set")
	c.create(pods, "a", "right", refTo(sets, set, true))
	c.create(pods, "b", "wrong", refTo(sets, set, true))
	expect(t, c, "set", "right")
	want := fmt.Sprintf("ownerRef [apps/v1/ReplicaSet, namespace: b, name: set, uid: %s] does not exist in namespace \"b\"", set.UID)
	if len(c.told) != 1 || c.told[0].Reason != "OwnerRefInvalidNamespace" || c.told[0].Type != "Warning" ||
		c.told[0].Message != want || c.told[0].About.Name != "wrong" {
		t.Errorf("told %+v, want one warning: %s", c.told, want)
	}
}

func TestClusterScopedOwner(t *testing.T) {
	c := inOrder(t)
	node := c.create(nodes, "", "node")
	c.create(pods, "a", "pod", refTo(nodes, node, false))
	expect(t, c, "node", "pod")
	c.remove(nodes, node, background)
	expect(t, c)
}

func TestClusterScopedDependentOfANamespacedKindStays(t *testing.T) {
	c := inOrder(t)
	set := c.create(sets, "a", "set")
	c.create(nodes, "", "node", refTo(sets, set, true))
	c.create(nodes, "", "lost", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Ghost", Name: "ghost", UID: "ghost"})
	c.settle()
	c.remove(sets, set, background)
	expect(t, c, "node", "lost")
	if c.writes != 0 {
		t.Errorf("%d writes", c.writes)
	}
}

func TestKindThatIsNotServed(t *testing.T) {
	c := inOrder(t)
	c.create(pods, "a", "pod", metav1.OwnerReference{APIVersion: "gone.example.com/v1", Kind: "Unserved", Name: "x", UID: "x"})
	expect(t, c, "pod")
	if d, _ := Controller.Ask(c.seen, events.Key{Kind: "pods", Namespace: "a", Name: "pod"}, c.now); d.WakeAt.IsZero() && len(d.Commands) == 0 {
		t.Error("the decision neither wakes nor has commands, want the object looked at again")
	}
}

func TestOwnerOfAKindThatIsNotWatched(t *testing.T) {
	c := inOrder(t)
	ghost := c.create(hidden, "a", "ghost")
	c.create(pods, "a", "pod", refTo(hidden, ghost, true))
	expect(t, c, "ghost", "pod")
	c.remove(hidden, ghost, background)
	expect(t, c)
}

func TestDependentAdoptedMeanwhile(t *testing.T) {
	c := inOrder(t)
	one := c.create(sets, "a", "one")
	two := c.create(sets, "a", "two")
	pod := c.create(pods, "a", "pod", refTo(sets, one, true))
	c.settle()
	c.remove(sets, one, background)
	c.fold(sets.Name)
	c.edit(pods, pod, func(o *metav1.PartialObjectMetadata) {
		o.OwnerReferences = append(o.OwnerReferences, refTo(sets, two, true))
	})
	c.turn() // decided on the pod without its new owner
	expect(t, c, "two", "pod")
	if owners := ownersOf(c, pods, "a", "pod"); owners != "two:true" {
		t.Errorf("owners %s, want two alone", owners)
	}
}

func TestDependentChangedOtherwiseMeanwhile(t *testing.T) {
	c := inOrder(t)
	one := c.create(sets, "a", "one")
	pod := c.create(pods, "a", "pod", refTo(sets, one, true))
	c.settle()
	c.remove(sets, one, background)
	c.fold(sets.Name)
	c.edit(pods, pod, func(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{"a": "b"} })
	if c.turn(); c.names() != "" {
		t.Errorf("%s stays, although only a label changed", c.names())
	}
}

// TestDependentLostItsReferenceUnseen makes a change that cannot be mapped to the owner:
// it arrives as an object that was never observed before.
func TestDependentLostItsReferenceUnseen(t *testing.T) {
	c := inOrder(t)
	set := c.create(sets, "a", "set")
	pod := c.create(pods, "a", "pod", refTo(sets, set, true))
	c.edit(pods, pod, func(o *metav1.PartialObjectMetadata) { o.Finalizers = []string{"example.com/hold"} })
	c.remove(sets, set, foreground)
	expect(t, c, "set", "pod")
	c.edit(pods, pod, func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = nil })
	log := c.logs[pods.Name]
	log[len(log)-1].was.Object = nil
	expect(t, c, "pod")
}

// TestWrongReferences tries every way in which a reference can miss an existing owner:
// kind, name, namespace and uid, each right or wrong, observed in order or late.
func TestWrongReferences(t *testing.T) {
	for wrong := range 16 {
		for late := range 2 {
			c := newCluster(t, func(n int) int { return late * (n - 1) })
			set := c.create(sets, "a", "set")
			ref, namespace := refTo(sets, set, true), "a"
			if wrong&1 != 0 {
				ref.APIVersion, ref.Kind = pods.APIVersion(), pods.Kind
			}
			if wrong&2 != 0 {
				ref.Name = "other"
			}
			if wrong&4 != 0 {
				namespace = "b"
			}
			if wrong&8 != 0 {
				ref.UID = "other"
			}
			c.create(pods, namespace, "pod", ref)
			want := []string{"set"}
			if wrong == 0 {
				want = append(want, "pod")
			}
			expect(t, c, want...)
		}
	}
}

// TestArbitraryGraphs deletes objects of arbitrary graphs, observed in arbitrary order,
// and compares the rest with the rule of survivors.
func TestArbitraryGraphs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "next") })
		objects, kindOf := graph(t, c)
		how := rapid.SampledFrom([]metav1.DeletionPropagation{background, foreground, orphan}).Draw(t, "how")
		if how == orphan || rapid.Bool().Draw(t, "seen before the deletions") {
			c.settle() // the collector can spare only dependents that it has observed
			objects, kindOf = c.left(objects, kindOf)
		}
		if len(objects) == 0 {
			return
		}
		deletions := 1
		if how == background {
			// Two foreground deletions can wait for each other in a cycle, here as upstream.
			deletions = rapid.IntRange(1, 3).Draw(t, "deletions")
		}
		gone := map[types.UID]bool{}
		for range deletions {
			at := rapid.IntRange(0, len(objects)-1).Draw(t, "deleted")
			if _, ok := c.find(events.Ref{Kind: kindOf[at].Name, Namespace: objects[at].Namespace, Name: objects[at].Name}); ok {
				c.remove(kindOf[at], objects[at], how)
				gone[objects[at].UID] = true
			}
		}
		if how == orphan {
			for _, o := range objects {
				o.OwnerReferences = slices.DeleteFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return gone[r.UID] })
			}
		}
		want := survivors(objects, gone)
		c.settle()
		if got := c.names(); got != want {
			t.Fatalf("left are %q, want %q", got, want)
		}
		left := map[types.UID]bool{}
		for _, o := range c.live {
			left[o.GetUID()] = true
		}
		for _, o := range c.live {
			for _, ref := range o.GetOwnerReferences() {
				if !left[ref.UID] {
					t.Fatalf("%s still names %s, which is gone", o.GetName(), ref.Name)
				}
			}
		}
	})
}

// graph returns objects that own each other, also in cycles, or name owners that do not exist.
func graph(t *rapid.T, c *cluster) (objects []*metav1.PartialObjectMetadata, kindOf []kinds.Kind) {
	n := rapid.IntRange(1, 7).Draw(t, "objects")
	for i := range n {
		kind := rapid.SampledFrom([]kinds.Kind{sets, pods, widgets}).Draw(t, "kind")
		objects, kindOf = append(objects, c.create(kind, "a", fmt.Sprintf("o%d", i))), append(kindOf, kind)
	}
	for i := range objects {
		owners := rapid.SliceOfNDistinct(rapid.IntRange(0, n), 0, 3, rapid.ID[int]).Draw(t, "owners")
		var refs []metav1.OwnerReference
		for _, owner := range owners {
			blocking := rapid.Bool().Draw(t, "blocking")
			if owner == n {
				refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "never", UID: "never"})
			} else {
				refs = append(refs, refTo(kindOf[owner], objects[owner], blocking))
			}
		}
		c.edit(kindOf[i], objects[i], func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = refs })
		objects[i].OwnerReferences = refs
	}
	return objects, kindOf
}

// left returns the present versions of the objects that still exist.
func (c *cluster) left(objects []*metav1.PartialObjectMetadata, kindOf []kinds.Kind) (left []*metav1.PartialObjectMetadata, of []kinds.Kind) {
	for i, o := range objects {
		if found, ok := c.find(events.Ref{Kind: kindOf[i].Name, Namespace: o.Namespace, Name: o.Name}); ok {
			left, of = append(left, found.Object.(*metav1.PartialObjectMetadata).DeepCopy()), append(of, kindOf[i])
		}
	}
	return left, of
}

// survivors returns the objects that remain: an object is deleted if it has owners and
// none of them remains.
func survivors(objects []*metav1.PartialObjectMetadata, gone map[types.UID]bool) string {
	left := map[types.UID]bool{}
	for _, o := range objects {
		left[o.UID] = !gone[o.UID]
	}
	for changed := true; changed; {
		changed = false
		for _, o := range objects {
			owned := slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return left[r.UID] })
			if left[o.UID] && len(o.OwnerReferences) > 0 && !owned {
				left[o.UID], changed = false, true
			}
		}
	}
	var names []string
	for _, o := range objects {
		if left[o.UID] {
			names = append(names, o.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
