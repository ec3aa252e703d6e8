package reconcile

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Snapshot is the world as one turn of one controller sees it: the folded
// deltas of the kinds that the controller reads, at one moment. Objects in it
// are shared and must not be changed. Every list is sorted by namespace and
// name, so that nothing depends on the order of arrival.
type Snapshot interface {
	// Get is the object of a kind and name; ok is false when it is not there.
	Get(kind kinds.Name, namespace, name string) (obj metav1.Object, ok bool)
	// List is every object of a kind in a namespace; "" means all namespaces.
	List(kind kinds.Name, namespace string) []metav1.Object
	// ControlledBy is every object of a kind whose controller reference has the
	// uid.
	ControlledBy(kind kinds.Name, controller types.UID) []metav1.Object
	// Orphans is every object of a kind in a namespace that has no controller
	// reference.
	Orphans(kind kinds.Name, namespace string) []metav1.Object

	// ByUID is the object with a uid, of any kind that is read.
	ByUID(uid types.UID) (obj Object, ok bool)
	// Dependents is every object, of any kind that is read, with an owner
	// reference to the uid; sorted by kind, namespace and name.
	Dependents(uid types.UID) []Object
	// Kind is a kind that is read, by its name; ok is false for one that the cluster
	// does not have, as far as is known.
	Kind(name kinds.Name) (k kinds.Kind, ok bool)
	// KindOf is the kind that is read under an apiVersion's group and a kind
	// name, in whatever version.
	KindOf(group, kind string) (k kinds.Kind, ok bool)

	// Heard is when the watcher heard the newest sign of life of an object, by the
	// watcher's clock, which may be any change of it where kinds.Heartbeat knows none; zero
	// when it is not there. A reader that has just started may take a later change of a
	// Node for one.
	Heard(kind kinds.Name, namespace, name string) time.Time
	// Sight is for how long a kind of heartbeats has been watched without a break, by the
	// watcher's clock: who was not heard in it was silent; zero when that is not known.
	Sight(kind kinds.Name) events.Sight

	// Last is the newest outcome of this controller for the key whose turn it is, and
	// a lane; ok is false when none is remembered, when it is of an epoch that has ended
	// ([events.Outcome.Over]), and for any other key. A key's memory of failures lasts until its
	// next successful outcome of that lane, which itself is remembered only for a
	// controller that asks for it ([Controller.Remembers]).
	Last(k events.Key, lane events.Lane) (o events.Outcome, ok bool)
}

// Get is the typed object of a kind and name.
func Get[T metav1.Object](s Snapshot, kind kinds.Of[T], namespace, name string) (obj T, ok bool) {
	found, _ := s.Get(kind.Name, namespace, name) // nil, where it is not there
	obj, ok = found.(T)
	return obj, ok
}

// List is every typed object of a kind in a namespace; "" means all.
func List[T metav1.Object](s Snapshot, kind kinds.Of[T], namespace string) []T {
	return typed[T](s.List(kind.Name, namespace))
}

// ControlledBy is every typed object of a kind with that controller.
func ControlledBy[T metav1.Object](s Snapshot, kind kinds.Of[T], controller types.UID) []T {
	return typed[T](s.ControlledBy(kind.Name, controller))
}

// Orphans is every typed object of a kind in a namespace without a controller.
func Orphans[T metav1.Object](s Snapshot, kind kinds.Of[T], namespace string) []T {
	return typed[T](s.Orphans(kind.Name, namespace))
}

func typed[T metav1.Object](objs []metav1.Object) []T {
	out := make([]T, 0, len(objs))
	for _, o := range objs {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
