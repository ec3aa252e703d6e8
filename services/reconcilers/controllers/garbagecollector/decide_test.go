package garbagecollector

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(arbitraryView), epoch, reconciletest.Law[View]{
		Name: "deletes only what has no owner left",
		Holds: func(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
			for _, command := range c.Decide(v, now).Commands {
				if command.Verb != events.VerbDelete {
					continue
				}
				absent := v.refs(Absent, Unknown)
				switch {
				case v.any(Solid) || v.any(Unresolvable) || len(v.Owners) == 0:
					return fmt.Errorf("the decision deletes an object with owners %v", v.Owners)
				case v.Object.Meta.DeletionTimestamp != nil:
					return fmt.Errorf("the decision deletes what is being deleted")
				case command.If.ResourceVersion != v.Object.Meta.ResourceVersion || command.If.UID != v.Object.Meta.UID:
					return fmt.Errorf("the decision deletes on the condition %+v only", *command.If)
				case !slices.Equal(command.If.Absent, absent):
					return fmt.Errorf("it has %v looked for, not %v", command.If.Absent, absent)
				}
			}
			return nil
		},
	})
}

func arbitraryView(t *rapid.T) View {
	v := View{Object: arbitraryObject(t, "object")}
	for range v.Object.Meta.OwnerReferences {
		v.Owners = append(v.Owners, Owner{
			State:     rapid.SampledFrom([]State{Solid, Waiting, Absent, Unknown, Unresolvable}).Draw(t, "state"),
			Elsewhere: rapid.Bool().Draw(t, "elsewhere"),
		})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "dependents") {
		v.Dependents = append(v.Dependents, arbitraryObject(t, fmt.Sprintf("dependent-%d", i)))
	}
	if rapid.Bool().Draw(t, "refused") {
		v.Refused = &Refusal{
			Reason: rapid.SampledFrom([]string{ownerAlive, noMatch, unresolvable, "Conflict", ""}).Draw(t, "reason"),
			Code:   rapid.SampledFrom([]int{0, 409, 415}).Draw(t, "code"),
			At:     epoch.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, "ago")) * time.Second),
		}
	}
	return v
}

func arbitraryObject(t *rapid.T, name string) Object {
	o := Object{Kind: rapid.SampledFrom(watched).Draw(t, "kind")}
	o.Meta = metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"}
	if o.Kind.Namespaced {
		o.Meta.Namespace = "shop"
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "references") {
		blocking := rapid.Bool().Draw(t, "blocking")
		o.Meta.OwnerReferences = append(o.Meta.OwnerReferences, metav1.OwnerReference{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprint("owner", i), UID: types.UID(fmt.Sprint("owner", i)), BlockOwnerDeletion: &blocking,
		})
	}
	if rapid.Bool().Draw(t, "deleted") {
		at := metav1.NewTime(epoch.Add(time.Duration(rapid.IntRange(-200, 30).Draw(t, "deleted at")) * time.Second))
		o.Meta.DeletionTimestamp = &at
	}
	o.Meta.Finalizers = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"example.com/hold", metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents,
	}), 0, 3, rapid.ID[string]).Draw(t, "finalizers")
	return o
}

// object returns an object as the mapping sees it.
func object(kind kinds.Kind, name string, edits ...func(*metav1.PartialObjectMetadata)) reconcile.Object {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	for _, edit := range edits {
		edit(o)
	}
	return reconcile.Object{Kind: kind, Object: o}
}

func ownedBy(name string, blocking bool) func(*metav1.PartialObjectMetadata) {
	return func(o *metav1.PartialObjectMetadata) {
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID("uid-" + name), BlockOwnerDeletion: &blocking,
		})
	}
}

func leavingWith(finalizer string) func(*metav1.PartialObjectMetadata) {
	return func(o *metav1.PartialObjectMetadata) {
		o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: epoch}, []string{finalizer}
	}
}

func leavingWithToo(finalizer string) func(*metav1.PartialObjectMetadata) {
	return func(o *metav1.PartialObjectMetadata) { o.Finalizers = append(o.Finalizers, finalizer) }
}

func labelled(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{"a": "b"} }

func withUID(uid types.UID) func(*metav1.PartialObjectMetadata) {
	return func(o *metav1.PartialObjectMetadata) { o.UID = uid }
}

