package translate

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// fewEnds are read in no time, whatever they lie among.
const fewEnds = 5000

// Window is the end of a state stream, as much of it as a reader needs: the last
// deltas of all objects that are there, and with them the ends of some that are
// not. A reader begins with it. What lies before it are ends alone, which are kept
// for a day, and of which only a writer asks for one.
//
// It begins with the object that was said longest ago, so that ends pile up behind
// that. When there are more of them than objects it is Crowded, and the oldest
// objects are to be said again; so it never grows with the past. That is how
// logs are cleaned elsewhere, and costs at most one message for each object that ends.
//
// The zero value is that of a stream that holds nothing.
type Window struct {
	since uint64
	ends  []end // in it, oldest first
}

type end struct {
	sequence uint64
	at       time.Time
}

// Since is the first message of the window; 0 where there is none yet.
func (w *Window) Since() uint64 { return w.since }

// Fold takes in the next message of a stream, and when it was stored. A message
// that cannot be read may be about something that is there.
func (w *Window) Fold(op events.Op, sequence uint64, at time.Time) {
	switch {
	case op == events.Gone && w.since > 0:
		w.ends = append(w.ends, end{sequence, at})
	case op == events.Gone, op == events.Mark, op == events.Gap: // nothing is there
	case w.since == 0:
		w.since = sequence
	}
}

// Begin moves the beginning of the window to a message, before which nothing is
// there.
func (w *Window) Begin(since uint64) {
	w.since = since
	w.drop(func(e end) bool { return e.sequence < since })
}

// Crowded tells whether there are too many ends for so many objects. Those that
// were stored before a moment have expired.
func (w *Window) Crowded(objects uint64, expired time.Time) bool {
	w.drop(func(e end) bool { return e.at.Before(expired) })
	return uint64(len(w.ends)) > max(fewEnds, objects)
}

// drop forgets the oldest ends, as many of them as are so.
func (w *Window) drop(so func(end) bool) {
	kept := slices.IndexFunc(w.ends, func(e end) bool { return !so(e) })
	if kept < 0 {
		kept = len(w.ends)
	}
	w.ends = w.ends[kept:]
}
