package shell

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

// snapshot is the memory at one moment as one controller may see it. It is valid only while the
// memory's lock is held.
type snapshot struct {
	memory *Memory
	reader *reader
	last   func(events.Key, events.Lane) (events.Outcome, bool)
	// earlier, if set, becomes true when a controller asks when an object was last heard, and
	// that object has changed without a heartbeat since.
	earlier *bool
}

var _ reconcile.Snapshot = snapshot{}

// view calls see with a controller's view of the memory, under the read lock. see must not call
// the memory's other methods.
func (m *Memory) view(controller string, last func(events.Key, events.Lane) (events.Outcome, bool), see func(snapshot)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	see(snapshot{memory: m, reader: m.readers[controller], last: last})
}

func (s snapshot) kind(kind kinds.Name) (*kindMemory, bool) {
	if !s.reader.reads(kind) {
		return nil, false
	}
	k, ok := s.memory.kinds[kind]
	return k, ok
}

// Get implements [reconcile.Snapshot].
func (s snapshot) Get(kind kinds.Name, namespace, called string) (metav1.Object, bool) {
	if k, ok := s.kind(kind); ok {
		if h, ok := k.objects[name{namespace, called}]; ok {
			return h.decoded()
		}
	}
	return nil, false
}

// List implements [reconcile.Snapshot].
func (s snapshot) List(kind kinds.Name, namespace string) []metav1.Object {
	k, ok := s.kind(kind)
	switch {
	case !ok:
		return nil
	case namespace == "":
		return objects(k.all.Len(), k.all.Scan)
	default:
		return objects(0, k.in(namespace))
	}
}

// ControlledBy implements [reconcile.Snapshot].
func (s snapshot) ControlledBy(kind kinds.Name, controller types.UID) []metav1.Object {
	if k, ok := s.kind(kind); ok {
		return k.controllers.list(controller)
	}
	return nil
}

// Orphans implements [reconcile.Snapshot].
func (s snapshot) Orphans(kind kinds.Name, namespace string) []metav1.Object {
	if k, ok := s.kind(kind); ok {
		return k.uncontrolled.list(namespace)
	}
	return nil
}

// ByUID implements [reconcile.Snapshot].
func (s snapshot) ByUID(uid types.UID) (reconcile.Object, bool) {
	if h, ok := s.memory.uids[uid]; ok && s.reader.reads(h.ref.Kind) {
		return h.decodedObject()
	}
	return reconcile.Object{}, false
}

// Dependents implements [reconcile.Snapshot].
func (s snapshot) Dependents(uid types.UID) []reconcile.Object {
	var out []reconcile.Object
	for h := range s.memory.dependents.at(uid) {
		if !s.reader.reads(h.ref.Kind) {
			continue
		}
		if obj, ok := h.decodedObject(); ok {
			out = append(out, obj)
		}
	}
	return out
}

// Kind implements [reconcile.Snapshot].
func (s snapshot) Kind(name kinds.Name) (kinds.Kind, bool) {
	k, ok := s.kind(name)
	if !ok {
		return kinds.Kind{}, false
	}
	return k.kind, true
}

// KindOf implements [reconcile.Snapshot].
func (s snapshot) KindOf(group, kind string) (kinds.Kind, bool) {
	var found []kinds.Kind
	for at, k := range s.memory.kinds {
		if at.Group() == group && k.kind.Kind == kind && s.reader.reads(at) {
			found = append(found, k.kind)
		}
	}
	if len(found) == 0 {
		return kinds.Kind{}, false
	}
	return slices.MinFunc(found, func(a, b kinds.Kind) int { return cmp.Compare(a.Name, b.Name) }), true
}

// Last implements [reconcile.Snapshot].
func (s snapshot) Last(k events.Key, lane events.Lane) (events.Outcome, bool) {
	if s.last == nil {
		return events.Outcome{}, false
	}
	o, ok := s.last(k, lane)
	if !ok || o.Over(s.epochOf) {
		return events.Outcome{}, false
	}
	return o, true
}

// epochOf is the epoch of a kind that the controller reads; known is false for other kinds.
func (s snapshot) epochOf(kind kinds.Name) (epoch uint64, known bool) {
	if k, ok := s.kind(kind); ok {
		return k.epoch, true
	}
	return 0, false
}

// Heard implements [reconcile.Snapshot].
func (s snapshot) Heard(kind kinds.Name, namespace, called string) (at time.Time) {
	if k, ok := s.kind(kind); ok {
		if h, ok := k.objects[name{namespace, called}]; ok {
			at = h.heard
			if s.earlier != nil && h.silent {
				*s.earlier = true
			}
		}
	}
	return at
}

// Sight implements [reconcile.Snapshot].
func (s snapshot) Sight(kind kinds.Name) events.Sight {
	if k, ok := s.kind(kind); ok {
		return k.sight
	}
	return events.Sight{}
}

// seen is the sequence up to which each kind that the controller reads has been folded.
func (s snapshot) seen() events.Position {
	many := len(s.reader.inputs)
	if len(s.reader.every) > 0 {
		many = len(s.memory.kinds)
	}
	p := make(events.Position, many)
	for at, k := range s.memory.kinds {
		if s.reader.reads(at) {
			p[at] = k.position
		}
	}
	return p
}

// digest is the digest of the objects of the kinds in seen ([events.Turn]).
func (s snapshot) digest(seen events.Position) (sum uint64) {
	for at := range seen {
		if k, ok := s.memory.kinds[at]; ok {
			sum += k.tally.Census().Of(at)
		}
	}
	return sum
}

// epochs are the epochs of the kinds that the controller reads.
func (s snapshot) epochs() events.Epochs {
	var e events.Epochs
	for at, k := range s.memory.kinds {
		if k.epoch > 0 && s.reader.reads(at) {
			if e == nil {
				e = events.Epochs{}
			}
			e[at] = k.epoch
		}
	}
	return e
}

// hasReturned reports whether the memory has seen the effect of an applied result, or something
// later. It has seen nothing of a kind that is not followed yet, nor an effect of an epoch that
// has not reached it.
func (s snapshot) hasReturned(u effect) bool {
	r := u.result
	k, ok := s.memory.kinds[r.Ref.Kind]
	switch {
	case ok && u.seen > 0:
		return k.position >= u.seen
	case !ok || u.dated && k.epoch < u.epoch:
		return false
	}
	at := name{r.Ref.Namespace, r.Ref.Name}
	if t, dead := k.gone[r.UID]; dead && r.UID != "" && !u.precedes(t.epoch) {
		return true
	}
	h, there := k.objects[at]
	if t, ended := k.gone[k.last[at]]; !there && ended && r.Version != "" && u.reached(t.epoch, t.version) {
		return true // a later object of that name was deleted, so this one was too
	}
	if r.Removed || r.Version == "" {
		return !there || h.object.GetDeletionTimestamp() != nil || r.UID != "" && h.uid != r.UID || u.dated && h.epoch > u.epoch
	}
	if d, ok := k.damaged[at]; ok && kinds.CompareVersions(d.version, r.Version) >= 0 {
		return true
	}
	return there && u.reached(h.epoch, h.version)
}

// precedes reports whether an epoch had ended when the effect was made.
func (u effect) precedes(epoch uint64) bool { return u.dated && epoch < u.epoch }

// reached reports whether a state is the one that the effect made, or a later one. Versions of
// different epochs cannot be compared.
func (u effect) reached(epoch uint64, version string) bool {
	if u.dated && epoch != u.epoch {
		return epoch > u.epoch
	}
	return kinds.CompareVersions(version, u.result.Version) >= 0
}
