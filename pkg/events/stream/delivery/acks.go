package delivery

import "sync"

// A reader that consumes acknowledges by sequence: one acknowledgement covers every message up
// to its own. A few reply subjects are therefore enough, so Acks keeps only some of them for a
// reader that has many messages unfinished.

// mostReplies bounds the kept reply subjects.
const mostReplies = 4096

// Acks are the reply subjects of a session's messages that can still be acknowledged. The zero value has
// none. It is safe for concurrent use.
type Acks struct {
	mu      sync.Mutex
	replies []pendingAck // by their sequences
}

// pendingAck is the reply subject of a message.
type pendingAck struct {
	sequence uint64
	to       string
}

// Add notes the reply subject of a message. Sequences must ascend.
func (a *Acks) Add(sequence uint64, to string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.replies = append(a.replies, pendingAck{sequence, to}); len(a.replies) < mostReplies {
		return
	}
	kept := a.replies[:0]
	for i, r := range a.replies {
		if i%2 == 1 {
			kept = append(kept, r)
		}
	}
	a.replies = kept
}

// ReplyUpTo returns the reply subject that acknowledges everything up to a sequence; "" if nothing
// is new.
func (a *Acks) ReplyUpTo(sequence uint64) (to string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.replies) && a.replies[n].sequence <= sequence {
		to = a.replies[n].to
		n++
	}
	a.replies = a.replies[n:]
	return to
}

// Clear drops all of them.
func (a *Acks) Clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replies = nil
}

// Any reports whether a message is left to acknowledge.
func (a *Acks) Any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.replies) > 0
}
