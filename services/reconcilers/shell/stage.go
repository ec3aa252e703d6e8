package shell

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// Stage is a part of a change's way: to the decision, to the bus, to the API server, and back
// to the replica that decided.
type Stage string

// The stages, in order. The replica that made the turn measures each. The turn of another
// replica, or from before a restart of this one, has none.
const (
	// Decided is from when the bus stored the oldest change that asked for the turn until the
	// decision.
	Decided Stage = "decided"
	// Stored is until the bus has stored the turn.
	Stored Stage = "stored"
	// Written is until the outcome is known.
	Written Stage = "written"
	// Seen is until every effect has come back.
	Seen Stage = "seen"
)

// Stages are all stages, in order.
var Stages = []Stage{Decided, Stored, Written, Seen}

// stageTimes is the progress of a lane's last turn, if this engine made it.
type stageTimes struct {
	trace   events.Trace
	decided time.Time
	since   time.Time // the end of its last stage
	turn    uint64    // its sequence; 0 until it is stored
	written bool
}

// beginStages begins the stages of a turn that is decided now.
func (d *Engine) beginStages(e *entry, l *lane) {
	l.stages = stageTimes{trace: traceOf(e.Triggers), decided: d.now, since: d.now}
	if !e.since.IsZero() {
		d.reportStage(Decided, max(d.now.Sub(e.since), 0), l.stages.trace)
	}
}

// turnStored ends the stage to the bus.
func (d *Engine) turnStored(l *lane, sequence uint64) {
	d.endStage(&l.stages, Stored)
	l.stages.turn = sequence
}

// outcomeKnown ends the stage to the API server, when the outcome of a turn is known.
func (d *Engine) outcomeKnown(l *lane, o events.Outcome) {
	switch j := &l.stages; {
	case j.turn == 0, o.Turn < j.turn:
		return // of an earlier turn
	case o.Turn > j.turn:
		*j = stageTimes{} // others have gone on
		return
	}
	d.endStage(&l.stages, Written)
	l.stages.written = true
}

// effectsSeen ends the stages when every effect has come back. A turn without effects has no stage
// Seen.
func (d *Engine) effectsSeen(l *lane) {
	if !l.stages.written || !l.settled() {
		return
	}
	for _, r := range l.last.Results {
		if d.reads(r.Ref.Kind) && becomesVisible(r) {
			d.endStage(&l.stages, Seen)
			break
		}
	}
	l.stages = stageTimes{}
}

func (d *Engine) endStage(j *stageTimes, stage Stage) {
	d.reportStage(stage, d.now.Sub(j.since), j.trace)
	j.since = d.now
}

func (d *Engine) reportStage(stage Stage, took time.Duration, trace events.Trace) {
	if d.settings.Passed != nil {
		d.settings.Passed(stage, took, trace)
	}
}

// reportHeld reports the kind of the effect that a shut fence waits for, if it waits for an effect.
func (d *Engine) reportHeld(e *entry) {
	for _, l := range []*lane{&e.write, &e.status} {
		if len(l.effects) > 0 && d.settings.Held != nil {
			d.settings.Held(l.effects[0].Result.Ref.Kind)
			return
		}
	}
}

// Backlog is, by kind, the oldest change that waits for its turn.
func (d *Engine) Backlog() map[kinds.Name]cache.Backlog {
	oldest := map[kinds.Name]cache.Backlog{}
	note := func(all []cache.Backlog) {
		for _, b := range all {
			if have, ok := oldest[b.Kind]; !ok || b.Sequence < have.Sequence {
				oldest[b.Kind] = b
			}
		}
	}
	for e := range d.pending {
		if note(e.Oldest); e.round != nil {
			note(e.round.waiting)
		}
	}
	return oldest
}
