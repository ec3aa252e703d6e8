package shell

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
)

// traceOf is the trace that a turn belongs to: that of the newest traced change or wake that asks
// for it, or else of the newest outcome, which only ended the wait of a change.
func traceOf(triggers []events.Trigger) (found events.Trace) {
	for _, t := range slices.Backward(triggers) {
		switch {
		case t.Trace.Parent == "":
		case !ofOutcome(t):
			return t.Trace
		case found.Parent == "":
			found = t.Trace
		}
	}
	return found
}

func ofOutcome(t events.Trigger) bool { return strings.HasPrefix(t.Stream, subject.OutcomeStream("")) }

// dropServed drops the causes up to the last one that a round had: they have had their turn, and
// the turns of later ones are not theirs.
func (e *entry) dropServed(last events.Trigger) {
	for i, t := range e.Triggers {
		if t == last {
			e.Triggers = e.Triggers[i+1:]
			break
		}
	}
}

// newest is the last cause of the key; zero when there is none.
func (e *entry) newest() events.Trigger {
	if len(e.Triggers) == 0 {
		return events.Trigger{}
	}
	return e.Triggers[len(e.Triggers)-1]
}

// woken records that a wake's time has come: the engine that set the wake knows it before the
// message comes.
func (e *entry) woken(by events.Trace) {
	if by.Parent == "" {
		e.first = true
		return
	}
	e.addTrigger(events.Trigger{Stream: subject.WakeStream, Trace: by})
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

// sendTurn stores a turn within the span of its message.
func (l *Loop) sendTurn(ctx context.Context, t events.Turn, expect uint64) (uint64, error) {
	span := l.engine.settings.Trace.Turn(t)
	defer span.End()
	t.Trace = span.Or(t.Trace)
	now := l.clock()
	if err := CheckAge(t, now); err != nil {
		span.Fail("too old")
		return 0, err
	}
	// Signed as of now: if the process stands still here, the signature is too old for the writers.
	sequence, err := storeTurn(ctx, l.bus, t, expect, l.engine.settings.Signatures.Sign, l.onBus(now))
	switch {
	case err == nil:
		span.Stored(sequence)
		logTurn(t, sequence)
	case errors.Is(err, bus.ErrOvertaken):
		span.Set(trace.Outcome.String("overtaken"))
		span.Fail("overtaken")
	default:
		span.Fail("not stored")
	}
	return sequence, err
}
