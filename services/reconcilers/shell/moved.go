package shell

import (
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Where a thousand keys wait for their effects, each fold brings some of these. To look at
// all of the keys every time is most of what such an engine does. So a memory remembers
// whose deltas it folded last, and an engine looks at the keys that wait for one of those.

// movedMost is how many deltas of a kind are remembered at least, and movedTwice when
// what is older is let go.
const (
	movedMost  = 256
	movedTwice = 2 * movedMost
)

// moved is whose deltas were folded last, of a kind.
type moved struct {
	names []name // zero for what may concern all of the kind's objects
	count uint64 // of all that were folded
}

// add notes a delta. A mark concerns every object, and so does what begins an epoch.
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

// since gives whose deltas were folded after so many; some is false when it may be anybody's.
func (m *moved) since(count uint64) (names []name, some bool) {
	n := m.count - count
	if count > m.count || n > uint64(len(m.names)) {
		return nil, false
	}
	names = m.names[len(m.names)-int(n):]
	return slices.Clone(names), !slices.Contains(names, name{})
}

// movedSince is [moved.since] of a kind, and how many were folded by now.
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

// recheckMoved is [Engine.recheck] after a kind was folded.
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
	d.recheckIf(kind, func(e *entry) bool { return e.mayMove(kind, have) })
}

// mayMove tells whether a key may see an effect now on one of the objects of a kind, or one
// that rests on how far the kind was folded; or waits for nothing of the kind any more.
func (e *entry) mayMove(kind kinds.Name, names map[name]bool) bool {
	waits := false
	for _, l := range []*lane{&e.act, &e.tell} {
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
