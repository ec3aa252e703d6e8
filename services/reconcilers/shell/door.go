package shell

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Door is what an engine asks of the world. None of its methods blocks, and none
// may call the engine back before it has returned; the answers arrive later as the
// engine's methods named below.
type Door interface {
	// Store stores a turn on the subject of its key and lane, whose last message
	// must have the sequence expect. Answer: [Engine.Stored].
	Store(turn events.Turn, expect uint64)
	// Recall finds the last turn and outcome of a key and lane, the turn first.
	// Answer: [Engine.Recalled].
	Recall(key events.Key, lane events.Lane)
	// Schedule sets the wake of a key. Answer: [Engine.Scheduled].
	Schedule(wake events.Wake)
	// Reach finds the last sequence of a kind's state stream. Answer:
	// [Engine.Reached].
	Reach(kind kinds.Name)
}

// Past is what the streams remember of a key and lane.
type Past struct {
	// Sequence is the last turn's; 0 when the stream holds none.
	Sequence uint64
	// Turn is the last turn, nil when there is none.
	Turn *events.Turn
	// Outcome is the newest outcome, nil when there is none.
	Outcome *events.Outcome
	// Dropped says that the turn had its outcome, or never will, so long ago that the
	// stream of outcomes does not reach back to it.
	Dropped bool
}

// Settings are an engine's measures. The zero value means the defaults, except
// that a negative Pace means none.
type Settings struct {
	// Code is the version of the program, for the record.
	Code string
	// Pace is the least time between two reports of a key; 0 means 50 ms.
	Pace time.Duration
	// Progress is the same while a turn of the key that acts is under way; 0
	// means ten times Pace.
	Progress time.Duration
	// Patience is how long an effect may stay unseen before the fence looks
	// whether it can still come; 0 means 2 s.
	Patience time.Duration
	// Orphan is how long a turn may have no outcome, and be in no writer's hand,
	// before it is stored again; 0 means 10 s.
	Orphan time.Duration
	// Backoff is the wait after the first failure, doubled by each further one
	// up to MaxBackoff; 0 means 5 ms and 1000 s.
	Backoff, MaxBackoff time.Duration
	// Attempts is how often a key may break before it is parked; 0 means 5.
	Attempts int
	// Signatures are what turns are signed with and outcomes believed by.
	Signatures Signatures
	// Trace makes the spans of turns; nil makes none.
	Trace *trace.Tracer
	// Lost is told what a stream of the controller has lost that it had
	// acknowledged; may be nil.
	Lost func(stream string, what error)
	// Suspect is told of a kind whose state and API server have disagreed for long,
	// and why; must not block, may be nil.
	Suspect func(events.Damage)
	// Waited is told how long each key stood in the queue; may be nil.
	Waited func(time.Duration)
	// Answered is told how each turn ended, as an HTTP status: 200 when it wanted
	// nothing or has what it wanted, or else that of its first failure; and how long
	// it took from its decision, 0 where that is not known. An outcome is told by the
	// replica that owns its key; may be nil.
	Answered func(code int, took time.Duration)
	// Passed is told how long a change took for each stage of its way; may be nil.
	Passed func(stage Stage, took time.Duration, trace events.Trace)
	// Held is told the kind of an effect each time that a turn has to wait for it to
	// be seen; may be nil.
	Held func(kinds.Name)
	// Measured is told each figure that counts, when it does; may be nil.
	Measured func(reconcile.Figure)
	// Shared is told what the newest decision about a key says for the controller's
	// gauges, instead of what was said for the key before; may be nil.
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
