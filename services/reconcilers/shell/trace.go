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

// attempted is a handle that knows how often its message has been delivered.
type attempted interface{ Attempt() int }

// caused notes what asks for a turn of the key. The newest cause that is traced is
// the one in whose trace the turn is; but an outcome, which only ends what a change had
// to wait for, is so where no change has asked.
func (e *entry) caused(t *ticket) {
	if e.triggers = append(e.triggers, t.trigger); len(e.triggers) > events.MaxTriggers {
		e.triggers = e.triggers[len(e.triggers)-events.MaxTriggers:]
	}
	if !leads(t.trigger, e.trace, e.changed) {
		return
	}
	e.trace, e.delivery, e.changed = t.trace, 0, !ofOutcome(t.trigger)
	if c, ok := t.handle.(attempted); ok {
		e.delivery = c.Attempt()
	}
}

// served drops the causes up to the last that a round had: they have had their
// turn, and what comes of later ones is not theirs.
func (e *entry) served(last events.Trigger) {
	for i, t := range e.triggers {
		if t == last {
			e.triggers = e.triggers[i+1:]
			break
		}
	}
	e.trace, e.changed = events.Trace{}, false
	for _, t := range e.triggers {
		if leads(t, e.trace, e.changed) {
			e.trace, e.changed = t.Trace, !ofOutcome(t)
		}
	}
}

// leads tells whether a turn is in the trace of a cause rather than in that of those
// before it, which is none, or that of a change or wake, or of an outcome.
func leads(t events.Trigger, before events.Trace, changed bool) bool {
	return t.Trace.Parent != "" && (before.Parent == "" || !changed || !ofOutcome(t))
}

func ofOutcome(t events.Trigger) bool { return strings.HasPrefix(t.Stream, subject.OutcomeStream("")) }

// newest is the last cause of the key; zero when there is none.
func (e *entry) newest() events.Trigger {
	if len(e.triggers) == 0 {
		return events.Trigger{}
	}
	return e.triggers[len(e.triggers)-1]
}

// cause is the change that made a version of an object.
type cause struct {
	sequence uint64
	trace    events.Trace
}

// own tells whether a key is that of the object that changed.
func (c change) own(key events.Key) bool {
	return key.Namespace == c.ref.Namespace && key.Name == c.ref.Name && (key.Kind == "" || key.Kind == c.ref.Kind)
}

// causeIn is the cause of the key's own object as it is seen, if its ticket has not
// come; nil where nobody wants to know, or it is not traced.
func (d *Desk) causeIn(s scene, key events.Key) *cause {
	if d.settings.Trace == nil {
		return nil
	}
	return s.reader.causeOf(d.own(key))
}

// foresee notes that an answer rests on a change of the key's own object whose
// ticket has not come yet. The answer is of its making; its ticket will find nothing
// to do.
func (d *Desk) foresee(e *entry, a *answer) {
	a.sight = e.sight
	if a.cause == nil || a.cause.sequence <= e.sight {
		return
	}
	a.sight = a.cause.sequence
	own, behind := d.own(e.key), e.sight > 0 // a change of it had a turn, or asks for this one
	for _, t := range e.triggers {
		if t.Ref == own {
			if t.Sequence >= a.cause.sequence {
				return
			}
			behind = true
		}
	}
	if !behind || !trace.Sampled(a.cause.trace) {
		return
	}
	a.ahead, a.trace = a.cause, a.cause.trace
	if a.began.IsZero() {
		a.began = d.settings.Trace.Now(a.trace)
	}
}

// uncaused says what an answer comes of for which no message that is traced has asked.
// A second look may be faster than the ticket of what it sees, or than another replica
// that has that; then it is of the newest change that it sees. The first look at what is
// there, and what it is time for, come of nothing that is known.
func (e *entry) uncaused(a *answer) {
	switch {
	case e.trace.Parent != "" || a.ahead != nil:
	case trace.Sampled(e.news.Trace):
		a.news, a.trace = e.news, e.news.Trace
	default:
		a.first = e.first
	}
}

// woken notes that it is time, as whoever set a wake knows before the message comes.
func (e *entry) woken(by events.Trace) {
	if by.Parent == "" {
		e.first = true
		return
	}
	e.caused(&ticket{trace: by, trigger: events.Trigger{Stream: subject.WakeStream, Trace: by}})
}

// tell notes the change for its keys, where it is traced.
func (r *reader) tell(keys []events.Key, c change) {
	if c.trace.Parent == "" || len(keys) == 0 {
		return
	}
	if r.news == nil {
		r.news = map[events.Key]events.Trigger{}
	}
	for _, k := range keys {
		r.news[k] = events.Trigger{Stream: subject.StateStream(c.ref.Kind), Sequence: c.sequence, Ref: c.ref, Trace: c.trace}
	}
}

// process begins the span of what an answer was asked for.
func (d *Desk) process(e *entry, a *answer) *trace.Span {
	if a.began.IsZero() {
		return nil
	}
	q := trace.Question{
		Controller: d.name, About: d.own(e.key), Parent: e.trace, Triggers: e.triggers,
		Delivery: e.delivery, Began: a.began,
	}
	if a.ahead != nil {
		q.Parent, q.Delivery = a.ahead.trace, 0
		q.Triggers = append(slices.Clone(q.Triggers), events.Trigger{
			Stream: subject.StateStream(q.About.Kind), Sequence: a.ahead.sequence, Ref: q.About, Trace: a.ahead.trace,
		})
	} else if a.news.Stream != "" {
		q.Parent, q.Delivery = a.news.Trace, 0
		q.Triggers = append(slices.Clone(q.Triggers), a.news)
	}
	return d.settings.Trace.Process(q)
}

// resolved makes the spans of an answer of which something is stored: what is
// stored goes on from there.
func (d *Desk) resolved(e *entry, a *answer) {
	e.sight = a.sight
	if a.news.Stream != "" {
		a.began = d.settings.Trace.Now(a.trace)
	}
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
func (d *Desk) first(e *entry, a *answer) *trace.Span {
	var labels map[string]string
	if a.object != nil {
		labels = a.object.GetLabels()
	}
	return d.settings.Trace.First(trace.Question{Controller: d.name, About: d.own(e.key)}, labels, d.now)
}

// undecided makes the one span of an answer that nothing is to be done. That is
// what nearly every outcome asks for, which is not worth one.
func (d *Desk) undecided(e *entry, a *answer) {
	e.sight = a.sight
	if a.began.IsZero() {
		return
	}
	for _, t := range e.triggers {
		if a.ahead == nil && t.Trace == e.trace && t.Stream == subject.OutcomeStream(d.name) {
			return
		}
	}
	process := d.process(e, a)
	process.Set(trace.Because.String(a.decision.Because), trace.Outcome.String("nothing"))
	a.trace = process.Or(a.trace)
	process.End()
}

// broke makes the span of a question to which there was no answer.
func (d *Desk) broke(e *entry, a *answer) {
	process := d.process(e, a)
	process.Fail("broken")
	process.End()
}

// sendTurn stores a turn within the span of its message.
func (l *Loop) sendTurn(ctx context.Context, t events.Turn, expect uint64) (uint64, error) {
	span := l.desk.settings.Trace.Turn(t)
	defer span.End()
	t.Trace = span.Or(t.Trace)
	sequence, err := storeTurn(ctx, l.bus, t, expect, l.desk.settings.Signatures.Sign, l.busTime())
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
