package handover

import (
	"slices"

	"github.com/millrace/millrace/pkg/events"
)

// Reader gets the messages of one stream. Its methods are for one goroutine. A nil Reader is never
// ready.
type Reader struct {
	hub    *Hub
	stream string
	ready  chan struct{} // holds a token when Take has something to return

	// The mutex of the hub guards the rest.
	next     uint64 // the lowest sequence that the reader wants
	batch    []events.Message
	size     int // of batch, in bytes
	detached bool
}

// Ready is the channel that says when Take has something to return.
func (r *Reader) Ready() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.ready
}

// Take returns the messages since the last call. Other readers have the same messages, so they
// must not be changed.
//
// Errors: [ErrDetached], when nothing follows the messages that were taken before.
func (r *Reader) Take() ([]events.Message, error) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	batch := r.batch
	r.batch, r.size = nil, 0
	if r.detached {
		return nil, ErrDetached
	}
	return batch, nil
}

// Detach ends the reading. It may be called more than once.
func (r *Reader) Detach() {
	if r == nil {
		return
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.detach()
	t := r.hub.tails[r.stream]
	if t == nil {
		return
	}
	t.readers = slices.DeleteFunc(t.readers, func(other *Reader) bool { return other == r })
	if len(t.readers) == 0 {
		delete(r.hub.tails, r.stream) // nothing is kept of streams that are not read
	}
}

func (r *Reader) add(m events.Message) {
	if m.Sequence < r.next || r.detached {
		return
	}
	r.next = m.Sequence + 1
	if r.batch, r.size = append(r.batch, m), r.size+sizeOf(m); len(r.batch) > heldMessages || r.size > heldBytes {
		r.detach()
		return
	}
	r.signal()
}

// detach drops what was not taken: the stream has it.
func (r *Reader) detach() {
	r.batch, r.size, r.detached = nil, 0, true
	r.signal()
}

func (r *Reader) signal() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}
