package shell

import (
	"errors"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// fact is one message of a state stream, read.
type fact struct {
	sequence uint64
	stored   time.Time // when the bus had the message
	delta    events.Delta
	object   reconcile.Object
	damage   string // why the body could not be read
	broken   error  // why none of it may be believed
}

// change is what one fact did to one object.
type change struct {
	ref      events.Ref
	sequence uint64       // of the fact
	stored   time.Time    // the same
	trace    events.Trace // of the delta
	version  string       // of the object
	damage   string       // why it cannot be read
	was, now reconcile.Object
}

// Fold takes in a batch of messages of a kind's state stream, in order, and
// gives the position reached. Bodies are decoded before anybody has to wait for
// the lock. A message that is no delta, which only a foreign publisher can cause,
// moves the position and nothing else; so does one that is damaged, which is
// remembered ([Memory.wholeness]).
func (m *Memory) Fold(kind kinds.Name, batch []events.Message) uint64 {
	m.mu.RLock()
	k, ok := m.kinds[kind]
	if !ok {
		m.mu.RUnlock()
		return 0
	}
	described := k.kind
	m.mu.RUnlock()

	facts := make([]fact, 0, len(batch))
	for _, message := range batch {
		facts = append(facts, read(described, message))
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if k, ok = m.kinds[kind]; !ok {
		return 0
	}
	changes := make([]change, 0, len(facts))
	for _, f := range facts {
		if c, changed := m.fold(k, f); f.sequence <= k.dealt {
			// An engine that opens asks about everything that is there.
		} else if changed {
			c.sequence, c.stored, c.trace, c.version = f.sequence, f.stored, f.delta.Trace, f.delta.ResourceVersion
			changes = append(changes, c)
		} else if f.damage != "" && f.delta.Ref.Name != "" && f.delta.Op != events.Gone {
			changes = append(changes, change{ref: f.delta.Ref, sequence: f.sequence, version: f.delta.ResourceVersion, damage: f.damage})
		}
		k.position = max(k.position, f.sequence)
	}
	k.compareCensus()
	for _, controller := range m.names {
		r := m.readers[controller]
		r.tell(scene{memory: m, reader: r}, kind, changes)
	}
	return k.position
}

func read(kind kinds.Kind, message events.Message) fact { return readBy((*fact).decode, kind, message) }

// readBy reads a message, and its body in one way or another.
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

func (m *Memory) fold(k *kindMemory, f fact) (change, bool) {
	d := f.delta
	k.told = d.Census // that of the last message counts, if it has one
	k.listing = !d.Census.Known && (d.Sync || d.Op == events.Gap)
	if f.broken != nil {
		k.broken = f.broken
		return change{}, false
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
	at := name{d.Ref.Namespace, d.Ref.Name}
	switch {
	case f.damage != "":
		if d.Ref.Name != "" && d.Op != events.Gone {
			k.damaged[at] = damage{uid: d.UID, version: d.ResourceVersion, reason: f.damage}
		}
		if d.Op != events.Gone {
			return change{}, false
		}
		return m.gone(k, at, f) // the end of an object needs no body
	case d.Op == events.Mark:
		k.mark, k.marked, k.markAt = d.ResourceVersion, d.Epoch, f.sequence
		return change{}, false
	case d.Op == events.Is:
		delete(k.damaged, at)
		return m.is(k, at, f)
	case d.Op == events.Gone:
		delete(k.damaged, at)
		return m.gone(k, at, f)
	default:
		return change{}, false
	}
}

func (m *Memory) is(k *kindMemory, at name, f fact) (change, bool) {
	d := f.delta
	if t, dead := k.gone[d.UID]; dead && !newer(d, t.epoch, t.version) {
		return change{}, false
	}
	c, heard, without := change{ref: d.Ref, now: f.object}, d.At, false
	if old, ok := k.objects[at]; ok {
		if !newer(d, old.epoch, old.version) {
			return change{}, false
		}
		if c.was = old.object; old.uid != d.UID {
			// Its end was overwritten in the state stream by the newcomer.
			k.bury(tombstone{uid: old.uid, version: d.ResourceVersion, epoch: d.Epoch, at: d.At, name: at})
		} else if silent(old.object, f.object) {
			heard, without = old.heard, true
		}
	}
	m.put(k, at, &held{d.Ref, &state{d.UID, d.ResourceVersion, d.Epoch, f.object, heard, without}})
	return c, true
}

// silent tells whether an object that gives signs of life has changed without one.
func silent(was, now reconcile.Object) bool {
	if now.Kind.Name != kinds.Nodes.Name && !kinds.IsHeartbeat(now.Kind.Name) {
		return false
	}
	a, some := kinds.Heartbeat(whole(was.Object))
	b, more := kinds.Heartbeat(whole(now.Object))
	return some && more && a.Equal(&b)
}

// gone takes in the end of an object. An end that is later than what is held
// ends that too, whatever its uid: the state stream keeps one message per name,
// so the end of the object held was overwritten by a namesake's life.
func (m *Memory) gone(k *kindMemory, at name, f fact) (change, bool) {
	d := f.delta
	_, known := k.gone[d.UID]
	old, held := k.objects[at]
	version := d.ResourceVersion
	if d.Sync && d.Epoch > 0 && !(held && old.epoch == d.Epoch) {
		version = "" // that of its last known state, handed out in another epoch: no position in this one
	}
	t := tombstone{uid: d.UID, version: version, epoch: d.Epoch, at: d.At, name: at}
	switch {
	case held && old.uid == d.UID && olderThan(d, old):
		return change{}, false
	case held && (old.uid == d.UID || newer(d, old.epoch, old.version)):
		m.drop(k, old)
		k.bury(tombstone{uid: old.uid, version: version, epoch: d.Epoch, at: d.At, name: at})
		if !f.object.None() {
			k.bury(t)
		}
		return change{ref: d.Ref, was: old.object}, true
	case known || f.object.None():
		return change{}, false
	}
	k.bury(t)
	return change{ref: d.Ref, was: f.object}, true
}

// olderThan tells whether a delta was made before what is held. An end may bear
// the very version of the last change.
func olderThan(d events.Delta, h *held) bool {
	return d.Epoch < h.epoch || d.Epoch == h.epoch && kinds.CompareVersions(d.ResourceVersion, h.version) < 0
}

// newer tells whether a delta is later than what is known. A later epoch is
// later whatever its versions are: the API server was restored from a backup.
func newer(d events.Delta, epoch uint64, version string) bool {
	if d.Epoch != epoch {
		return d.Epoch > epoch
	}
	return kinds.CompareVersions(version, d.ResourceVersion) < 0
}
