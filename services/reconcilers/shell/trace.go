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

// trace is the one that a turn is in: that of the newest change or wake that asks for it and
// is traced, or else of the newest outcome, which only ends what a change had to wait for.
func (c *causes) trace() (found events.Trace) {
	for _, t := range slices.Backward(c.triggers) {
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

// served drops the causes up to the last that a round had: they have had their
// turn, and what comes of later ones is not theirs.
func (e *entry) served(last events.Trigger) {
	for i, t := range e.triggers {
		if t == last {
			e.triggers = e.triggers[i+1:]
			break
		}
	}
}

// newest is the last cause of the key; zero when there is none.
func (e *entry) newest() events.Trigger {
	if len(e.triggers) == 0 {
		return events.Trigger{}
	}
	return e.triggers[len(e.triggers)-1]
}

// woken notes that it is time, as the engine that set a wake knows before the message comes.
func (e *entry) woken(by events.Trace) {
	if by.Parent == "" {
		e.first = true
		return
	}
	e.caused(events.Trigger{Stream: subject.WakeStream, Trace: by})
}

// process begins the span of what an answer was asked for.
func (d *Engine) process(e *entry, a *answer) *trace.Span {
	if a.began.IsZero() {
		return nil
	}
	q := trace.Question{
		Controller: d.name, About: d.own(e.key), Parent: a.trace, Triggers: e.triggers, Began: a.began,
	}
	return d.settings.Trace.Process(q)
}

// resolved makes the spans of an answer of which something is stored: what is
// stored goes on from there.
func (d *Engine) resolved(e *entry, a *answer) {
	process := d.process(e, a)
	reconcile := d.settings.Trace.Reconcile(process, d.name, a.began)
	if a.first {
		reconcile = d.first(e, a)
	}
	reconcile.Set(trace.Because.String(a.decision.Because), trace.Commands.Int(len(a.decision.Commands)))
	a.trace = reconcile.Or(a.trace)
	reconcile.End()
	process.End()
}

// first begins the trace of what comes of nothing that is known.
func (d *Engine) first(e *entry, a *answer) *trace.Span {
	var labels map[string]string
	if a.object != nil {
		labels = a.object.GetLabels()
	}
	return d.settings.Trace.First(trace.Question{Controller: d.name, About: d.own(e.key)}, labels, d.now)
}

// undecided makes the one span of an answer that nothing is to be done. That is
// what nearly every outcome asks for, which is not worth one.
func (d *Engine) undecided(e *entry, a *answer) {
	if a.began.IsZero() {
		return
	}
	for _, t := range e.triggers {
		if t.Trace == a.trace && t.Stream == subject.OutcomeStream(d.name) {
			return
		}
	}
	process := d.process(e, a)
	process.Set(trace.Because.String(a.decision.Because), trace.Outcome.String("nothing"))
	a.trace = process.Or(a.trace)
	process.End()
}

// broke makes the span of a question to which there was no answer.
func (d *Engine) broke(e *entry, a *answer) {
	process := d.process(e, a)
	process.Fail("broken")
	process.End()
}

// sendTurn stores a turn within the span of its message.
func (l *Loop) sendTurn(ctx context.Context, t events.Turn, expect uint64) (uint64, error) {
	span := l.engine.settings.Trace.Turn(t)
	defer span.End()
	t.Trace = span.Or(t.Trace)
	sequence, err := storeTurn(ctx, l.bus, t, expect, l.engine.settings.Signatures.Sign, l.BusTime())
	switch {
	case err == nil:
		span.Stored(sequence)
		remark(t, sequence)
	case errors.Is(err, bus.ErrOvertaken):
		span.Set(trace.Outcome.String("overtaken"))
		span.Fail("overtaken")
	default:
		span.Fail("not stored")
	}
	return sequence, err
}
