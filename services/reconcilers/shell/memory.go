package shell

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Memory is the cache: the newest state of every object of the kinds that are followed. It is
// disposable, because the logs rebuild it, and safe for concurrent use.
type Memory struct {
	mu         sync.RWMutex
	kinds      map[kinds.Name]*kindMemory
	uids       map[types.UID]*cachedObject
	dependents index[types.UID]
	readers    map[string]*reader
	names      []string // of readers, in the order of their arrival
}

// kindMemory is the cache of one kind.
type kindMemory struct {
	kind     kinds.Kind
	position uint64 // sequence of the last message folded
	epoch    uint64
	mark     string // the watcher has reported everything up to this resourceVersion
	marked   uint64 // the epoch of the last mark
	markAt   uint64 // sequence of the last mark
	reached  moment // the latest moment that was folded
	known    moment // the latest moment before the kind was forgotten
	newest   time.Time
	sight    events.Sight // of a kind whose objects are heartbeats

	objects    map[name]*cachedObject
	gone       map[types.UID]tombstone
	tombstones []types.UID // uids in gone, in the order of their deletion
	last       map[name]types.UID
	damaged    map[name]damage

	tally   events.Tally  // tally of the deltas folded
	told    events.Census // the census of the last message folded
	listing bool          // the last message is of a relist that has not ended
	broken  error         // error of a message with wrong checksums, behind which there was no census yet
	// inconsistent: the held objects are not those that the last message counted.
	inconsistent bool
	// dealt is the sequence up to which changes ask for no turns: the engines ask about every
	// object when they open.
	dealt uint64
	moved moved

	all          *objectSet
	controllers  index[types.UID]
	uncontrolled index[string]
}

type name struct{ namespace, name string }

// tombstone is what the memory keeps of a deleted object: its identity, not its contents.
type tombstone struct {
	uid     types.UID
	version string
	epoch   uint64
	at      time.Time
	name    name
}

// damage is a delta whose body could not be read.
type damage struct {
	uid     types.UID
	version string
	reason  string
}

// Tombstones are kept for a while, so that the fence recognises the deletion of an object that
// it waits for. The fence finds a deletion whose tombstone has been dropped by its slow path
// ([snapshot.lost]).
const (
	tombstoneAge = 10 * time.Minute
	tombstoneMax = 20000
)

// NewMemory makes an empty memory.
func NewMemory() *Memory {
	return &Memory{
		kinds: map[kinds.Name]*kindMemory{}, uids: map[types.UID]*cachedObject{},
		dependents: index[types.UID]{}, readers: map[string]*reader{},
	}
}

// Follow adds an empty cache for a kind. A kind that is followed already keeps its objects.
func (m *Memory) Follow(kind kinds.Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, ok := m.kinds[kind.Name]; ok {
		k.kind = kind
		return
	}
	m.kinds[kind.Name] = newKindMemory(kind)
}

func newKindMemory(kind kinds.Kind) *kindMemory {
	return &kindMemory{
		kind: kind, objects: map[name]*cachedObject{}, gone: map[types.UID]tombstone{},
		last: map[name]types.UID{}, damaged: map[name]damage{},
		all: newObjectSet(), controllers: index[types.UID]{}, uncontrolled: index[string]{},
	}
}

// Register adds a controller before its engine opens: from now on each fold maps its changes to
// keys of the controller.
func (m *Memory) Register(d reconcile.Description) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.readers[d.Name]; !known {
		m.names = append(m.names, d.Name)
	}
	m.readers[d.Name] = newReader(d)
}

// Dealt says that the changes of a kind up to a sequence have been dealt with: folding them
// asks for no turns.
func (m *Memory) Dealt(kind kinds.Name, sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, ok := m.kinds[kind]; ok {
		k.dealt = sequence
	}
}

// Position is the sequence up to which the kind has been folded; 0 for nothing.
func (m *Memory) Position(kind kinds.Name) uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k, ok := m.kinds[kind]; ok {
		return k.position
	}
	return 0
}

// progress is the sequence up to which the kind has been folded, and whether the watcher had
// reported everything of the kind by then: a mark was among those messages, or the last one has a
// census, which a watcher gives only when it has listed the kind.
func (m *Memory) progress(kind kinds.Name) (position uint64, listed bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k, ok := m.kinds[kind]; ok {
		return k.position, k.mark != "" || k.told.Known
	}
	return 0, false
}

// completeness says how complete a kind is: the census as of a position, the tally of what has
// been folded, and the damage on the way. Objects whose bodies cannot be decoded count as
// present.
type completeness struct {
	told, held events.Census
	position   uint64
	listing    bool // a relist is in progress
	broken     error
}

