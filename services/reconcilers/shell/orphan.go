package shell

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// A turn whose outcome never comes would block its key for ever. That happens when
// the turn was answered and the end of the outcome stream was lost, when the
// writers' consumer has skipped it, or when it cannot be read. Writers say what
// they have in flight. A turn that has waited for long, and that no writer has in
// hand although there are writers, is stored again: behind itself, so that of many
// engines one does it; and marked as a repetition, so that a writer looks first
// which of it has been done. The repetition takes over the turn's place: a
// writer that is handed the older one after that finds the newer and lets the older be.

// attendance is how recent a writer's heartbeat must be to tell that there are writers.
const attendance = 2 * time.Second

// crowd is how many turns in flight are remembered without a look at their age.
const crowd = 1024

// mostInFlight bounds them. Every process that may publish on the topic of the writers can make
// turns up where there are no keys. Where there is no room, a turn that is in flight
// may be stored again, which does no harm.
const mostInFlight = 1 << 16

// Heartbeat says what a writer has in flight.
func (d *Engine) Heartbeat(b events.Heartbeat) {
	d.attended = d.now
	turns := b.InFlight(d.name)
	for _, turn := range turns {
		if _, known := d.inFlight[turn]; known || len(d.inFlight) < mostInFlight {
			d.inFlight[turn] = d.now
		}
	}
	if slices.Contains(b.Full, d.name) && len(turns) > 0 {
		d.reached, d.crowded = slices.Max(turns), d.now
	}
	if len(d.inFlight) > crowd { // some were said after their outcome had come
		maps.DeleteFunc(d.inFlight, func(_ uint64, at time.Time) bool { return d.now.Sub(at) > d.settings.Orphan })
	}
}

// watch has a lane looked after whose last turn has no outcome.
func (d *Engine) watch(e *entry, of events.Lane) {
	l := e.lane(of)
	if l.turn <= l.outcome || l.watched {
		return
	}
	l.watched = true
	d.pend(e)
	d.timers.set(d.now.Add(d.settings.Orphan), func() {
		l.watched = false
		d.suspect(e, of)
	})
}

// suspect recalls a key, once the last turn of a lane has had no outcome, and has
// been in no writer's hand, for long enough. Each repetition is given twice the
// time: it may only be that the writers have too much to do.
func (d *Engine) suspect(e *entry, of events.Lane) {
	l := e.lane(of)
	if d.entries[e.key] != e || l.turn <= l.outcome {
		return
	}
	quiet := latest(l.since, d.inFlight[l.turn])
	patience := d.settings.Orphan << min(l.repeats, 5)
	busy := e.round != nil || e.recalling > 0 || l.repeating
	behind := l.turn > d.reached && d.now.Sub(d.crowded) <= attendance
	if busy || behind || d.now.Before(quiet.Add(patience)) || d.now.Sub(d.attended) > attendance {
		d.watch(e, of)
		return
	}
	l.suspected = true
	d.recall(e)
}

// unsuspect puts a suspicion off that could not be looked into.
func (d *Engine) unsuspect(e *entry) {
	for _, of := range []events.Lane{events.Act, events.Tell} {
		l := e.lane(of)
		l.suspected, l.past = false, nil
		d.watch(e, of)
	}
}

// repeat stores the suspected turns again that have no outcome in the streams
// either.
func (d *Engine) repeat(e *entry) {
	for _, of := range []events.Lane{events.Act, events.Tell} {
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
			// What it asked for cannot be told. What was done of it has been seen
			// by now, or will be.
			turn = &events.Turn{
				Controller: d.name, Key: e.key, Lane: of, Now: d.now, Code: d.settings.Code,
				Because: fmt.Sprintf("turn %d cannot be read any more", l.turn),
			}
		}
		again := *turn
		again.Repeats = l.turn
		l.repeating, l.storing = true, again.Now
		d.storing++
		d.door.Store(again, l.turn)
	}
}

// repeated takes the answer to the storing of a repetition.
func (d *Engine) repeated(e *entry, of events.Lane, sequence uint64, decided time.Time, err error) {
	l := e.lane(of)
	l.repeating = false
	if err != nil {
		e.known = false // another replica was first, or it is not known what is stored
	} else {
		d.tally.Repeats++
		l.repeats++
		d.put(e, l, sequence, decided)
	}
	d.watch(e, of)
	d.revisit(e)
	d.dismiss(e)
}

// placed says that a lane's last turn is now the one at a sequence, decided at a moment.
func (d *Engine) placed(l *lane, sequence uint64, decided time.Time) {
	if l.turn != sequence || !sameMoment(l.decided, decided) {
		l.since = d.now
	}
	l.turn, l.decided = sequence, decided
}
