package shell

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Hop is a part of the way that a change goes: to the decision, to the bus, to the
// API server, and back to whoever decided.
type Hop string

// The hops, in order. Each is measured by the replica that made the turn; one
// that another replica made, or this one before it was restarted, has none.
const (
	// Decided is from when the bus had the oldest change that asked for the turn
	// until the turn was decided.
	Decided Hop = "decided"
	// Stored is until the bus had the turn.
	Stored Hop = "stored"
	// Written is until the outcome was known.
	Written Hop = "written"
	// Seen is until everything that was applied had come back.
	Seen Hop = "seen"
)

// Hops are all hops.
var Hops = []Hop{Decided, Stored, Written, Seen}

// journey is how far the last turn of a lane has come, if this desk made it.
type journey struct {
	trace   events.Trace
	decided time.Time // zero: there is no journey
	since   time.Time // the end of its last hop
	turn    uint64    // where it is stored; 0 as yet
	written bool
}

// depart begins the journey of a turn that is decided now.
func (d *Desk) depart(e *entry, l *lane) {
	l.journey = journey{trace: e.trace(), decided: d.now, since: d.now}
	if !e.since.IsZero() {
		d.passed(Decided, max(d.now.Sub(e.since), 0), l.journey.trace)
	}
}

// embark ends the hop to the bus.
func (d *Desk) embark(l *lane, sequence uint64) {
	if l.journey.decided.IsZero() {
		return
	}
	d.arrive(&l.journey, Stored)
	l.journey.turn = sequence
}

// land ends the hop to the API server, when the outcome of a turn is known.
func (d *Desk) land(l *lane, o events.Outcome) {
	switch j := &l.journey; {
	case j.turn == 0, o.Turn < j.turn:
		return // of an earlier turn
	case o.Turn > j.turn:
		*j = journey{} // others have gone on
		return
	}
	d.arrive(&l.journey, Written)
	l.journey.written = true
}

// home ends the journey when everything has come back. What left nothing to be
// seen has no way back.
func (d *Desk) home(l *lane) {
	if !l.journey.written || !l.settled() {
		return
	}
	for _, r := range l.last.Results {
		if d.reads(r.Ref.Kind) && leavesTrace(r) {
			d.arrive(&l.journey, Seen)
			break
		}
	}
	l.journey = journey{}
}

func (d *Desk) arrive(j *journey, hop Hop) {
	d.passed(hop, d.now.Sub(j.since), j.trace)
	j.since = d.now
}

func (d *Desk) passed(hop Hop, took time.Duration, trace events.Trace) {
	if d.settings.Passed != nil {
		d.settings.Passed(hop, took, trace)
	}
}

// holds tells which kind a shut fence waits for to be seen, if it is not for an
// outcome.
func (d *Desk) holds(e *entry) {
	for _, l := range []*lane{&e.act, &e.tell} {
		if len(l.dues) > 0 && d.settings.Held != nil {
			d.settings.Held(l.dues[0].result.Ref.Kind)
			return
		}
	}
}

// Backlog is, by kind, the oldest change that waits for its turn.
func (d *Desk) Backlog() map[kinds.Name]Backlog {
	oldest := map[kinds.Name]Backlog{}
	note := func(all []Backlog) {
		for _, b := range all {
			if have, ok := oldest[b.Kind]; !ok || b.Sequence < have.Sequence {
				oldest[b.Kind] = b
			}
		}
	}
	for e := range d.pending {
		if note(e.oldest); e.round != nil {
			note(e.round.waiting)
		}
	}
	return oldest
}
