package world

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/writer/claim"
)

// heartbeats sends the writers' heartbeats up to a time: each says what it has in flight, and
// receives what the others have said. A writer that stands still receives them when it goes on.
// While nothing is in flight, heartbeats tell the writers nothing: listened then sends only the
// last ones before a writer takes a turn.
func (w *World) heartbeats(to time.Time) {
	if w.atRest() {
		return
	}
	if to.Sub(w.pulse) > claim.UncertainFor*2 { // after a day in which no process could act
		w.pulse = to.Add(-claim.Interval)
	}
	for at := w.pulse.Add(claim.Interval); !at.After(to); at = at.Add(claim.Interval) {
		w.heartbeat(at)
	}
}

// atRest reports whether no turn is in flight.
func (w *World) atRest() bool {
	return !slices.ContainsFunc(w.Writers, func(x *writer) bool { return len(x.hands) > 0 })
}

// listened sends the heartbeats that writers at rest have missed.
func (w *World) listened() {
	const enough = 2 * claim.Listening
	if from := w.Now.Add(-enough); w.pulse.Before(from) {
		w.pulse = from
	}
	for at := w.pulse.Add(claim.Interval); !at.After(w.Now); at = at.Add(claim.Interval) {
		w.heartbeat(at)
	}
}

func (w *World) heartbeat(at time.Time) {
	w.pulse = at
	for _, x := range w.Writers {
		if !x.Asleep.After(at) {
			x.heartbeat(at)
		}
	}
}

// heartbeat has a writer process the heartbeats that it has received, and send its own.
func (x *writer) heartbeat(at time.Time) {
	for _, b := range x.late {
		x.claims.Hear(b, at)
	}
	x.late = nil
	x.last = x.claims.Heartbeat(at)
	for _, c := range x.hands {
		c.delivery.At = at.Add(claim.AckWait)
	}
	for _, y := range x.world.Writers {
		if y.Asleep.After(at) {
			y.late = append(y.late, x.last)
			continue
		}
		y.claims.Hear(x.last, at)
	}
}

// says is the last heartbeat of a writer that engines have received.
func (x *writer) says() report.Heartbeat {
	if len(x.hands) == 0 {
		return report.Heartbeat{Writer: x.id}
	}
	return x.last
}

// waits reports whether a writer has a turn in flight that needs a heartbeat to continue.
func (x *writer) waits() bool {
	return !x.stalled() && slices.ContainsFunc(x.hands, func(c *carrying) bool { return !c.moves() })
}

func (w *World) newWriter() *writer {
	w.created++
	id := fmt.Sprint("writer-", w.created)
	return &writer{process: process{world: w, Skew: w.skew()}, id: id, claims: claim.New(id, w.Now), limits: map[string]*writeWindow{}}
}
