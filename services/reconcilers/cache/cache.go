package cache

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Cache holds the newest state of every object of the kinds that are followed. It is
// disposable, because the logs rebuild it, and safe for concurrent use.
type Cache struct {
	mu         sync.RWMutex
	kinds      map[kinds.Name]*kindCache
	uids       map[types.UID]*cachedObject
	dependents index[types.UID]
	readers    map[string]*reader
	names      []string // of readers, in the order of their arrival
}

// kindCache is the cache of one kind.
type kindCache struct {
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

	objects    map[types.NamespacedName]*cachedObject
	gone       map[types.UID]tombstone
	tombstones []types.UID // uids in gone, in the order of their deletion
	last       map[types.NamespacedName]types.UID
	damaged    map[types.NamespacedName]damage

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

// tombstone is what the cache keeps of a deleted object: its identity, not its contents.
type tombstone struct {
	uid     types.UID
	version string
	epoch   uint64
	at      time.Time
	name    types.NamespacedName
}

// damage is a delta whose body could not be read.
type damage struct {
	uid     types.UID
	version string
	reason  string
}

// Tombstones are kept for a while, so that the fence recognises the deletion of an object that
// it waits for. The fence finds a deletion whose tombstone has been dropped by its slow path
// ([Snapshot.Lost]).
const (
	tombstoneAge = 10 * time.Minute
	tombstoneMax = 20000
)

// New makes an empty cache.
func New() *Cache {
	return &Cache{
		kinds: map[kinds.Name]*kindCache{}, uids: map[types.UID]*cachedObject{},
		dependents: index[types.UID]{}, readers: map[string]*reader{},
	}
}

// Follow adds an empty cache for a kind. A kind that is followed already keeps its objects.
func (c *Cache) Follow(kind kinds.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kinds[kind.Name]; ok {
		k.kind = kind
		return
	}
	c.kinds[kind.Name] = newKindCache(kind)
}

func newKindCache(kind kinds.Kind) *kindCache {
	return &kindCache{
		kind: kind, objects: map[types.NamespacedName]*cachedObject{}, gone: map[types.UID]tombstone{},
		last: map[types.NamespacedName]types.UID{}, damaged: map[types.NamespacedName]damage{},
		all: newObjectSet(), controllers: index[types.UID]{}, uncontrolled: index[string]{},
	}
}

// Register adds a controller before its engine opens: from now on each fold maps its changes to
// keys of the controller.
func (c *Cache) Register(d reconcile.Description) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.readers[d.Name]; !known {
		c.names = append(c.names, d.Name)
	}
	c.readers[d.Name] = newReader(d)
}

// Dealt says that the changes of a kind up to a sequence have been dealt with: folding them
// asks for no turns.
func (c *Cache) Dealt(kind kinds.Name, sequence uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kinds[kind]; ok {
		k.dealt = sequence
	}
}

// Position is the sequence up to which the kind has been folded; 0 for nothing.
func (c *Cache) Position(kind kinds.Name) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if k, ok := c.kinds[kind]; ok {
		return k.position
	}
	return 0
}

// Progress is the sequence up to which the kind has been folded, and whether the watcher had
// reported everything of the kind by then: a mark was among those messages, or the last one has a
// census, which a watcher gives only when it has listed the kind.
func (c *Cache) Progress(kind kinds.Name) (position uint64, listed bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if k, ok := c.kinds[kind]; ok {
		return k.position, k.mark != "" || k.told.Known
	}
	return 0, false
}

// Completeness says how complete a kind is. Objects whose bodies cannot be decoded count as
// present.
type Completeness struct {
	Told     events.Census // the census that the log had at Position
	Held     events.Census // the census of what has been folded
	Position uint64
	Listing  bool  // a relist is in progress
	Broken   error // a message had wrong checksums, and no census has come since
}

// Completeness is how complete a kind is; the zero value for one that is not followed.
func (c *Cache) Completeness(kind kinds.Name) (w Completeness) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if k, ok := c.kinds[kind]; ok {
		w = Completeness{k.told, k.tally.Census(), k.position, k.listing, k.broken}
	}
	return w
}

// Epoch is the epoch of a kind's log, and whether the kind has been listed completely in it.
// While a new epoch is being listed, the cache holds objects of both.
func (c *Cache) Epoch(kind kinds.Name) (epoch uint64, told bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if k, ok := c.kinds[kind]; ok {
		return k.epoch, k.marked == k.epoch
	}
	return 0, true
}

// Count is the number of objects of a kind.
func (c *Cache) Count(kind kinds.Name) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if k, ok := c.kinds[kind]; ok {
		return len(k.objects)
	}
	return 0
}

// Forget drops everything of a kind whose stream was recreated or deleted, and returns the keys
// of each controller, by name, that its objects mapped to. These need a turn as soon as the
// kind has been folded again. The engines must be shut for the kind before.
func (c *Cache) Forget(kind kinds.Name) map[string][]events.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.kinds[kind]
	if !ok {
		return nil
	}
	keys := map[string][]events.Key{}
	for _, controller := range c.names {
		r, set := c.readers[controller], keySet{}
		s := Snapshot{cache: c, reader: r}
		for h := range k.all.Scan {
			found, _ := r.keys(s, change{ref: h.ref, was: h.object})
			set.add(found...)
		}
		keys[controller] = set.keys
	}
	for _, h := range k.all.Items() {
		c.drop(k, h)
	}
	// The kind stays known, because effects that the fence awaits have not come back.
	fresh := newKindCache(k.kind)
	fresh.known = k.known.later(k.reached)
	c.kinds[kind] = fresh
	return keys
}

// Unfollow drops a forgotten kind for good: no effect on it can come back.
func (c *Cache) Unfollow(kind kinds.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kinds, kind)
}

// put adds an object in place of the one held under its name.
func (c *Cache) put(k *kindCache, at types.NamespacedName, fresh *cachedObject) {
	old, ok := k.objects[at]
	if ok && old.uid == fresh.uid && sameIndexes(old.object, fresh.object) {
		old.state = fresh.state
		return
	}
	if ok {
		c.drop(k, old)
	}
	k.objects[at] = fresh
	c.uids[fresh.uid] = fresh
	k.all.Set(fresh)
	if controller := metav1.GetControllerOfNoCopy(fresh.object.Object); controller != nil {
		k.controllers.put(controller.UID, fresh)
	} else {
		k.uncontrolled.put(at.Namespace, fresh)
	}
	for _, owner := range fresh.object.GetOwnerReferences() {
		c.dependents.put(owner.UID, fresh)
	}
}

func (c *Cache) drop(k *kindCache, h *cachedObject) {
	at := nameOf(h.ref)
	delete(k.objects, at)
	if c.uids[h.uid] == h {
		delete(c.uids, h.uid)
	}
	k.all.Delete(h)
	if controller := metav1.GetControllerOfNoCopy(h.object.Object); controller != nil {
		k.controllers.remove(controller.UID, h)
	} else {
		k.uncontrolled.remove(at.Namespace, h)
	}
	for _, owner := range h.object.GetOwnerReferences() {
		c.dependents.remove(owner.UID, h)
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
func (k *kindCache) addTombstone(t tombstone) {
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
