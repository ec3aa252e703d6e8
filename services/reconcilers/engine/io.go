package engine

import (
	"errors"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// IO is the I/O of an engine. None of its methods blocks, and none may call the engine back
// before it has returned; each answer arrives later as a call of the engine's method named
// below.
type IO interface {
	// Store stores a turn on the subject of its key and lane, whose last message
	// must have the sequence expect. Answer: [Engine.Stored].
	Store(turn events.Turn, expect uint64)
	// Recall finds the last turn and outcome of a key and lane, the turn first.
	// Answer: [Engine.Recalled].
	Recall(key events.Key, lane events.Lane)
	// Schedule sets the wake of a key. Answer: [Engine.Scheduled].
	Schedule(wake events.Wake)
	// Reach finds the last sequence of a kind's log. Answer:
	// [Engine.Reached].
	Reach(kind kinds.Name)
}

// ErrStale means that a turn was decided too long ago to be stored: its process stood still in
// between. The engine decides again.
var ErrStale = errors.New("the decision is too old to be stored")

// Past is what the streams hold of a key and lane.
type Past struct {
	// Sequence is that of the last turn; 0 when the stream holds none.
	Sequence uint64
	// Turn is the last turn, nil when there is none.
	Turn *events.Turn
	// Outcome is the newest outcome, nil when there is none.
	Outcome *events.Outcome
	// Dropped says that the turn is so old that the outcome stream does not reach back to it:
	// its outcome was dropped, or will never come.
	Dropped bool
}

// Settings are an engine's settings. The zero value means the defaults; a negative Pace means
// none.
type Settings struct {
	// Code is the version of the program, for the record.
	Code string
	// Pace is the least time between two reports of a key; 0 means 50 ms.
	Pace time.Duration
	// Progress is the least time between two reports while a write of the key is under way; 0
	// means ten times Pace.
	Progress time.Duration
	// Patience is how long an effect may stay unseen before the fence checks whether it can
	// still come; 0 means 2 s.
	Patience time.Duration
	// Orphan is how long a turn may have no outcome, and be in flight at no writer, before it
	// is stored again; 0 means 10 s.
	Orphan time.Duration
	// Backoff is the wait after the first failure, doubled by each further one up to
	// MaxBackoff; 0 means 5 ms and 1000 s.
	Backoff, MaxBackoff time.Duration
	// Attempts is how often a key may break before it is parked; 0 means 5.
	Attempts int
	// Leased: the controller moves with a Lease, and the engine decides only while a writer holds
	// that ([report.Heartbeat].Leads).
	Leased bool
	// Led is told whether a writer holds the Lease, each time that this changes; must not block, may
	// be nil.
	Led func(bool)
	// Trace makes the spans of turns; nil makes none.
	Trace *trace.Tracer
	// Suspect is told of a kind whose state has contradicted the API server for long, and why;
	// must not block, may be nil.
	Suspect func(report.Damage)
	// Waited is told how long each key waited in the queue; may be nil.
	Waited func(time.Duration)
	// Answered is told how each turn ended, as an HTTP status: 200 for a turn without commands
	// or with success, otherwise the status of its first failure. took is the time since its
	// decision, 0 where that is not known. The replica that owns the key reports its outcomes;
	// may be nil.
	Answered func(code int, took time.Duration)
	// Passed is told how long a change took for each stage; may be nil.
	Passed func(stage Stage, took time.Duration, trace events.Trace)
	// Held is told the kind of an effect each time that a turn has to wait for the effect; may
	// be nil.
	Held func(kinds.Name)
	// Measured is told each figure when it counts; may be nil.
	Measured func(reconcile.Figure)
	// Shared is told the controller's gauges by the newest decision about a key, which replace
	// the key's previous ones; may be nil.
	Shared func(key events.Key, figures []reconcile.Figure)
}

func (s Settings) filled() Settings {
	fill := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	fill(&s.Pace, 50*time.Millisecond)
	fill(&s.Patience, 2*time.Second)
	fill(&s.Orphan, 10*time.Second)
	fill(&s.Backoff, events.FirstBackoff)
	fill(&s.MaxBackoff, events.LongestBackoff)
	s.Pace = max(s.Pace, 0)
	fill(&s.Progress, 10*s.Pace)
	if s.Attempts == 0 {
		s.Attempts = 5
	}
	return s
}

// delay is the wait after n failures in a row.
func (s Settings) delay(n int) time.Duration { return events.Backoff(n, s.Backoff, s.MaxBackoff) }
