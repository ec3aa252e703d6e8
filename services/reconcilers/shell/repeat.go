package shell

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Orphans. A turn whose outcome never comes would block its key for ever. That happens when a
// writer acknowledged the turn and the end of the outcome stream was lost, when the writers'
// consumer skipped the turn, or when the turn or outcome cannot be decoded. Writers report the
// turns that they have in flight. A turn that has waited for [Settings].Orphan, and that no
// writer has in flight although there are writers, is stored again: with its own sequence as
// the expected last one, so that only one of many engines succeeds; and marked as a repetition,
// so that a writer checks first which commands are done. The repetition replaces the turn: a
// writer that gets the older one afterwards finds the newer one and skips the older.

// maxHeartbeatAge is the greatest age of a writer's heartbeat by which the engine takes writers as
// present.
const maxHeartbeatAge = 2 * time.Second

// inFlightKept is the number of turns in flight up to which old reports of them are not removed.
const inFlightKept = 1024

// mostInFlight bounds the turns in flight. A process that may publish on the writers' topic can
// report turns that do not exist, if heartbeats are not signed. Without room, a turn that is in
// flight may be stored again, which does no harm.
const mostInFlight = 1 << 16

// Heartbeat takes in which turns a writer has in flight.
func (d *Engine) Heartbeat(b events.Heartbeat) {
	d.writersSeen = d.now
	d.hearLease(b)
	turns := b.InFlight(d.name)
	for _, turn := range turns {
		if _, known := d.inFlight[turn]; known || len(d.inFlight) < mostInFlight {
			d.inFlight[turn] = d.now
		}
	}
	if slices.Contains(b.Full, d.name) && len(turns) > 0 {
		d.writerReached, d.writerFullAt = slices.Max(turns), d.now
	}
	if len(d.inFlight) > inFlightKept { // some were reported after their outcome had come
		maps.DeleteFunc(d.inFlight, func(_ uint64, at time.Time) bool { return d.now.Sub(at) > d.settings.Orphan })
	}
}

// watchOutcome sets a timer that checks whether the last turn of a lane has got its outcome.
func (d *Engine) watchOutcome(e *entry, of events.Lane) {
	l := e.lane(of)
	if l.turn <= l.outcome || l.watched {
		return
	}
	l.watched = true
	d.markPending(e)
	d.timers.set(d.now.Add(d.settings.Orphan), func() {
		l.watched = false
		d.checkOutcome(e, of)
	})
}

// checkOutcome recalls a key once the last turn of a lane has had no outcome, and has been in flight
// at no writer, for long enough. Each repetition gets twice the time, because the writers may
// only be overloaded.
func (d *Engine) checkOutcome(e *entry, of events.Lane) {
	l := e.lane(of)
	if d.entries[e.key] != e || l.turn <= l.outcome {
		return
	}
	quiet := latest(l.since, d.inFlight[l.turn])
	patience := d.settings.Orphan << min(l.repeats, 5)
	busy := e.round != nil || e.recalling > 0 || l.repeating
	behind := l.turn > d.writerReached && d.now.Sub(d.writerFullAt) <= maxHeartbeatAge
	if busy || behind || d.now.Before(quiet.Add(patience)) || d.now.Sub(d.writersSeen) > maxHeartbeatAge {
		d.watchOutcome(e, of)
		return
	}
	l.suspected = true
	d.recall(e)
}

// dropSuspicions defers the suspicions of a key whose recall failed.
func (d *Engine) dropSuspicions(e *entry) {
	for _, of := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		l := e.lane(of)
		l.suspected, l.past = false, nil
		d.watchOutcome(e, of)
	}
}

// repeat stores the suspected turns again whose outcomes the streams do not have either.
func (d *Engine) repeat(e *entry) {
	for _, of := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		l := e.lane(of)
		turn := l.past
		l.past = nil
		if !l.suspected {
			continue
		}
		l.suspected = false
		if l.turn <= l.outcome {
			continue
		}
		if turn == nil {
			// Its commands are unknown. The memory has seen the ones that were carried out, or
			// will.
			turn = &events.Turn{
				Controller: d.name, Key: e.key, Lane: of, Now: d.now, Code: d.settings.Code, Token: d.lease.token,
				Because: fmt.Sprintf("turn %d cannot be read any more", l.turn),
			}
		}
		again := *turn
		again.Repeats = l.turn
		l.repeating, l.storing = true, again.Now
		d.storing++
		d.io.Store(again, l.turn)
	}
}

// repeated takes in the answer to the storing of a repetition.
func (d *Engine) repeated(e *entry, of events.Lane, sequence uint64, decided time.Time, err error) {
	l := e.lane(of)
	l.repeating = false
	if err != nil {
		e.known = false // another replica was first, or it is not known what is stored
	} else {
		d.tally.Repeats++
		l.repeats++
		d.recordStored(e, l, sequence, decided)
	}
	d.watchOutcome(e, of)
	d.requeue(e)
	d.dropUnowned(e)
}

// setTurn records the sequence of a lane's last turn, and when it was decided.
func (d *Engine) setTurn(l *lane, sequence uint64, decided time.Time) {
	if l.turn != sequence || !sameMoment(l.decided, decided) {
		l.since = d.now
	}
	l.turn, l.decided = sequence, decided
}
