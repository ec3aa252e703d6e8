package watcher

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

// writers are what is remembered of the managedFields of each object, by a hash of its uid:
// about a hundred bytes an object. What is not remembered, as after a restart, makes the
// author of the object's next version unknown to the watcher and not a guess.
type writers struct {
	objects map[uint64]translate.Writers
	said    uint64 // the last message of the log that was appended here
}

// fleeting are the kinds of which nothing is remembered: they are many or change often,
// and their authors are told by their creation, or by the second.
var fleeting = map[kinds.Name]bool{
	kinds.Leases.Name: true, kinds.NameOf("", "events"): true, kinds.NameOf("events.k8s.io", "events"): true,
}

// of is what is remembered of the version before the one that a watch brings.
func (w *writers) of(uid types.UID, created bool) translate.Writers {
	if created {
		return translate.Unwritten()
	}
	return w.objects[hashOf(string(uid))]
}

// note remembers who wrote a version that has been appended, or forgets an object that is
// gone.
func (w *writers) note(kind kinds.Name, op events.Op, uid types.UID, wrote translate.Writers) {
	switch {
	case fleeting[kind]:
	case op == events.Gone:
		delete(w.objects, hashOf(string(uid)))
	default:
		if w.objects == nil {
			w.objects = map[uint64]translate.Writers{}
		}
		w.objects[hashOf(string(uid))] = wrote
	}
}

// resume forgets everything where the log does not end with what was appended here: then
// what is remembered is not of the versions that the watch goes on from.
func (w *writers) resume(last uint64) {
	if w.said != last {
		w.forget()
	}
}

func (w *writers) forget() { w.objects = nil }
