package reconcile

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Snapshot is what one turn of one controller sees of the cluster: the folded deltas of the
// kinds that the controller reads, at one moment. Objects in it are shared and must not be
// changed. Every list is sorted by namespace and name, so that nothing depends on the order of
// arrival.
type Snapshot interface {
	// Get returns the object of a kind and name; ok is false when it does not exist.
	Get(kind kinds.Name, namespace, name string) (obj metav1.Object, ok bool)
	// List returns every object of a kind in a namespace; "" means all namespaces.
	List(kind kinds.Name, namespace string) []metav1.Object
	// ControlledBy returns every object of a kind whose controller reference has the uid.
	ControlledBy(kind kinds.Name, controller types.UID) []metav1.Object
	// Orphans returns every object of a kind in a namespace that has no controller reference.
	Orphans(kind kinds.Name, namespace string) []metav1.Object

	// ByUID returns the object with a uid, of any kind that the controller reads.
	ByUID(uid types.UID) (obj Object, ok bool)
	// Dependents returns every object, of any kind that the controller reads, with an owner
	// reference to the uid; sorted by kind, namespace and name.
	Dependents(uid types.UID) []Object
	// Kind returns a kind that the controller reads, by its name; ok is false when the cluster
	// is not known to have it.
	Kind(name kinds.Name) (k kinds.Kind, ok bool)
	// KindOf returns the kind that the controller reads with this API group and kind name, in
	// any version.
	KindOf(group, kind string) (k kinds.Kind, ok bool)

	// Heard is when the watcher received the newest heartbeat of an object, by the watcher's
	// clock. Where kinds.Heartbeat knows no heartbeat, any change counts. Zero when the object
	// does not exist. A reader that has just started may take a later change of a Node for a
	// heartbeat.
	Heard(kind kinds.Name, namespace, name string) time.Time
	// Sight is for how long the watcher has watched a kind of heartbeats without a break, by its
	// own clock. An object without a heartbeat in that time was silent. Zero when that time is
	// not known.
	Sight(kind kinds.Name) events.Sight

	// Last returns this controller's newest outcome in a lane for the key whose turn it is. ok
	// is false when none is remembered, when it is of an epoch that has ended
	// ([events.Outcome.Over]), and for any other key. A failure is remembered until the next
	// successful outcome of the key in that lane. A success is remembered only for a controller
	// that asks for it ([Controller.Remembers]).
	Last(k events.Key, lane events.Lane) (o events.Outcome, ok bool)
}

// Get returns the typed object of a kind and name.
func Get[T metav1.Object](s Snapshot, kind kinds.Of[T], namespace, name string) (obj T, ok bool) {
	found, _ := s.Get(kind.Name, namespace, name) // nil if it does not exist
	obj, ok = found.(T)
	return obj, ok
}

// List returns every typed object of a kind in a namespace; "" means all.
func List[T metav1.Object](s Snapshot, kind kinds.Of[T], namespace string) []T {
	return typed[T](s.List(kind.Name, namespace))
}

// ControlledBy returns every typed object of a kind with that controller.
func ControlledBy[T metav1.Object](s Snapshot, kind kinds.Of[T], controller types.UID) []T {
	return typed[T](s.ControlledBy(kind.Name, controller))
}

// Orphans returns every typed object of a kind in a namespace without a controller.
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
