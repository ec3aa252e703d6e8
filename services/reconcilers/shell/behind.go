package shell

import (
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A stream that lost its end says less than it did, and says it without a fault:
// each census agrees, the mark is there. What was folded before the loss is all
// that knows better. A decision on the rest would go back in time, to a
// scale that has been taken back or an object that is on its way out. So a memory
// that forgets a kind keeps how far it had been told, and no engine decides before
// a watcher has said that everything up to there has been told again.

// moment is a point in the history of a kind.
type moment struct {
	epoch   uint64
	version string
}

// momentOf is the moment that a delta tells of. An end that a relist found bears the
// last version that was known, which may be of another epoch.
func momentOf(d events.Delta) moment {
	if d.Sync && d.Op == events.Gone {
		return moment{}
	}
	return moment{d.Epoch, d.ResourceVersion}
}

// before tells whether a moment certainly came before another one: versions that
// are no numbers have no order.
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

// Behind tells whether less of a kind has been told for certain than was known
// of it before it was forgotten.
func (m *Memory) Behind(kind kinds.Name) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	k, ok := m.kinds[kind]
	return ok && k.known != (moment{}) && (k.mark == "" || moment{k.marked, k.mark}.before(k.known))
}