func TestWhoseTurn(t *testing.T) {
	const fore, orph = metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents
	none := reconcile.Object{}
	event := kinds.Kind{Name: "events.events.k8s.io", Version: "v1", Kind: "Event", Namespaced: true, Form: kinds.Metadata}
	// In the world: set "waits" with pod "below", set "orphans", set "lives".
	world := reconciletest.NewWorld(watched...)
	for _, o := range []reconcile.Object{
		object(sets, "waits", leavingWith(fore)), object(sets, "orphans", leavingWith(orph)), object(sets, "lives"),
		object(pods, "below", ownedBy("waits", true)), object(event, "noise", ownedBy("waits", true)),
	} {
		world.Put(o.Kind, o.Object)
	}
	for _, c := range []struct {
		name     string
		was, now reconcile.Object
		want     []string
	}{
		{"new, without owners", none, object(pods, "p"), nil},
		{"new, with an owner", none, object(pods, "p", ownedBy("lives", true)), []string{"p"}},
		{"new, and its owner waits", none, object(pods, "p", ownedBy("waits", true)), []string{"p", "waits"}},
		{"nothing of interest changed", object(pods, "p", ownedBy("waits", true)), object(pods, "p", ownedBy("waits", true), labelled), nil},
		{"got an owner that makes orphans", object(pods, "p"), object(pods, "p", ownedBy("orphans", false)), []string{"p", "orphans"}},
		{"lost its reference", object(pods, "p", ownedBy("waits", true)), object(pods, "p"), []string{"waits"}},
		{"lost a reference to who does not care", object(pods, "p", ownedBy("lives", true)), object(pods, "p"), nil},
		{"does not block any more", object(pods, "p", ownedBy("waits", true)), object(pods, "p", ownedBy("waits", false)), []string{"p", "waits", "waits"}},
		{"gone", object(pods, "p", ownedBy("waits", true), ownedBy("lives", true)), none, []string{"waits"}},
		{"owner gone", object(sets, "waits", leavingWith(fore)), none, []string{"below"}},
		{"owner begins to wait", object(sets, "waits"), object(sets, "waits", leavingWith(fore)), []string{"waits", "below"}},
		{"owner waits on", object(sets, "waits", leavingWith(fore)), object(sets, "waits", leavingWith(fore), labelled), nil},
		{"owner waits on, with another finalizer", object(sets, "waits", leavingWith(fore)), object(sets, "waits", leavingWith("example.com/hold"), leavingWithToo(fore)), []string{"waits", "below"}},
		{"owner seen waiting for the first time", none, object(sets, "waits", leavingWith(fore)), []string{"waits", "below"}},
		{"owner begins to make orphans", object(sets, "orphans"), object(sets, "orphans", leavingWith(orph)), []string{"orphans"}},
		{"deletion begins", object(pods, "p", ownedBy("lives", true)), object(pods, "p", ownedBy("lives", true), leavingWith("example.com/hold")), []string{"p"}},
		{"made anew under its name", object(sets, "waits", leavingWith(fore)), object(sets, "waits", withUID("another"), ownedBy("lives", true)), []string{"below", "waits"}},
		{"ignored", none, object(event, "noise", ownedBy("waits", true)), nil},
		{"ignored and gone", object(event, "noise", ownedBy("waits", true)), none, nil},
		{"nothing at all", none, none, nil},
	} {
		var got []string
		for _, key := range keys(world, c.was, c.now) {
			got = append(got, key.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.name, got, c.want)
		}
	}
}

func TestViewsAreBounded(t *testing.T) {
	world := reconciletest.NewWorld(watched...)
	set := object(sets, "set", leavingWith(metav1.FinalizerOrphanDependents))
	world.Put(sets, set.Object)
	for i := range burst + 10 {
		world.Put(pods, object(pods, fmt.Sprintf("p%03d", i), ownedBy("set", true)).Object)
	}
	v, ok := observe(world, keyOf(set))
	if !ok || len(v.Dependents) != burst {
		t.Errorf("the view has %d dependents, want %d", len(v.Dependents), burst)
	}
	if d := decide(v, epoch); len(d.Commands) != burst {
		t.Errorf("the turn has %d commands, want %d", len(d.Commands), burst)
	}
}

// Dependents that refuse to be changed, more than one turn can hold, do not block the others.
func TestEveryDependentIsOrphanedWhateverOthersRefuse(t *testing.T) {
	world := reconciletest.NewWorld(watched...)
	set := object(sets, "set", leavingWith(metav1.FinalizerOrphanDependents))
	world.Put(sets, set.Object)
	for i := range 2*burst + 10 {
		world.Put(pods, object(pods, fmt.Sprintf("p%04d", i), ownedBy("set", true)).Object)
	}
	tried := map[string]int{}
	for range 3 {
		v, _ := observe(world, keyOf(set))
		o := events.Outcome{Key: keyOf(set), Lane: events.LaneWrite, At: epoch, UID: set.GetUID()}
		for _, c := range decide(v, epoch).Commands {
			tried[c.Name]++
			o.Results = append(o.Results, events.Result{Status: events.Refused, Code: 403, Ref: c.Ref()})
		}
		world.Remember(o)
	}
	if len(tried) != 2*burst+10 {
		t.Errorf("in three turns %d of %d dependents were tried", len(tried), 2*burst+10)
	}
}

// TestSuspicionFindsTheWaitingOne puts the waiting dependent behind many that do not wait.
func TestSuspicionFindsTheWaitingOne(t *testing.T) {
	world := reconciletest.NewWorld(watched...)
	set := object(sets, "set", ownedBy("top", true))
	top := object(sets, "top", leavingWith(metav1.FinalizerDeleteDependents), ownedBy("set", true))
	world.Put(sets, set.Object, top.Object)
	for i := range burst + 10 {
		world.Put(pods, object(pods, fmt.Sprintf("p%03d", i), ownedBy("set", true)).Object)
	}
	v, ok := observe(world, keyOf(set))
	if !ok || len(v.Dependents) != 1 || v.Dependents[0].Meta.Name != "top" {
		t.Fatalf("the view has %d dependents, want the waiting one alone", len(v.Dependents))
	}
}

func TestNoViewOfWhatIsGone(t *testing.T) {
	if _, ok := observe(reconciletest.NewWorld(watched...), events.Key{Kind: pods.Name, Namespace: "a", Name: "gone"}); ok {
		t.Error("there is a view of an object that is gone")
	}
}
