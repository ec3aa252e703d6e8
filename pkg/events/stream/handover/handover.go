// Package handover passes messages from the publishers of a process to the readers of the same
// process, in memory. It is for processes whose NATS server is embedded, and has no I/O.
//
// A publisher hands a message over when the server has stored it, so a reader never sees one that
// the stream does not have. What a reader gets is contiguous: it begins where the reader stands,
// and a message that is handed over early waits for those before it. A publisher that does not
// know what the server has stored says so ([Hub.Lose]); then all readers of the stream are
// detached, and read on from the server.
//
// Only publishers of this process hand messages over. So a hub passes nothing on while another
// process might publish ([Hub.Suspend]).
package handover

import (
	"errors"
	"slices"
	"sync"

	"github.com/millrace/millrace/pkg/events"
)

// ErrDetached: the reader gets no more messages here, and has to read on from the server.
var ErrDetached = errors.New("no more messages are handed over in this process")

const (
	// recentMessages and recentBytes bound the newest messages of a stream that are kept: for a
	// reader that is about to attach, since others come while it reads the last ones from the
	// server, and for [Hub.Last].
	recentMessages = 1024
	recentBytes    = 1 << 20
	// overhead is about what the headers of a message take, in bytes.
	overhead = 1 << 10
	// maxEarly bounds the messages that wait for an earlier one. Requests in flight are fewer.
	maxEarly = 1024
	// heldMessages and heldBytes bound what waits for a reader. The reader that has more is
	// detached: it finds the messages in the stream.
	heldMessages = 4000
	heldBytes    = 32 << 20
)

// Hub passes messages on by stream. It is safe for concurrent use. A nil Hub passes nothing on.
type Hub struct {
	mu        sync.Mutex
	suspended int // number of the present suspension; 0: there is none
	counted   int // how many suspensions there have been
	tails     map[string]*tail
}

// New makes a hub.
func New() *Hub { return &Hub{tails: map[string]*tail{}} }

// tail is the end of a stream, as far as it was handed over.
type tail struct {
	last    uint64                    // sequence of the newest message without a hole before it
	recent  []events.Message          // the newest messages up to last
	size    int                       // of recent, in bytes
	early   map[uint64]events.Message // stored behind a message that was not handed over yet
	readers []*Reader
}

// Store hands over a message that the server has stored: its Stream, Sequence and Time are set.
// The message must not be changed afterwards.
func (h *Hub) Store(m events.Message) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[m.Stream]
	switch {
	case t == nil || m.Sequence <= t.last:
	case m.Sequence > t.last+1:
		if t.early[m.Sequence] = m; len(t.early) > maxEarly {
			h.lose(m.Stream)
		}
	default:
		for there := true; there; m, there = t.early[t.last+1] {
			delete(t.early, m.Sequence)
			t.add(m)
		}
	}
}

// add adds the message behind the last one.
func (t *tail) add(m events.Message) {
	t.last = m.Sequence
	t.recent, t.size = append(t.recent, m), t.size+sizeOf(m)
	for len(t.recent) > recentMessages || t.size > recentBytes && len(t.recent) > 1 {
		t.size -= sizeOf(t.recent[0])
		t.recent[0] = events.Message{}
		t.recent = t.recent[1:]
	}
	for _, r := range t.readers {
		r.add(m)
	}
}

func sizeOf(m events.Message) int { return len(m.Data) + overhead }

// Last is the newest message of a subject. ok is false if it is not among the messages that were
// handed over lately, or a newer one may wait for an earlier message; then the server has to be
// asked.
func (h *Hub) Last(stream, subject string) (m events.Message, ok bool) {
	if h == nil {
		return m, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[stream]
	if t == nil || len(t.early) > 0 {
		return m, false
	}
	for _, m := range slices.Backward(t.recent) {
		if m.Subject == subject {
			return m, true
		}
	}
	return m, false
}

// Lose says that it is not known what the server has stored of a stream, or that the stream was
// deleted. It detaches all readers of the stream.
func (h *Hub) Lose(stream string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lose(stream)
}

func (h *Hub) lose(stream string) {
	if t := h.tails[stream]; t != nil {
		delete(h.tails, stream)
		for _, r := range t.readers {
			r.detach()
		}
	}
}

// Suspend says that another process may publish from now on. It detaches all readers, and until
// Resume no reader attaches. It returns the number of the suspension.
func (h *Hub) Suspend() (number int) {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for stream := range h.tails {
		h.lose(stream)
	}
	h.counted++
	h.suspended = h.counted
	return h.suspended
}

// Resume ends a suspension, unless a later one has begun.
func (h *Hub) Resume(number int) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.suspended == number {
		h.suspended = 0
	}
}

// Attach makes a reader of a stream that gets the messages from a sequence on. It returns nil if
// they cannot be handed over: then the reader reads on from the server, and may try again when it
// has come nearer to the end. Where nothing has been handed over lately, Attach relies on the
// caller that the server has no message at or behind the sequence, or looks for one later.
func (h *Hub) Attach(stream string, from uint64) *Reader {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.suspended != 0 {
		return nil
	}
	from = max(from, 1)
	t := h.tails[stream]
	if t == nil {
		t = &tail{last: from - 1, early: map[uint64]events.Message{}}
		h.tails[stream] = t
	}
	if from+uint64(len(t.recent)) <= t.last {
		return nil // messages are missing that were handed over and forgotten
	}
	r := &Reader{hub: h, stream: stream, next: from, ready: make(chan struct{}, 1)}
	for _, m := range t.recent {
		r.add(m)
	}
	t.readers = append(t.readers, r)
	return r
}
