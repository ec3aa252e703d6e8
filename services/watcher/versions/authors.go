package versions

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

// Authors remembers the managedFields of each object, by a hash of its uid: about a hundred bytes
// an object. For an object that it does not remember, as after a restart, the author of the next
// version is unknown, and not a guess.
type Authors struct {
	// LastAppended is the last message that this watcher appended to the log.
	LastAppended uint64

	objects map[uint64]translate.Writers
}

// notRemembered are the kinds that Authors does not remember: they are many or change often, and their
// creation, or the second of an entry, tells their authors.
var notRemembered = map[kinds.Name]bool{
	kinds.Leases.Name: true, kinds.NameOf("", "events"): true, kinds.NameOf("events.k8s.io", "events"): true,
}

// Of returns what is remembered of the version before the one that the watch received.
func (a *Authors) Of(uid types.UID, created bool) translate.Writers {
	if created {
		return translate.Unwritten()
	}
	return a.objects[hashOf(uid)]
}

// Note remembers the managers of an appended version, or forgets a deleted object.
func (a *Authors) Note(kind kinds.Name, op events.Op, uid types.UID, wrote translate.Writers) {
	switch {
	case notRemembered[kind]:
	case op == events.Gone:
		delete(a.objects, hashOf(uid))
	default:
		if a.objects == nil {
			a.objects = map[uint64]translate.Writers{}
		}
		a.objects[hashOf(uid)] = wrote
	}
}

// Resume forgets everything if the log does not end with this watcher's last message: then the
// watch continues from other versions than the remembered ones.
func (a *Authors) Resume(last uint64) {
	if a.LastAppended != last {
		a.Forget()
	}
}

// Forget forgets everything.
func (a *Authors) Forget() { a.objects = nil }

// Len is how many objects are remembered.
func (a *Authors) Len() int { return len(a.objects) }
