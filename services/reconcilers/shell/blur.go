package shell

import "github.com/millrace/millrace/pkg/events/kinds"

// A view that is blurred. The state stream has one message for each object, so a
// reader that lags may pass the place where an object was told first, because it
// has changed since, and see what was born later before what was born earlier.
// What it holds then is of no one moment: "the second replica set is there and the
// first is not" never was true, and the fence does not help, since it waits for
// the last turn alone and takes it that what came before has been seen before.
//
// Every delta says what a census finds at its place. As long as the memory's own
// is another one, no turn is stored that has seen the kind: it waits until the reader
// has caught up, which is soon. A report of what never was would do no harm, but
// nobody could ever tell from the log what it rested on. At the very end of a stream
// a difference may stay, when the last end of an object has expired; the follower
// finds that out.

// blurs judges a kind by what the delta that was folded last says there is.
func (k *kindMemory) blurs() { k.blurred = k.told.Known && k.told != k.tally.Census() }

// sharpen says that nothing that is missing of a kind is still to come; it tells
// whether that is news.
func (m *Memory) sharpen(kind kinds.Name) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.kinds[kind]
	if !ok || !k.blurred {
		return false
	}
	k.blurred = false
	return true
}

// blurred tells whether a kind that the controller reads is.
func (s scene) blurred() bool {
	for at, k := range s.memory.kinds {
		if k.blurred && s.reader.reads(at) {
			return true
		}
	}
	return false
}

// sharp looks again at the keys that wait for a view of one moment, if it is one
// now.
func (d *Desk) sharp() {
	if len(d.squinting) == 0 {
		return
	}
	blurred := false
	d.memory.look(d.name, nil, func(s scene) { blurred = s.blurred() || d.parted(s) })
	if blurred {
		return
	}
	waiting := d.squinting
	d.squinting, d.freedAt = nil, d.now
	for _, e := range waiting {
		d.revisit(e)
	}
}
