package watcher

import (
	"hash/maphash"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

// ledger is what a watcher knows of the log that it keeps, so that losses show:
// what lies behind its last message, and what must lie before the next one.
type ledger struct {
	tally   events.Tally // of the objects that are there
	counted bool         // the tally is known
	window  translate.Window
	after   events.Link // the last message that is not a mark
	torn    bool        // a delta has been counted, and is not known to be appended
	stored  uint64      // everything up to it is known to be stored
	created time.Time   // when the log was made; zero: not known
	// places are where the log says each object that is there the last time, by a hash
	// of the subject; nil while that is not known. gap is where its last gap is.
	places places
	gap    events.Place
	since  time.Time // when it was last known that nothing is missing in the log
	// sight is for how long the kind has been watched without a break, of a kind of heartbeats.
	sight events.Sight

	hole     events.Hole // what the next gap stands for
	doubted  bool        // log or state is damaged
	mended   uint64      // where the last relist ended
	heard    time.Time   // when a reader's report was followed last
	renew    bool        // the next reading of the state makes it anew
	renewed  time.Time   // when that was done last
	lookedAt time.Time   // when the streams were looked at, and what had been appended then
	looked   uint64
	behind   uint64 // where the state stood when it was behind, and since when
	behindAt time.Time
}

// enter completes a delta that is going to be the log's next.
func (l *ledger) enter(d *events.Delta) {
	l.tally.Fold(*d)
	l.torn = true
	if l.counted {
		d.Census = l.tally.Census()
	}
	d.After, d.Sight = l.after, l.sight
	switch {
	case d.Ref.Name == "":
		d.Before = l.gap
	case l.places != nil:
		d.Before = events.Place{Known: true, Sequence: l.places[hashOf(subject.Delta(d.Ref))]}
	default:
		d.Before = events.Place{}
	}
}

// appended notes a message that has been given to the log.
func (l *ledger) appended(op events.Op, m events.Message, sequence uint64) {
	l.torn = false
	switch op {
	case events.Is, events.Gone:
		l.places.note(op, m.Subject, sequence)
	case events.Gap:
		l.gap = events.Place{Known: true, Sequence: sequence}
	case events.Mark:
	}
	l.window.Fold(op, sequence, time.Now())
	if op != events.Mark {
		l.after = events.Link{Sequence: sequence, Sum: m.Get(events.HeaderSum)}
	}
}

// found begins to count, with what a state stream holds.
func (l *ledger) found(h holding) { l.tally, l.window, l.counted = h.tally, h.window, true }

// places are sequences by a hash of the subject: 16 bytes and some air for each
// object. Two objects of one hash would make one link lead to the other, which
// a reader that follows it sees.
type places map[uint64]uint64

var seed = maphash.MakeSeed()

func hashOf(subject string) uint64 { return maphash.String(seed, subject) }

// note takes in where an object was said. What is gone is forgotten: names that
// are never used again would fill the memory.
func (p places) note(op events.Op, subject string, sequence uint64) {
	switch {
	case p == nil:
	case op == events.Gone:
		delete(p, hashOf(subject))
	default:
		p[hashOf(subject)] = sequence
	}
}

// crowded tells whether a window has so many ends that the oldest objects should
// be said again.
func (k *kindWatch) crowded(w *translate.Window) bool {
	return k.counted && w.Crowded(k.tally.Census().Objects, time.Now().Add(-k.age))
}
