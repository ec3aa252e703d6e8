package cache

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// fact is one decoded message of a log.
type fact struct {
	sequence uint64
	stored   time.Time // when the bus had the message
	delta    events.Delta
	object   reconcile.Object
	damage   string // why the body could not be read
	broken   error  // why the whole message is not trusted
}

// change is the change that one fact made to one object.
type change struct {
	ref      events.Ref
	sequence uint64       // sequence of the fact
	stored   time.Time    // when the bus stored the fact
	trace    events.Trace // trace of the delta
	version  string       // version of the object
	damage   string       // why the object cannot be decoded
	was, now reconcile.Object
}

// Fold takes in a batch of messages of a kind's log, in order, and returns the
// position reached. It decodes the bodies before it takes the write lock, so that readers do
// not wait for that. A message that is no delta, which only a foreign publisher can cause,
// moves the position and nothing else. So does a damaged message, which Fold remembers
// ([Cache.Completeness]).
func (c *Cache) Fold(kind kinds.Name, batch []events.Message) uint64 {
	c.mu.RLock()
	k, ok := c.kinds[kind]
	if !ok {
		c.mu.RUnlock()
		return 0
	}
	described := k.kind
	c.mu.RUnlock()

	facts := make([]fact, 0, len(batch))
	for _, message := range batch {
		facts = append(facts, read(described, message))
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok = c.kinds[kind]; !ok {
		return 0
	}
	changes := make([]change, 0, len(facts))
	for _, f := range facts {
		if made, changed := c.fold(k, f); f.sequence <= k.dealt {
			// No news: an engine that opens asks about every object.
		} else if changed {
			made.sequence, made.stored, made.trace, made.version = f.sequence, f.stored, f.delta.Trace, f.delta.ResourceVersion
			changes = append(changes, made)
		} else if f.damage != "" && f.delta.Ref.Name != "" && f.delta.Op != events.Gone {
			changes = append(changes, change{ref: f.delta.Ref, sequence: f.sequence, version: f.delta.ResourceVersion, damage: f.damage})
		}
		k.position = max(k.position, f.sequence)
	}
	k.compareCensus()
	for _, controller := range c.names {
		r := c.readers[controller]
		r.mapChanges(Snapshot{cache: c, reader: r}, kind, changes)
	}
	return k.position
}

func read(kind kinds.Kind, message events.Message) fact { return readBy((*fact).decode, kind, message) }

// readBy decodes a message, and its body with a given function.
func readBy(body func(*fact, kinds.Kind), kind kinds.Kind, message events.Message) fact {
	f := fact{sequence: message.Sequence, stored: message.Time}
	ref, err := subject.ParseDelta(message.Subject)
	if err != nil || ref.Kind != kind.Name {
		f.broken = events.Verify(message)
		return f
	}
	f.delta, err = events.DecodeDelta(ref, message)
	switch {
	case errors.Is(err, events.ErrDamaged):
		return fact{sequence: f.sequence, broken: err}
	case err != nil:
		f.delta = events.Delta{Ref: ref}
		f.damage = err.Error()
		return f
	}
	body(&f, kind)
	return f
}

// decode reads the body of a delta that has one.
func (f *fact) decode(kind kinds.Kind) {
	if f.delta.Op != events.Is && f.delta.Op != events.Gone {
		return
	}
	if f.delta.Form != "" {
		kind.Form = f.delta.Form
	}
	object, err := kinds.Decode(kind, f.delta.ContentType, f.delta.Body)
	if err != nil {
		f.damage = err.Error()
		return
	}
	f.object = reconcile.Object{Kind: kind, Object: object}
}

func (c *Cache) fold(k *kindCache, f fact) (change, bool) {
	d := f.delta
	k.told = d.Census // the census of the last message counts, if it has one
	k.listing = !d.Census.Known && (d.Sync || d.Op == events.Gap)
	if f.broken != nil {
		k.broken = f.broken
		return change{}, false
	}
	if d.Census.Known {
		k.broken = nil
	}
	k.tally.Fold(d)
	k.moved.add(d, k.epoch)
	k.epoch = max(k.epoch, d.Epoch)
	k.reached = k.reached.later(momentOf(d))
	if d.At.After(k.newest) {
		k.newest = d.At
	}
	if d.Sight != (events.Sight{}) {
		k.sight = d.Sight
	}
	at := nameOf(d.Ref)
	switch {
	case f.damage != "":
		if d.Ref.Name != "" && d.Op != events.Gone {
			k.damaged[at] = damage{uid: d.UID, version: d.ResourceVersion, reason: f.damage}
		}
		if d.Op != events.Gone {
			return change{}, false
		}
		return c.applyGone(k, at, f) // a deletion needs no body
	case d.Op == events.Mark:
		k.mark, k.marked, k.markAt = d.ResourceVersion, d.Epoch, f.sequence
		return change{}, false
	case d.Op == events.Is:
		delete(k.damaged, at)
		return c.applyIs(k, at, f)
	case d.Op == events.Gone:
		delete(k.damaged, at)
		return c.applyGone(k, at, f)
	default:
		return change{}, false
	}
}

func (c *Cache) applyIs(k *kindCache, at types.NamespacedName, f fact) (change, bool) {
	d := f.delta
	if t, dead := k.gone[d.UID]; dead && !isNewer(d, t.epoch, t.version) {
		return change{}, false
	}
	made, heard, without := change{ref: d.Ref, now: f.object}, d.At, false
	if old, ok := k.objects[at]; ok {
		if !isNewer(d, old.epoch, old.version) {
			return change{}, false
		}
		if made.was = old.object; old.uid != d.UID {
			// The log has lost the old one's deletion.
			k.addTombstone(tombstone{uid: old.uid, version: d.ResourceVersion, epoch: d.Epoch, at: d.At, name: at})
		} else if silent(old.object, f.object) {
			heard, without = old.heard, true
		}
	}
	c.put(k, at, &cachedObject{d.Ref, &state{d.UID, d.ResourceVersion, d.Epoch, f.object, heard, without}})
	return made, true
}

// silent reports whether an object that sends heartbeats (a node, or of a heartbeat kind) has
// changed without a new one.
func silent(was, now reconcile.Object) bool {
	if now.Kind.Name != kinds.Nodes.Name && !kinds.IsHeartbeat(now.Kind.Name) {
		return false
	}
	a, some := kinds.Heartbeat(whole(was.Object))
	b, more := kinds.Heartbeat(whole(now.Object))
	return some && more && a.Equal(&b)
}

// applyGone takes in a deletion. A deletion later than the held object removes that object too,
// whatever its uid: the log has lost what happened between the two.
func (c *Cache) applyGone(k *kindCache, at types.NamespacedName, f fact) (change, bool) {
	d := f.delta
	_, known := k.gone[d.UID]
	old, held := k.objects[at]
	version := d.ResourceVersion
	if d.Sync && d.Epoch > 0 && !(held && old.epoch == d.Epoch) {
		version = "" // version of its last known state, of another epoch: not comparable in this one
	}
	t := tombstone{uid: d.UID, version: version, epoch: d.Epoch, at: d.At, name: at}
	switch {
	case held && old.uid == d.UID && isOlder(d, old):
		return change{}, false
	case held && (old.uid == d.UID || isNewer(d, old.epoch, old.version)):
		c.drop(k, old)
		k.addTombstone(tombstone{uid: old.uid, version: version, epoch: d.Epoch, at: d.At, name: at})
		if !f.object.None() {
			k.addTombstone(t)
		}
		return change{ref: d.Ref, was: old.object}, true
	case known || f.object.None():
		return change{}, false
	}
	k.addTombstone(t)
	return change{ref: d.Ref, was: f.object}, true
}

// isOlder reports whether a delta is older than the held object. A deletion may have the
// version of the last change.
func isOlder(d events.Delta, h *cachedObject) bool {
	return d.Epoch < h.epoch || d.Epoch == h.epoch && kinds.CompareVersions(d.ResourceVersion, h.version) < 0
}

// isNewer reports whether a delta is later than an epoch and version. A later epoch is later
// whatever the versions are: the API server was restored from a backup.
func isNewer(d events.Delta, epoch uint64, version string) bool {
	if d.Epoch != epoch {
		return d.Epoch > epoch
	}
	return kinds.CompareVersions(version, d.ResourceVersion) < 0
}
