package translate

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// fewEnds is a number of tombstones that readers read in no time, wherever they are.
const fewEnds = 5000

// Window is the part of a state stream that a reader needs: it reaches from the last delta of the
// object that was recorded longest ago to the end of the stream. It holds the last deltas of all
// existing objects, and some tombstones. Before it there are only tombstones, which are kept for a
// day; only a writer that asks for one object reads them.
//
// Tombstones pile up behind the oldest object. When there are more of them than objects, the window
// is Crowded, and the watcher records the oldest objects again, so the window never grows with the
// past. Other systems clean their logs in the same way. It costs at most one message for each
// object that ends.
//
// The zero value is the window of a stream that holds nothing.
type Window struct {
	since uint64
	ends  []end // tombstones in the window, oldest first
}

type end struct {
	sequence uint64
	at       time.Time
}

// Since returns the first message of the window; 0 where there is none yet.
func (w *Window) Since() uint64 { return w.since }

// Fold takes in the next message of a stream, and when it was stored. A message that cannot be read
// may be about an object that exists.
func (w *Window) Fold(op events.Op, sequence uint64, at time.Time) {
	switch {
	case op == events.Gone && w.since > 0:
		w.ends = append(w.ends, end{sequence, at})
	case op == events.Gone, op == events.Mark, op == events.Gap: // nothing is there
	case w.since == 0:
		w.since = sequence
	}
}

// Begin moves the start of the window to a message; no object may exist before it.
func (w *Window) Begin(since uint64) {
	w.since = since
	w.drop(func(e end) bool { return e.sequence < since })
}

// Crowded tells whether the window has too many tombstones for that many objects. Tombstones that
// were stored before expired no longer count.
func (w *Window) Crowded(objects uint64, expired time.Time) bool {
	w.drop(func(e end) bool { return e.at.Before(expired) })
	return uint64(len(w.ends)) > max(fewEnds, objects)
}

// drop forgets the oldest tombstones, up to the first for which so is false.
func (w *Window) drop(so func(end) bool) {
	kept := slices.IndexFunc(w.ends, func(e end) bool { return !so(e) })
	if kept < 0 {
		kept = len(w.ends)
	}
	w.ends = w.ends[kept:]
}
