package kindlog

import (
	"hash/maphash"

	"github.com/millrace/millrace/pkg/events"
)

// Places are the last sequences of a log about each object that exists, by a hash of the subject: 16
// bytes and map overhead for each object. If two objects have the same hash, a link leads to the
// wrong one, which a reader that follows it notices.
type Places map[uint64]uint64

var seed = maphash.MakeSeed()

func hashOf(subject string) uint64 { return maphash.String(seed, subject) }

// Of is the place of the delta with a subject; 0 where the object does not exist.
func (p Places) Of(subject string) (sequence uint64) { return p[hashOf(subject)] }

// Note takes in the place of an object's delta. It forgets deleted objects, because names that are
// never used again would fill the memory.
func (p Places) Note(op events.Op, subject string, sequence uint64) {
	switch {
	case p == nil:
	case op == events.Gone:
		delete(p, hashOf(subject))
	default:
		p[hashOf(subject)] = sequence
	}
}

// Oldest is the first message of the log that a reader needs to know every object that exists; 0
// where none does.
func (p Places) Oldest() (sequence uint64) {
	for _, at := range p {
		if sequence == 0 || at < sequence {
			sequence = at
		}
	}
	return sequence
}
