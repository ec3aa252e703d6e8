package reconcile

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// LastOf is the newest outcome of a lane, if the turn was about own: the key's object as it
// is seen now, told by its uid. An outcome about a deleted object of the same name says
// nothing about this one. ok is false when no such outcome is remembered, and where own is
// nil.
func LastOf(s Snapshot, k events.Key, lane events.Lane, own metav1.Object) (o events.Outcome, ok bool) {
	o, ok = LastOfAny(s, k, lane)
	if !ok || uidOf(own) == "" || o.UID != uidOf(own) {
		return events.Outcome{}, false
	}
	return o, true
}

// Answers is the newest outcome of what was asked, if the question was decided on own as it
// is seen now: the same uid and the same resourceVersion. It is for answers that have to be
// held against the object's own fields; a question about fields that have changed since is
// asked again. A kind's metadata.generation cannot tell that: the API server keeps none for
// most kinds, and it does not change with finalizers.
func Answers(s Snapshot, k events.Key, own metav1.Object) (o events.Outcome, ok bool) {
	o, ok = LastOf(s, k, events.Act, own)
	if !ok || o.ResourceVersion == "" || o.ResourceVersion != own.GetResourceVersion() {
		return events.Outcome{}, false
	}
	return o, true
}

// LastOfAny is the newest outcome of a lane, whatever object of the key's name it was about.
// It is for keys that are no objects, and for what is to be done about an object that is
// gone. Its moment is not before that of its turn, however far the writer's clock is behind:
// what has just been asked for would be too old at once.
func LastOfAny(s Snapshot, k events.Key, lane events.Lane) (o events.Outcome, ok bool) {
	if o, ok = s.Last(k, lane); o.At.Before(o.Decided) {
		o.At = o.Decided
	}
	return o, ok
}

// uidOf is the uid of an object that may be nil.
func uidOf(own metav1.Object) types.UID {
	if own == nil {
		return ""
	}
	return own.GetUID()
}
