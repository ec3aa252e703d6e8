package shell

import (
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// When a thousand keys wait for their effects, each fold brings a few of these. Checking all of
// the keys every time would be most of the engine's work. So the memory remembers the objects
// of the last deltas folded, and the engine checks the keys that wait for one of these.

// movedMost is the least number of deltas of a kind that are remembered. At movedTwice the
// older half is dropped.
const (
	movedMost  = 256
	movedTwice = 2 * movedMost
)

// moved holds the objects of the last deltas folded of a kind.
type moved struct {
	names []name // zero name: the delta may concern all objects of the kind
	count uint64 // deltas folded in all
}

// add records a delta. A mark concerns every object, and so does the first delta of an epoch.
func (m *moved) add(d events.Delta, epoch uint64) {
	if len(m.names) == movedTwice {
		m.names = append(m.names[:0], m.names[movedMost:]...)
	}
	at := name{d.Ref.Namespace, d.Ref.Name}
	if d.Epoch > epoch {
		at = name{}
	}
	m.names, m.count = append(m.names, at), m.count+1
}

// since returns the objects of the deltas folded after the first count. some is false when the
// deltas may concern any object.
func (m *moved) since(count uint64) (names []name, some bool) {
	n := m.count - count
	if count > m.count || n > uint64(len(m.names)) {
		return nil, false
	}
	names = m.names[len(m.names)-int(n):]
	return slices.Clone(names), !slices.Contains(names, name{})
}

// movedSince is [moved.since] of a kind, and the count of deltas folded by now.
func (m *Memory) movedSince(kind kinds.Name, count uint64) (names []name, some bool, now uint64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	k, ok := m.kinds[kind]
	if !ok {
		return nil, false, 0
	}
	names, some = k.moved.since(count)
	return names, some, k.moved.count
}

// recheckMoved is [Engine.recheck] for the keys that the deltas folded since the last call may
// concern.
func (d *Engine) recheckMoved(kind kinds.Name) {
	if len(d.awaiting[kind]) == 0 {
		return
	}
	names, some, now := d.memory.movedSince(kind, d.rechecked[kind])
	d.rechecked[kind] = now
	if !some {
		d.recheck(kind)
		return
	}
	have := make(map[name]bool, len(names))
	for _, at := range names {
		have[at] = true
	}
	d.recheckIf(kind, func(e *entry) bool { return e.mayHaveReturned(kind, have) })
}

// mayHaveReturned reports whether a fold may have brought a key an effect on one of the objects of a
// kind, or one that rests on how far the kind was folded; or whether the key no longer waits
// for the kind.
func (e *entry) mayHaveReturned(kind kinds.Name, names map[name]bool) bool {
	waits := false
	for _, l := range []*lane{&e.write, &e.status} {
		for i := range l.effects {
			u := &l.effects[i]
			ref := &u.result.Ref
			if ref.Kind != kind {
				continue
			}
			if waits = true; u.seen > 0 || u.goal > 0 || names[name{ref.Namespace, ref.Name}] {
				return true
			}
		}
	}
	return !waits
}
