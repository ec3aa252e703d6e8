package reconciletest

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// World is a handmade [reconcile.Snapshot]. Every lookup scans all objects, so
// that no test depends on an index.
type World struct {
	kinds   []kinds.Kind
	objects []reconcile.Object
	last    map[memory]events.Outcome
	heard   map[events.Ref]time.Time
	sight   map[kinds.Name]events.Sight
}

type memory struct {
	key  events.Key
	lane events.Lane
}

var _ reconcile.Snapshot = (*World)(nil)

// NewWorld returns a world without objects in which some kinds are read.
func NewWorld(read ...kinds.Kind) *World {
	return &World{
		kinds: read, last: map[memory]events.Outcome{},
		heard: map[events.Ref]time.Time{}, sight: map[kinds.Name]events.Sight{},
	}
}

// Put adds objects of a kind, or replaces those of the same names; from then on
// the kind is read. It returns the world, so that calls can be chained.
func (w *World) Put(kind kinds.Kind, objs ...metav1.Object) *World {
	if _, ok := w.KindOf(kind.Name.Group(), kind.Kind); !ok {
		w.kinds = append(w.kinds, kind)
	}
	for _, obj := range objs {
		w.Remove(kind.Name, obj.GetNamespace(), obj.GetName())
		w.objects = append(w.objects, reconcile.Object{Kind: kind, Object: obj})
	}
	slices.SortStableFunc(w.objects, byPlace)
	return w
}

// Remove removes an object, if it exists.
func (w *World) Remove(kind kinds.Name, namespace, name string) {
	w.objects = slices.DeleteFunc(w.objects, func(o reconcile.Object) bool {
		return o.Ref() == events.Ref{Kind: kind, Namespace: namespace, Name: name}
	})
}

// Remember sets the last outcome of its key and lane.
func (w *World) Remember(o events.Outcome) *World {
	w.last[memory{o.Key, o.Lane}] = o
	return w
}

// Hear sets when the watcher last heard a heartbeat of an object.
func (w *World) Hear(kind kinds.Name, namespace, name string, at time.Time) *World {
	w.heard[events.Ref{Kind: kind, Namespace: namespace, Name: name}] = at
	return w
}

// Watch sets for how long a kind has been watched without a break.
func (w *World) Watch(kind kinds.Name, since, until time.Time) *World {
	w.sight[kind] = events.Sight{Since: since, Until: until}
	return w
}

// Keys returns the keys to which a change maps, by the controller's mapping for the
// changed kind: was is nil for a new object, now for a deleted one.
func (w *World) Keys(c reconcile.Any, kind kinds.Kind, was, now metav1.Object) []events.Key {
	var keys []events.Key
	for _, input := range c.Describe().Inputs {
		if input.Keys != nil && (input.Every || input.Kind.Name == kind.Name) {
			keys = append(keys, input.Keys(w, object(kind, was), object(kind, now))...)
		}
	}
	return keys
}

func object(kind kinds.Kind, obj metav1.Object) reconcile.Object {
	if obj == nil {
		return reconcile.Object{}
	}
	return reconcile.Object{Kind: kind, Object: obj}
}

func byPlace(a, b reconcile.Object) int {
	return cmp.Or(
		cmp.Compare(a.Kind.Name, b.Kind.Name),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()),
		cmp.Compare(a.GetName(), b.GetName()),
	)
}

// where returns every object for which wanted is true, sorted by kind,
// namespace and name.
func (w *World) where(wanted func(reconcile.Object) bool) []reconcile.Object {
	var found []reconcile.Object
	for _, o := range w.objects {
		if wanted(o) {
			found = append(found, o)
		}
	}
	return found
}

func bare(objs []reconcile.Object) []metav1.Object {
	plain := make([]metav1.Object, 0, len(objs))
	for _, o := range objs {
		plain = append(plain, o.Object)
	}
	return plain
}

func within(namespace string, o reconcile.Object) bool {
	return namespace == "" || o.GetNamespace() == namespace
}

// Get is part of [reconcile.Snapshot].
func (w *World) Get(kind kinds.Name, namespace, name string) (metav1.Object, bool) {
	found := w.where(func(o reconcile.Object) bool {
		return o.Ref() == events.Ref{Kind: kind, Namespace: namespace, Name: name}
	})
	if len(found) == 0 {
		return nil, false
	}
	return found[0].Object, true
}

// List is part of [reconcile.Snapshot].
func (w *World) List(kind kinds.Name, namespace string) []metav1.Object {
	return bare(w.where(func(o reconcile.Object) bool { return o.Kind.Name == kind && within(namespace, o) }))
}

// ControlledBy is part of [reconcile.Snapshot].
func (w *World) ControlledBy(kind kinds.Name, controller types.UID) []metav1.Object {
	return bare(w.where(func(o reconcile.Object) bool {
		ref := metav1.GetControllerOfNoCopy(o.Object)
		return o.Kind.Name == kind && ref != nil && ref.UID == controller
	}))
}

// Orphans is part of [reconcile.Snapshot].
func (w *World) Orphans(kind kinds.Name, namespace string) []metav1.Object {
	return bare(w.where(func(o reconcile.Object) bool {
		return o.Kind.Name == kind && within(namespace, o) && metav1.GetControllerOfNoCopy(o.Object) == nil
	}))
}

// ByUID is part of [reconcile.Snapshot].
func (w *World) ByUID(uid types.UID) (reconcile.Object, bool) {
	found := w.where(func(o reconcile.Object) bool { return o.GetUID() == uid })
	if len(found) == 0 {
		return reconcile.Object{}, false
	}
	return found[0], true
}

// Dependents is part of [reconcile.Snapshot].
func (w *World) Dependents(uid types.UID) []reconcile.Object {
	return w.where(func(o reconcile.Object) bool {
		return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid })
	})
}

// Kind is part of [reconcile.Snapshot].
func (w *World) Kind(name kinds.Name) (kinds.Kind, bool) {
	for _, k := range w.kinds {
		if k.Name == name {
			return k, true
		}
	}
	return kinds.Kind{}, false
}

// KindOf is part of [reconcile.Snapshot].
func (w *World) KindOf(group, kind string) (kinds.Kind, bool) {
	for _, k := range w.kinds {
		if k.Name.Group() == group && k.Kind == kind {
			return k, true
		}
	}
	return kinds.Kind{}, false
}

// Heard is part of [reconcile.Snapshot].
func (w *World) Heard(kind kinds.Name, namespace, name string) time.Time {
	return w.heard[events.Ref{Kind: kind, Namespace: namespace, Name: name}]
}

// Sight is part of [reconcile.Snapshot].
func (w *World) Sight(kind kinds.Name) events.Sight { return w.sight[kind] }

// Last is part of [reconcile.Snapshot].
func (w *World) Last(k events.Key, lane events.Lane) (events.Outcome, bool) {
	o, ok := w.last[memory{k, lane}]
	return o, ok
}
