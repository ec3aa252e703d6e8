package shell

import "github.com/millrace/millrace/pkg/events/kinds"

// A view that is inconsistent. The state stream has one message for each object, so a
// reader that lags may pass the place where an object was told first, because it
// has changed since, and see what was created later before what was created earlier.
// What it holds then is of no one moment: "the second replica set is there and the
// first is not" never was true, and the fence does not help, since it waits for
// the last turn alone and takes it that what came before has been seen before.
//
// Every delta says what a census finds at its place. As long as the memory's own
// is another one, no turn is stored that has seen the kind: it waits until the reader
// has caught up, which is soon. A report of what never was would do no harm, but
// it could never be told from the log what it rested on. At the very end of a stream
// a difference may stay, when the last end of an object has expired; the follower
// finds that out.

// compareCensus judges a kind by what the delta that was folded last says there is.
func (k *kindMemory) compareCensus() { k.inconsistent = k.told.Known && k.told != k.tally.Census() }

// caughtUp says that nothing that is missing of a kind is still to come; it tells
// whether that is news.
func (m *Memory) caughtUp(kind kinds.Name) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.kinds[kind]
	if !ok || !k.inconsistent {
		return false
	}
	k.inconsistent = false
	return true
}

// inconsistent tells whether a kind that the controller reads is.
func (s scene) inconsistent() bool {
	for at, k := range s.memory.kinds {
		if k.inconsistent && s.reader.reads(at) {
			return true
		}
	}
	return false
}

// revisitInconsistent looks again at the keys that wait for a view of one moment, if it is one
// now.
func (d *Engine) revisitInconsistent() {
	if len(d.inconsistent) == 0 {
		return
	}
	inconsistent := false
	d.memory.look(d.name, nil, func(s scene) { inconsistent = s.inconsistent() || d.skewed(s) })
	if inconsistent {
		return
	}
	waiting := d.inconsistent
	d.inconsistent, d.freedAt = nil, d.now
	for _, e := range waiting {
		d.revisit(e)
	}
}
