package engine

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The replica that made a decision measures its figures. Figures that wait for a turn's outcome
// wait in its lane. A figure is not measured if another replica has stored a later turn, or if
// this replica was restarted since the decision.

// measure reports the figures that count when a part of a decision is stored, and keeps those
// that count later.
func (d *Engine) measure(l *lane, figures []reconcile.Figure) {
	l.figures = nil
	if d.settings.Measured == nil {
		return
	}
	for _, f := range figures {
		switch {
		case d.gauges[f.Metric]:
		case f.Of == (events.Ref{}):
			d.settings.Measured(f)
		default:
			l.figures = append(l.figures, f)
		}
	}
}

// reportFigures reports the figures that count now that the outcome of this engine's last turn is
// known.
func (d *Engine) reportFigures(l *lane, o events.Outcome) {
	if o.Turn < l.stages.turn {
		return
	}
	for _, f := range l.figures {
		if l.stages.turn != o.Turn || allDone(o, f.Of) == f.Failed {
			continue
		}
		if f.Took {
			f.Value = d.turnDuration(l, o).Seconds()
		}
		d.settings.Measured(f)
	}
	l.figures = nil
}

// allDone reports whether all commands of a turn for an object succeeded, at least one.
func allDone(o events.Outcome, ref events.Ref) bool {
	found := false
	for _, r := range o.Results {
		if r.Ref == ref {
			if !r.OK() {
				return false
			}
			found = true
		}
	}
	return found
}

// reportGauges reports a decision's gauges.
func (d *Engine) reportGauges(key events.Key, figures []reconcile.Figure) {
	if !d.hasGauges() {
		return
	}
	d.settings.Shared(key, slices.DeleteFunc(slices.Clone(figures), func(f reconcile.Figure) bool { return !d.gauges[f.Metric] }))
}

// hasGauges reports whether keys have gauges that are published.
func (d *Engine) hasGauges() bool { return len(d.gauges) > 0 && d.settings.Shared != nil }

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

// beginProcessSpan begins the span of a question to the controller.
func (d *Engine) beginProcessSpan(e *entry, a *answer) *trace.Span {
	if a.began.IsZero() {
		return nil
	}
	q := trace.Question{
		Controller: d.name, About: d.own(e.key), Parent: a.trace, Triggers: e.Triggers, Began: a.began,
	}
	return d.settings.Trace.Process(q)
}

// traceDecision makes the spans of an answer of which something is stored. The trace of the stored
// turn continues from there.
func (d *Engine) traceDecision(e *entry, a *answer) {
	process := d.beginProcessSpan(e, a)
	reconcile := d.settings.Trace.Reconcile(process, d.name, a.began)
	if a.first {
		reconcile = d.beginTrace(e, a)
	}
	reconcile.Set(trace.Because.String(a.decision.Because), trace.Commands.Int(len(a.decision.Commands)))
	a.trace = reconcile.Or(a.trace)
	reconcile.End()
	process.End()
}

// beginTrace begins a trace for a turn without a known cause.
func (d *Engine) beginTrace(e *entry, a *answer) *trace.Span {
	var labels map[string]string
	if a.object != nil {
		labels = a.object.GetLabels()
	}
	return d.settings.Trace.First(trace.Question{Controller: d.name, About: d.own(e.key)}, labels, d.now)
}

// traceNoCommands makes the one span of an answer without commands. It makes none when an outcome
// asked: nearly every outcome leads to such an answer, which is not worth a span.
func (d *Engine) traceNoCommands(e *entry, a *answer) {
	if a.began.IsZero() {
		return
	}
	for _, t := range e.Triggers {
		if t.Trace == a.trace && t.Stream == subject.OutcomeStream(d.name) {
			return
		}
	}
	process := d.beginProcessSpan(e, a)
	process.Set(trace.Because.String(a.decision.Because), trace.Outcome.String("nothing"))
	a.trace = process.Or(a.trace)
	process.End()
}

// traceBroken makes the span of a question without an answer, because the key broke.
func (d *Engine) traceBroken(e *entry, a *answer) {
	process := d.beginProcessSpan(e, a)
	process.Fail("broken")
	process.End()
}
