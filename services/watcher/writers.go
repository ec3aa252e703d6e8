package watcher

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

// writers remembers the managedFields of each object, by a hash of its uid: about a hundred bytes
// an object. For an object that it does not remember, as after a restart, the author of the next
// version is unknown, and not a guess.
type writers struct {
	objects      map[uint64]translate.Writers
	lastAppended uint64 // the last message that this watcher appended
}

// notRemembered are the kinds that writers does not remember: they are many or change often, and their
// creation, or the second of an entry, tells their authors.
var notRemembered = map[kinds.Name]bool{
	kinds.Leases.Name: true, kinds.NameOf("", "events"): true, kinds.NameOf("events.k8s.io", "events"): true,
}

// of returns what is remembered of the version before the one that the watch received.
func (w *writers) of(uid types.UID, created bool) translate.Writers {
	if created {
		return translate.Unwritten()
	}
	return w.objects[hashOf(string(uid))]
}

// note remembers the managers of an appended version, or forgets a deleted object.
func (w *writers) note(kind kinds.Name, op events.Op, uid types.UID, wrote translate.Writers) {
	switch {
	case notRemembered[kind]:
	case op == events.Gone:
		delete(w.objects, hashOf(string(uid)))
	default:
		if w.objects == nil {
			w.objects = map[uint64]translate.Writers{}
		}
		w.objects[hashOf(string(uid))] = wrote
	}
}

// resume forgets everything if the log does not end with this watcher's last message: then the
// watch continues from other versions than the remembered ones.
func (w *writers) resume(last uint64) {
	if w.lastAppended != last {
		w.forget()
	}
}

func (w *writers) forget() { w.objects = nil }
