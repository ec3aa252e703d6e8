package cache

import (
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A stream that lost its end is older than it was, and looks intact: each census agrees, and
// there is a mark. Only the cache folded before the loss shows the difference. A decision on
// the rest would go back in time, to a scale that has been taken back or an object that is
// being deleted. So a cache that forgets a kind keeps how far it had been reported, and no
// engine decides before a watcher has reported again everything up to there.

// moment is a point in the history of a kind.
type moment struct {
	epoch   uint64
	version string
}

// momentOf is the moment of a delta. A deletion that a relist found has the last known version,
// which may be of another epoch, and so no moment.
func momentOf(d events.Delta) moment {
	if d.Sync && d.Op == events.Gone {
		return moment{}
	}
	return moment{d.Epoch, d.ResourceVersion}
}

// before reports whether a moment certainly precedes another one. Versions that are no numbers
// have no order.
func (m moment) before(other moment) bool {
	if m.epoch != other.epoch {
		return m.epoch < other.epoch
	}
	return kinds.CompareVersions(m.version, other.version) < 0 && kinds.CompareVersions(other.version, m.version) > 0
}

func (m moment) later(other moment) moment {
	if m.before(other) {
		return other
	}
	return m
}

// BehindKnown reports whether the last mark of a kind is older than the state that the cache had
// before it forgot the kind.
func (c *Cache) BehindKnown(kind kinds.Name) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, ok := c.kinds[kind]
	return ok && k.known != (moment{}) && (k.mark == "" || moment{k.marked, k.mark}.before(k.known))
}
