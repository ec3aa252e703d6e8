package cache

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// When a thousand keys wait for their effects, each fold brings a few of these. Checking all of
// the keys every time would be most of an engine's work. So the cache remembers the objects of the
// last deltas folded, and an engine checks the keys that wait for one of these.

// movedMost is the least number of deltas of a kind that are remembered. At movedTwice the
// older half is dropped.
const (
	movedMost  = 256
	movedTwice = 2 * movedMost
)

// moved holds the objects of the last deltas folded of a kind.
type moved struct {
	names []types.NamespacedName // zero name: the delta may concern all objects of the kind
	count uint64                 // deltas folded in all
}

// add records a delta. A mark concerns every object, and so does the first delta of an epoch.
func (m *moved) add(d events.Delta, epoch uint64) {
	if len(m.names) == movedTwice {
		m.names = append(m.names[:0], m.names[movedMost:]...)
	}
	at := nameOf(d.Ref)
	if d.Epoch > epoch {
		at = types.NamespacedName{}
	}
	m.names, m.count = append(m.names, at), m.count+1
}

// since returns the objects of the deltas folded after the first count. some is false when the
// deltas may concern any object.
func (m *moved) since(count uint64) (names []types.NamespacedName, some bool) {
	n := m.count - count
	if count > m.count || n > uint64(len(m.names)) {
		return nil, false
	}
	names = m.names[len(m.names)-int(n):]
	return slices.Clone(names), !slices.Contains(names, types.NamespacedName{})
}

// MovedSince returns the objects of a kind of which a delta was folded after the first count, and
// the count by now. some is false when the deltas may concern any object of the kind, and for a
// kind that is not followed.
func (c *Cache) MovedSince(kind kinds.Name, count uint64) (names []types.NamespacedName, some bool, now uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, ok := c.kinds[kind]
	if !ok {
		return nil, false, 0
	}
	names, some = k.moved.since(count)
	return names, some, k.moved.count
}