func (m *Memory) completeness(kind kinds.Name) (w completeness) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k, ok := m.kinds[kind]; ok {
		w = completeness{k.told, k.tally.Census(), k.position, k.listing, k.broken}
	}
	return w
}

// epoch is the epoch of a kind's log, and whether the kind has been listed completely in it.
// While a new epoch is being listed, the memory holds objects of both.
func (m *Memory) epoch(kind kinds.Name) (epoch uint64, told bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k, ok := m.kinds[kind]; ok {
		return k.epoch, k.marked == k.epoch
	}
	return 0, true
}

// Count is the number of objects of a kind.
func (m *Memory) Count(kind kinds.Name) int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k, ok := m.kinds[kind]; ok {
		return len(k.objects)
	}
	return 0
}

// Forget drops everything of a kind whose stream was recreated or deleted, and returns the keys
// of each controller, by name, that its objects mapped to. These need a turn as soon as the
// kind has been folded again. The engines must be shut for the kind before.
func (m *Memory) Forget(kind kinds.Name) map[string][]events.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.kinds[kind]
	if !ok {
		return nil
	}
	keys := map[string][]events.Key{}
	for _, controller := range m.names {
		r, set := m.readers[controller], keySet{}
		s := snapshot{memory: m, reader: r}
		for h := range k.all.Scan {
			found, _ := r.keys(s, change{ref: h.ref, was: h.object})
			set.add(found...)
		}
		keys[controller] = set.keys
	}
	for _, h := range k.all.Items() {
		m.drop(k, h)
	}
	// The kind stays known, because effects that the fence awaits have not come back.
	fresh := newKindMemory(k.kind)
	fresh.known = k.known.later(k.reached)
	m.kinds[kind] = fresh
	return keys
}

// Unfollow drops a forgotten kind for good: no effect on it can come back.
func (m *Memory) Unfollow(kind kinds.Name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kinds, kind)
}

// put adds an object in place of the one held under its name.
func (m *Memory) put(k *kindMemory, at name, fresh *cachedObject) {
	old, ok := k.objects[at]
	if ok && old.uid == fresh.uid && sameIndexes(old.object, fresh.object) {
		old.state = fresh.state
		return
	}
	if ok {
		m.drop(k, old)
	}
	k.objects[at] = fresh
	m.uids[fresh.uid] = fresh
	k.all.Set(fresh)
	if controller := metav1.GetControllerOfNoCopy(fresh.object.Object); controller != nil {
		k.controllers.put(controller.UID, fresh)
	} else {
		k.uncontrolled.put(at.namespace, fresh)
	}
	for _, owner := range fresh.object.GetOwnerReferences() {
		m.dependents.put(owner.UID, fresh)
	}
}

func (m *Memory) drop(k *kindMemory, h *cachedObject) {
	at := name{h.ref.Namespace, h.ref.Name}
	delete(k.objects, at)
	if m.uids[h.uid] == h {
		delete(m.uids, h.uid)
	}
	k.all.Delete(h)
	if controller := metav1.GetControllerOfNoCopy(h.object.Object); controller != nil {
		k.controllers.remove(controller.UID, h)
	} else {
		k.uncontrolled.remove(at.namespace, h)
	}
	for _, owner := range h.object.GetOwnerReferences() {
		m.dependents.remove(owner.UID, h)
	}
}

// sameIndexes reports whether both versions of an object are in the same indexes: most changes
// leave the owners as they are.
func sameIndexes(a, b reconcile.Object) bool {
	x, y := a.GetOwnerReferences(), b.GetOwnerReferences()
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i].UID != y[i].UID || controls(x[i]) != controls(y[i]) {
			return false
		}
	}
	return true
}

func controls(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller }

// addTombstone adds a tombstone and drops the oldest ones.
func (k *kindMemory) addTombstone(t tombstone) {
	if _, known := k.gone[t.uid]; !known {
		k.tombstones = append(k.tombstones, t.uid)
	}
	k.gone[t.uid] = t
	k.last[t.name] = t.uid
	for len(k.tombstones) > 0 {
		oldest := k.gone[k.tombstones[0]]
		if len(k.tombstones) <= tombstoneMax && k.newest.Sub(oldest.at) <= tombstoneAge {
			return
		}
		delete(k.gone, oldest.uid)
		if k.last[oldest.name] == oldest.uid {
			delete(k.last, oldest.name)
		}
		k.tombstones = k.tombstones[1:]
	}
}
