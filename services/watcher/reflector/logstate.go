package reflector

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/kindlog"
)

// logState is what a watcher knows of the log that it keeps, so that it notices losses: the objects
// as of the last message, and what the next message must link to.
type logState struct {
	tally   events.Tally // of the objects that exist
	counted bool         // the tally is known
	after   events.Link  // the last message that is not a mark
	unsure  bool         // a delta has been counted, and is not known to be appended
	stored  uint64       // the last sequence that is known to be stored
	created time.Time    // when the log was created; zero: not known
	// places are the log's last sequences about each object that exists, by a hash of the subject.
	// since is the oldest of them, as of the last mark. unlinked: a part of the log cannot be read,
	// so an object without a place may have deltas all the same.
	places   kindlog.Places // nil: not known
	since    uint64
	unlinked bool
	gap      events.Place // the place of the log's last gap
	whole    time.Time    // when the log was last known to be complete
	// sight is how long the watcher has watched a kind of heartbeats without a break.
	sight events.Sight

	nextGap       events.Hole // what the next gap reports
	damaged       bool        // the log is damaged
	repairedAt    uint64      // the sequence at which the last relist ended
	reportActedOn time.Time   // when the last reader's report was acted on
	recordAll     bool        // the next relist records every object again
	recordAllAt   time.Time   // when a reader's report last had that done
	checkedAt     time.Time   // when the log was last checked, and its end then
	checkedEnd    uint64
}

// completeDelta completes a delta that is the next one of the log.
func (l *logState) completeDelta(d *events.Delta) {
	l.tally.Fold(*d)
	l.unsure = true
	if l.counted {
		d.Census = l.tally.Census()
	}
	d.After, d.Sight = l.after, l.sight
	switch {
	case d.Ref.Name == "":
		d.Before = l.gap
	case l.places != nil && !l.unlinked:
		d.Before = events.Place{Known: true, Sequence: l.places.Of(subject.Delta(d.Ref))}
	default:
		d.Before = events.Place{}
	}
}

// noteAppended notes a message that was handed to the appender.
func (l *logState) noteAppended(op events.Op, m events.Message, sequence uint64) {
	l.unsure = false
	switch op {
	case events.Is, events.Gone:
		l.places.Note(op, m.Subject, sequence)
	case events.Gap:
		l.gap = events.Place{Known: true, Sequence: sequence}
	case events.Mark:
	}
	if op != events.Mark {
		l.after = events.Link{Sequence: sequence, Sum: m.Get(events.HeaderSum)}
	}
}

// countFrom starts the count from what the log says.
func (l *logState) countFrom(c kindlog.Contents) {
	l.tally, l.places, l.counted, l.unlinked = c.Tally, c.Places, true, c.Unreadable
	l.since = l.places.Oldest()
}
