package cache

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Snapshot is the cache at one moment as one controller may see it. It is valid only while the
// memory's lock is held.
type Snapshot struct {
	cache  *Cache
	reader *reader
	last   func(events.Key, events.Lane) (events.Outcome, bool)
	// earlier, if set, becomes true when a controller asks when an object was last heard, and
	// that object has changed without a heartbeat since.
	earlier *bool
}

var _ reconcile.Snapshot = Snapshot{}

// View calls see with a controller's view of the cache, under the read lock. see must not call
// the cache's other methods.
func (c *Cache) View(controller string, last func(events.Key, events.Lane) (events.Outcome, bool), see func(Snapshot)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	see(Snapshot{cache: c, reader: c.readers[controller], last: last})
}

func (s Snapshot) kind(kind kinds.Name) (*kindCache, bool) {
	if !s.reader.reads(kind) {
		return nil, false
	}
	k, ok := s.cache.kinds[kind]
	return k, ok
}

// Get implements [reconcile.Snapshot].
func (s Snapshot) Get(kind kinds.Name, namespace, called string) (metav1.Object, bool) {
	if k, ok := s.kind(kind); ok {
		if h, ok := k.objects[types.NamespacedName{Namespace: namespace, Name: called}]; ok {
			return h.decoded()
		}
	}
	return nil, false
}

// List implements [reconcile.Snapshot].
func (s Snapshot) List(kind kinds.Name, namespace string) []metav1.Object {
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
func (s Snapshot) ControlledBy(kind kinds.Name, controller types.UID) []metav1.Object {
	if k, ok := s.kind(kind); ok {
		return k.controllers.list(controller)
	}
	return nil
}

// Orphans implements [reconcile.Snapshot].
func (s Snapshot) Orphans(kind kinds.Name, namespace string) []metav1.Object {
	if k, ok := s.kind(kind); ok {
		return k.uncontrolled.list(namespace)
	}
	return nil
}

// ByUID implements [reconcile.Snapshot].
func (s Snapshot) ByUID(uid types.UID) (reconcile.Object, bool) {
	if h, ok := s.cache.uids[uid]; ok && s.reader.reads(h.ref.Kind) {
		return h.decodedObject()
	}
	return reconcile.Object{}, false
}

// Dependents implements [reconcile.Snapshot].
func (s Snapshot) Dependents(uid types.UID) []reconcile.Object {
	var out []reconcile.Object
	for h := range s.cache.dependents.at(uid) {
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
func (s Snapshot) Kind(name kinds.Name) (kinds.Kind, bool) {
	k, ok := s.kind(name)
	if !ok {
		return kinds.Kind{}, false
	}
	return k.kind, true
}

// KindOf implements [reconcile.Snapshot].
func (s Snapshot) KindOf(group, kind string) (kinds.Kind, bool) {
	var found []kinds.Kind
	for at, k := range s.cache.kinds {
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
func (s Snapshot) Last(k events.Key, lane events.Lane) (events.Outcome, bool) {
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
func (s Snapshot) epochOf(kind kinds.Name) (epoch uint64, known bool) {
	if k, ok := s.kind(kind); ok {
		return k.epoch, true
	}
	return 0, false
}

// Heard implements [reconcile.Snapshot].
func (s Snapshot) Heard(kind kinds.Name, namespace, called string) (at time.Time) {
	if k, ok := s.kind(kind); ok {
		if h, ok := k.objects[types.NamespacedName{Namespace: namespace, Name: called}]; ok {
			at = h.heard
			if s.earlier != nil && h.silent {
				*s.earlier = true
			}
		}
	}
	return at
}

// Sight implements [reconcile.Snapshot].
func (s Snapshot) Sight(kind kinds.Name) events.Sight {
	if k, ok := s.kind(kind); ok {
		return k.sight
	}
	return events.Sight{}
}

// Seen is the sequence up to which each kind that the controller reads has been folded.
func (s Snapshot) Seen() events.Position {
	many := len(s.reader.inputs)
	if len(s.reader.every) > 0 {
		many = len(s.cache.kinds)
	}
	p := make(events.Position, many)
	for at, k := range s.cache.kinds {
		if s.reader.reads(at) {
			p[at] = k.position
		}
	}
	return p
}

// Digest is the digest of the objects of the kinds in seen ([events.Turn]).
func (s Snapshot) Digest(seen events.Position) (sum uint64) {
	for at := range seen {
		if k, ok := s.cache.kinds[at]; ok {
			sum += k.tally.Census().Of(at)
		}
	}
	return sum
}

// Epochs are the epochs of the kinds that the controller reads.
func (s Snapshot) Epochs() events.Epochs {
	var e events.Epochs
	for at, k := range s.cache.kinds {
		if k.epoch > 0 && s.reader.reads(at) {
			if e == nil {
				e = events.Epochs{}
			}
			e[at] = k.epoch
		}
	}
	return e
}

// TakeChanges returns what the controller has to look at since its last call.
func (s Snapshot) TakeChanges() Changes { return s.reader.take() }

// Position is the sequence up to which a kind that the controller reads has been folded; followed
// is false for other kinds, and for one that is not followed.
func (s Snapshot) Position(kind kinds.Name) (position uint64, followed bool) {
	if k, ok := s.kind(kind); ok {
		return k.position, true
	}
	return 0, false
}

// FollowedEpoch is the epoch of a kind, which the controller need not read; followed is false for
// a kind that is not followed.
func (s Snapshot) FollowedEpoch(kind kinds.Name) (epoch uint64, followed bool) {
	if k, ok := s.cache.kinds[kind]; ok {
		return k.epoch, true
	}
	return 0, false
}

// Keys maps an object as it is now to keys. reason says why it cannot be decoded or mapped, and
// version is its version. Of a deleted object there is the version alone: the fold of the deletion
// has asked for its keys.
func (s Snapshot) Keys(ref events.Ref) (keys []events.Key, reason, version string) {
	k, ok := s.kind(ref.Kind)
	if !ok {
		return nil, "", ""
	}
	at := nameOf(ref)
	if damage, ok := k.damaged[at]; ok {
		return nil, damage.reason, damage.version
	}
	h, there := k.objects[at]
	if !there {
		return nil, "", k.gone[k.last[at]].version
	}
	keys, err := s.reader.keys(s, change{ref: ref, now: h.object})
	if err != nil {
		reason = err.Error()
	}
	return keys, reason, h.version
}

// AllKeys maps all objects of some kinds to keys, of all kinds if none is named. unmapped are the
// objects that cannot be decoded or mapped, in order.
func (s Snapshot) AllKeys(some ...kinds.Name) (keys []events.Key, unmapped []Unmapped) {
	if len(some) == 0 {
		some = slices.Sorted(maps.Keys(s.cache.kinds))
	}
	var set keySet
	for _, at := range some {
		k, ok := s.kind(at)
		if !ok || !s.reader.maps(at) {
			continue
		}
		for h := range k.all.Scan {
			keys, err := s.reader.keys(s, change{ref: h.ref, now: h.object})
			if set.add(keys...); err != nil {
				unmapped = append(unmapped, Unmapped{h.ref, h.version, err.Error()})
			}
		}
		for n, damage := range k.damaged {
			unmapped = append(unmapped, Unmapped{events.Ref{Kind: at, Namespace: n.Namespace, Name: n.Name}, damage.version, damage.reason})
		}
	}
	slices.SortFunc(unmapped, func(a, b Unmapped) int { return a.Ref.Compare(b.Ref) })
	return set.keys, unmapped
}
