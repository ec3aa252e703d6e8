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

// Memory is the folded world: the newest state of every object of the kinds
// that are followed. It is disposable, since the state streams rebuild it, and
// safe for concurrent use.
type Memory struct {
	mu         sync.RWMutex
	kinds      map[kinds.Name]*kindMemory
	uids       map[types.UID]*held
	dependents index[types.UID]
	readers    map[string]*reader
	names      []string // of readers, in the order of their arrival
}

// kindMemory is what is remembered of one kind.
type kindMemory struct {
	kind     kinds.Kind
	position uint64 // sequence of the last message folded
	epoch    uint64
	mark     string // everything up to this resourceVersion has been seen
	marked   uint64 // the epoch of the last mark
	markAt   uint64 // its sequence
	reached  moment // the latest that was folded
	known    moment // what was reached before the kind was forgotten
	newest   time.Time
	sight    events.Sight // of a kind of heartbeats

	objects map[name]*held
	gone    map[types.UID]tombstone
	dying   []types.UID // uids in gone, in the order of their end
	last    map[name]types.UID
	damaged map[name]damage

	tally   events.Tally  // of the deltas folded
	told    events.Census // what there is, as the last message folded has it
	listing bool          // that message is of a relist that has not ended
	broken  error         // the last message whose sums did not hold
	// inconsistent: what is held is of no one moment.
	inconsistent bool
	// dealt is up to which sequence changes ask for nothing: they are told again.
	dealt uint64
	moved moved

	all          *objectSet
	controllers  index[types.UID]
	uncontrolled index[string]
}

type name struct{ namespace, name string }

// tombstone is what is remembered of an object that is gone: which it was, and not what was in it.
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

// Tombstones are kept for a while, so that the fence recognises the end of an
// object that it waits for. What outlives them is found by the fence's slow
// path.
const (
	tombstoneAge = 10 * time.Minute
	tombstoneMax = 20000
)

// NewMemory makes an empty memory.
func NewMemory() *Memory {
	return &Memory{
		kinds: map[kinds.Name]*kindMemory{}, uids: map[types.UID]*held{},
		dependents: index[types.UID]{}, readers: map[string]*reader{},
	}
}

// Follow prepares for a kind. A kind that is followed already keeps its
// objects.
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
		kind: kind, objects: map[name]*held{}, gone: map[types.UID]tombstone{},
		last: map[name]types.UID{}, damaged: map[name]damage{},
		all: newObjectSet(), controllers: index[types.UID]{}, uncontrolled: index[string]{},
	}
}

// Register makes a controller known before its engine opens: from now on it is told of
// every change that is folded.
func (m *Memory) Register(d reconcile.Description) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.readers[d.Name]; !known {
		m.names = append(m.names, d.Name)
	}
	m.readers[d.Name] = newReader(d)
}

// Dealt says that the changes of a kind up to a sequence have been dealt with before: folding
// them asks for no turns.
func (m *Memory) Dealt(kind kinds.Name, sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, ok := m.kinds[kind]; ok {
		k.dealt = sequence
	}
}

// Position is how far the kind's state stream has been folded.
func (m *Memory) Position(kind kinds.Name) uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k, ok := m.kinds[kind]; ok {
		return k.position
	}
	return 0
}

// stand is how far the kind's state stream has been folded, and whether it said
// by then that everything of the kind has been told.
func (m *Memory) stand(kind kinds.Name) (position uint64, marked bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k, ok := m.kinds[kind]; ok {
		return k.position, k.mark != ""
	}
	return 0, false
}

// wholeness is what can be said of how much of a kind is there: what there should
// be as of a position, what there is, and what was damaged on the way. Objects
// whose bodies could not be read are there.
type wholeness struct {
	said, has events.Census
	position  uint64
	listing   bool // what is there is only being said
	broken    error
}

func (m *Memory) wholeness(kind kinds.Name) (w wholeness) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k, ok := m.kinds[kind]; ok {
		w = wholeness{k.told, k.tally.Census(), k.position, k.listing, k.broken}
	}
	return w
}

// epoch is the epoch that a kind's log is in, and whether everything of it has
// been told: while a new one is being told, objects of both are beside each other.
func (m *Memory) epoch(kind kinds.Name) (epoch uint64, told bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if k, ok := m.kinds[kind]; ok {
		return k.epoch, k.marked == k.epoch
	}
	return 0, true
}

// absolve says that what was damaged has been made good.
func (m *Memory) absolve(kind kinds.Name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, ok := m.kinds[kind]; ok {
		k.broken = nil
	}
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

// Forget drops everything of a kind, whose stream has been made anew or exists
// no more, and gives the keys of each controller, by name, that its objects
// made: their turn it is as soon as the kind has been folded again. The engines must
// be shut for the kind before.
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
		s := scene{memory: m, reader: r}
		for h := range k.all.Scan {
			found, _ := r.keys(s, change{ref: h.ref, was: h.object})
			set.add(found...)
		}
		keys[controller] = set.keys
	}
	for _, h := range k.all.Items() {
		m.drop(k, h)
	}
	// The kind stays known: what the fence waits for has not come back.
	fresh := newKindMemory(k.kind)
	fresh.known = k.known.later(k.reached)
	m.kinds[kind] = fresh
	return keys
}

// Unfollow drops a forgotten kind for good: nothing of it will come back.
func (m *Memory) Unfollow(kind kinds.Name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kinds, kind)
}

// put files an object in place of what was held under its name.
func (m *Memory) put(k *kindMemory, at name, fresh *held) {
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

func (m *Memory) drop(k *kindMemory, h *held) {
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

// sameIndexes tells whether an object is filed as it was before: most changes
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

// bury remembers the end of an object and forgets the oldest ends.
func (k *kindMemory) bury(t tombstone) {
	if _, known := k.gone[t.uid]; !known {
		k.dying = append(k.dying, t.uid)
	}
	k.gone[t.uid] = t
	k.last[t.name] = t.uid
	for len(k.dying) > 0 {
		oldest := k.gone[k.dying[0]]
		if len(k.dying) <= tombstoneMax && k.newest.Sub(oldest.at) <= tombstoneAge {
			return
		}
		delete(k.gone, oldest.uid)
		if k.last[oldest.name] == oldest.uid {
			delete(k.last, oldest.name)
		}
		k.dying = k.dying[1:]
	}
}
