package shell

import "github.com/millrace/millrace/pkg/events/kinds"

// Inconsistent views. The state stream has one message for each object. A follower that lags
// may pass the sequence at which an object was first reported, because it has changed since,
// and so fold a later created object before an earlier one. Then the memory is not the state of
// any moment: "the second replica set exists and the first does not" never was true. The fence
// does not help, because it waits for the last turn alone, and assumes that the effects of
// earlier turns have been seen.
//
// Every delta has the census at its sequence. While the memory's own census differs, the engine
// stores no turn that has seen the kind: it waits until the follower has caught up, which is
// soon. Reports wait too: they would do no harm, but the log could never tell which view they
// rested on. At the very end of a stream a difference may stay, when the last deletion of an
// object has expired; the follower finds that out.

// compareCensus compares a kind with the census of the delta that was folded last.
func (k *kindMemory) compareCensus() { k.inconsistent = k.told.Known && k.told != k.tally.Census() }

// caughtUp says that no message that a kind lacks is still to come, so that the kind counts as
// consistent. It returns whether it was inconsistent before.
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

// inconsistent tells whether a kind that the controller reads is inconsistent.
func (s snapshot) inconsistent() bool {
	for at, k := range s.memory.kinds {
		if k.inconsistent && s.reader.reads(at) {
			return true
		}
	}
	return false
}

// requeueInconsistent looks again at the keys that wait for a consistent snapshot, if there is
// one now.
func (d *Engine) requeueInconsistent() {
	if len(d.inconsistent) == 0 {
		return
	}
	inconsistent := false
	d.memory.view(d.name, nil, func(s snapshot) { inconsistent = s.inconsistent() || d.skewed(s) })
	if inconsistent {
		return
	}
	waiting := d.inconsistent
	d.inconsistent, d.freedAt = nil, d.now
	for _, e := range waiting {
		d.requeue(e)
	}
}
