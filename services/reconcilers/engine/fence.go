package engine

import (
	"errors"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
)

// The fence. A lane is settled when its last stored turn has its outcome, and everything that
// the outcome reports as applied has come back to the memory. Both halves are needed: with "my
// reads have caught up with my applied writes" alone, the engine would decide a second time a
// turn whose commands still wait for the writer.
//
// The fence is stored only as the turn and outcome streams, so that it survives restarts: an
// engine that does not know a key recalls it.

// lane is the fence of one key in one lane.
type lane struct {
	turn      uint64             // sequence of the last turn stored, as far as is known
	decided   time.Time          // when that turn was decided; zero: not known
	outcome   uint64             // sequence of the turn that the newest outcome answers
	effects   []effect           // applied results that have not come back
	failures  int                // failed turns in a row
	notBefore time.Time          // no turn before this, because of the failures
	failed    time.Time          // when the last failure was known
	tried     string             // the version of the key's own object in the last turn
	saw       events.Position    // the positions that the last turn had seen; nil once it succeeded
	stages    stageTimes         // stages of the last turn
	figures   []reconcile.Figure // figures that count once the last turn's outcome is known
	last      events.Outcome     // the newest outcome, if remember is set
	by        time.Time          // when last was known, if its date is later than that; else zero
	remember  bool
	noOps     noOps

	since     time.Time    // since when turn is known to be the last
	watched   bool         // a timer is set that checks whether the outcome has come
	suspected bool         // the turn may be an orphan; a recall will tell
	past      *events.Turn // the suspected turn, as recalled
	storing   time.Time    // when the turn that this engine is storing was decided; zero: none is
	repeating bool         // the last turn is being stored again
	repeats   int          // how often it was stored again in a row
}

func (l *lane) settled() bool { return l.outcome >= l.turn && len(l.effects) == 0 }

func (e *entry) lane(of events.Lane) *lane {
	if of == events.LaneWrite {
		return &e.write
	}
	return &e.status
}

// mayWrite reports whether no turn of the key is under way that a write could rest on: no write, and
// no report either, unless the decision may turn out to be blind to the status.
func (d *Engine) mayWrite(e *entry) bool {
	return e.write.settled() && (e.status.settled() || d.described.StatusBlind)
}

// mayReport reports whether no report of the key is under way.
func (e *entry) mayReport() bool { return e.status.settled() }

// Outcome takes in the outcome of a turn, this replica's or another's, at a sequence of the
// controller's outcome stream. It asks for a turn of the key as soon as everything that was
// applied has come back.
func (d *Engine) Outcome(sequence uint64, o events.Outcome) {
	if !d.owns(o.Key) || (o.Lane != events.LaneWrite && o.Lane != events.LaneStatus) {
		return
	}
	cause := events.Trigger{Stream: subject.OutcomeStream(d.name), Sequence: sequence, Trace: o.Trace}
	e, ok := d.entries[o.Key]
	if !ok {
		if !o.OK() { // a successful one is recalled when its key is asked for
			e = d.entry(o.Key)
			e.addTrigger(cause)
			d.enqueue(e, workqueue.AfterChange)
		}
		return
	}
	l := e.lane(o.Lane)
	if o.Turn <= l.outcome || d.ignoreForged(e, l, o) || d.ignoreReplaced(e, l, o) {
		return
	}
	d.recallForeign(e, l, o.Turn)
	if o.Lane == events.LaneStatus && o.Turn == l.turn {
		e.took = min(d.now.Sub(e.lastReport), d.settings.Progress)
	}
	d.answered(o, d.turnDuration(l, o))
	d.applyOutcome(e, l, o, l.failures+1)
	e.addTrigger(cause)
	if d.dropReturned(e); l.settled() {
		d.enqueue(e, workqueue.AfterChange)
	}
}

// applyOutcome takes in the newest outcome of a lane. If it is a failure, failures is how many in a
// row that makes.
func (d *Engine) applyOutcome(e *entry, l *lane, o events.Outcome, failures int) {
	if l.outcome = o.Turn; o.Turn > l.turn {
		l.turn, l.decided = o.Turn, o.Decided
	}
	d.heardAt = d.now
	if delete(d.inFlight, o.Turn); l.outcome >= l.turn {
		l.repeats = 0
	}
	l.last, l.by, l.remember = o, time.Time{}, true
	if o.Ahead(d.now) {
		l.by = d.now
	}
	d.reportFigures(l, o)
	d.outcomeKnown(l, o)
	l.effects = seen(l.effects)
	for _, r := range o.Results {
		if d.reads(r.Ref.Kind) && becomesVisible(r) {
			u := effect{Effect: cache.Effect{Result: r}, discovery: d.discoveries + 1, since: d.now}
			u.Epoch, u.Dated = o.Epochs[r.Ref.Kind]
			l.effects = append(l.effects, u)
		}
		if r.OK() && r.Version != "" && r.Ref == d.own(e.key) {
			e.wrote = r.Version
		}
	}
	if l == &e.write {
		l.effects = append(l.effects, d.ownVersion(e, o)...)
	}
	d.awaitEffects(e, l)
	d.countNoOps(l, o)
	if o.OK() {
		l.failures, l.notBefore, l.saw = 0, time.Time{}, nil
		return
	}
	l.failures, l.failed, l.notBefore = failures, d.now, d.now.Add(d.settings.delay(failures))
	if o.OnlyHeld() {
		l.notBefore = d.now.Add(events.HeldBackoff(d.settings.delay(failures)))
	}
	if stale(o) {
		// A newer view is the cure: retry the first time at once.
		if l.notBefore = d.now; failures > 1 {
			l.notBefore = d.now.Add(d.settings.delay(failures - 1))
		}
	}
	d.tally.Retries++
}

