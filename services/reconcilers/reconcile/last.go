package reconcile

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// LastOf returns the newest outcome of a lane if its turn was about own, the key's object as
// it is seen now, by uid. An outcome about a deleted object of the same name says nothing
// about this one. ok is false when no such outcome is remembered, and when own is nil.
func LastOf(s Snapshot, k events.Key, lane events.Lane, own metav1.Object) (o events.Outcome, ok bool) {
	o, ok = LastOfAny(s, k, lane)
	if !ok || uidOf(own) == "" || o.UID != uidOf(own) {
		return events.Outcome{}, false
	}
	return o, true
}

// Answers returns the newest outcome of the write lane if its turn was decided on own as it is
// seen now: the same uid and the same resourceVersion. It is for answers that must be
// compared with the object's own fields; a controller asks again when those have changed.
// metadata.generation cannot serve here: the API server keeps none for most kinds, and it
// does not change with finalizers.
func Answers(s Snapshot, k events.Key, own metav1.Object) (o events.Outcome, ok bool) {
	o, ok = LastOf(s, k, events.LaneWrite, own)
	if !ok || o.ResourceVersion == "" || o.ResourceVersion != own.GetResourceVersion() {
		return events.Outcome{}, false
	}
	return o, true
}

// LastOfAny returns the newest outcome of a lane, of any object with the key's name. It is
// for keys that are not objects, and for work about a deleted object. If the writer's clock
// is behind, LastOfAny raises the outcome's time to that of its turn, because otherwise a
// new answer would be too old at once.
func LastOfAny(s Snapshot, k events.Key, lane events.Lane) (o events.Outcome, ok bool) {
	if o, ok = s.Last(k, lane); o.At.Before(o.Decided) {
		o.At = o.Decided
	}
	return o, ok
}

// uidOf returns the uid of an object that may be nil.
func uidOf(own metav1.Object) types.UID {
	if own == nil {
		return ""
	}
	return own.GetUID()
}
