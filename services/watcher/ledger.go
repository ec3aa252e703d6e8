package watcher

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// ledger is what a watcher knows of the log that it keeps, so that losses show:
// what lies behind its last message, and what must lie before the next one.
type ledger struct {
	tally   events.Tally // of the objects that are there
	counted bool         // the tally is known
	after   events.Link  // the last message that is not a mark
	stored  uint64       // everything up to it is known to be stored
	created time.Time    // when the log was made; zero: not known

	hole     events.Hole // what the next gap stands for
	doubted  bool        // log or state is damaged
	mended   uint64      // where the last relist ended
	heard    time.Time   // when a reader's report was followed last
	renew    bool        // the next reading of the state makes it anew
	renewed  time.Time   // when that was done last
	looks    int
	behind   uint64 // where the state stood when it was behind, and since when
	behindAt time.Time
}

// enter completes a delta that is going to be the log's next.
func (l *ledger) enter(d *events.Delta) {
	l.tally.Fold(*d)
	if l.counted {
		d.Census = l.tally.Census()
	}
	d.After = l.after
}

// appended notes a message that has been given to the log.
func (l *ledger) appended(op events.Op, m events.Message, sequence uint64) {
	if op != events.Mark {
		l.after = events.Link{Sequence: sequence, Sum: m.Get(events.HeaderSum)}
	}
}

// found begins to count, with what a state stream holds.
func (l *ledger) found(tally events.Tally) { l.tally, l.counted = tally, true }