// stale reports whether a turn failed only because its view was stale.
func stale(o events.Outcome) bool {
	for _, r := range o.Results {
		switch {
		case r.OK(), r.Status == events.Conflict, r.Status == events.Skipped:
		case r.Status == events.Refused && r.Reason == "Stale":
		default:
			return false
		}
	}
	return true
}

// Stored answers [IO.Store].
func (d *Engine) Stored(key events.Key, of events.Lane, sequence uint64, err error) {
	d.storing--
	if !errors.Is(err, bus.ErrOvertaken) && !errors.Is(err, bus.ErrTooLarge) && !errors.Is(err, ErrStale) {
		d.recordReply(&d.storeRefusal, err)
	}
	e, ok := d.entries[key]
	if !ok {
		return
	}
	if of == events.LanePark {
		d.parkStored(e, err)
		return
	}
	decided := e.lane(of).storing
	e.lane(of).storing = time.Time{}
	if e.lane(of).repeating {
		d.repeated(e, of, sequence, decided, err)
		return
	}
	if err == nil {
		d.turnAccepted(e, of, sequence, decided)
		d.answerRound(e, false)
		return
	}
	e.known = false // another replica was first, or it is not known what is stored
	switch {
	case errors.Is(err, bus.ErrOvertaken):
		d.tally.Overtaken++
	case errors.Is(err, ErrStale): // the next decision is up to date
	case errors.Is(err, bus.ErrTooLarge):
		d.countBroken(e, "store a turn: "+err.Error())
	default:
		d.retryLater(e)
	}
	d.answerRound(e, true)
}

func (d *Engine) turnAccepted(e *entry, of events.Lane, sequence uint64, decided time.Time) {
	d.decidedAt, e.retries = d.now, 0
	d.recordStored(e, e.lane(of), sequence, decided)
	d.turnStored(e.lane(of), sequence)
	d.watchOutcome(e, of)
	if of == events.LaneWrite {
		d.tally.Writes++
		e.lastWrite = d.now
		return
	}
	d.tally.Reports++
	e.lastReport, e.passedOver = d.now, time.Time{}
}

// recordStored says that a turn of this engine, decided at a moment, was stored at a sequence. The
// engine may have heard an outcome of that sequence before: of this turn, or of one that was
// lost with the end of the stream.
func (d *Engine) recordStored(e *entry, l *lane, sequence uint64, decided time.Time) {
	switch {
	case l.turn < sequence:
		d.setTurn(l, sequence, decided)
	case l.turn > sequence: // another engine stored one, or the outcome heard is of a lost turn
		e.invalidate()
	case !sameMoment(l.decided, decided):
		l.outcome, l.decided, l.since = sequence-1, decided, d.now
		e.invalidate()
	}
}

// paced is until when a report waits. After a report that took long, because the API server is
// busy, the key rests for the same time, at most until Progress after that report was stored.
// While a write of the key is under way, its progress is reported only every Progress: its
// result will be reported anyway, and every report takes the API server's time from the writes.
// For the same reason a report waits for a write that goes ahead of it and does not rest on it,
// unless reports have been passed over for Progress. A report that is passing waits longer
// still.
func (d *Engine) paced(e *entry, ahead, passing bool) time.Time {
	switch {
	case !e.write.settled():
		return latest(e.lastReport, e.lastWrite).Add(d.settings.Progress)
	case ahead:
		return e.passedOver.Add(d.settings.Progress)
	case passing:
		return e.lastReport.Add(max(4*d.settings.Pace, 4*e.took)) // at most Progress
	}
	return e.lastReport.Add(max(d.settings.Pace, min(2*e.took, d.settings.Progress)))
}

// progressAt is until when the engine does not ask the controller for reports while a write of the
// key is under way. If the last answer was a report that has to be sure, the next one would be
// the same: it costs a look at everything, and stores nothing.
func (d *Engine) progressAt(e *entry) time.Time {
	return latest(d.paced(e, false, false), e.unsure.Add(d.settings.Progress))
}

// mostRefused bounds how long a key waits because of errors of the bus. They say nothing about
// the key, and end for all keys at once.
const mostRefused = 10 * time.Second

// retryLater has a key wait because a request to the bus failed.
func (d *Engine) retryLater(e *entry) {
	e.retries++
	d.tally.Retries++
	e.until = d.now.Add(min(d.settings.delay(e.retries), mostRefused))
	d.requeueAt(e, e.until)
}

// last implements Last of [reconcile.Snapshot].
func (d *Engine) last(key events.Key, of events.Lane) (events.Outcome, bool) {
	e, ok := d.entries[key]
	if !ok || (of != events.LaneWrite && of != events.LaneStatus) {
		return events.Outcome{}, false
	}
	l := e.lane(of)
	return l.last.KnownBy(l.by), l.remember
}

// lastOf is last for the turn of a key. It gives no outcomes of other keys, because a turn
// records only which outcomes of its own key it has heard.
func (d *Engine) lastOf(key events.Key) func(events.Key, events.Lane) (events.Outcome, bool) {
	return func(asked events.Key, of events.Lane) (events.Outcome, bool) {
		if asked != key {
			return events.Outcome{}, false
		}
		return d.last(asked, of)
	}
}

// heardOutcomes names the outcomes that [Engine.lastOf] gives.
func (e *entry) heardOutcomes() map[events.Lane]events.Heard {
	var all map[events.Lane]events.Heard
	for _, of := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		if l := e.lane(of); l.remember {
			if all == nil {
				all = map[events.Lane]events.Heard{}
			}
			all[of] = events.Heard{Turn: l.last.Turn, At: l.last.At, Answers: l.last.Answers(), By: l.by}
		}
	}
	return all
}
