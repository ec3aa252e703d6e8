package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// moves is everything that a replica of the reconcilers could do now.
func (r *replica) moves() []func() {
	var moves []func()
	w := r.world
	for _, k := range w.served {
		if r.folded[k.Name] < uint64(len(w.bus.logs[k.Name])) {
			moves = append(moves, func() { r.fold(k.Name, 1+w.random.IntN(8)) })
		}
	}
	for _, d := range r.desks {
		moves = append(moves, d.moves()...)
	}
	return moves
}

func (d *desk) moves() []func() {
	var moves []func()
	w := d.replica.world
	for _, kind := range d.reads {
		for _, p := range w.bus.tickets(d.Name(), kind).ready(w.now) {
			moves = append(moves, func() { p.take(); d.Ticket(p.ref, p.sequence, events.Trace{}, p) })
			break // in order, as a durable delivers
		}
	}
	if outcomes := w.bus.outcomes[d.Name()]; d.heard < len(outcomes) {
		moves = append(moves, func() { d.Outcome(outcomes[d.heard]); d.heard++ })
	}
	for _, p := range w.bus.verdicts(d.Name()).ready(w.now) {
		moves = append(moves, func() { p.take(); d.OutcomeTicket(p.sequence, w.bus.outcomes[d.Name()][p.sequence-1], p) })
		break
	}
	if d.Busy() {
		moves = append(moves, func() { d.Step() })
	}
	if len(d.requests) > 0 {
		moves = append(moves, func() {
			i := w.random.IntN(len(d.requests))
			carry := d.requests[i]
			d.requests = slices.Delete(d.requests, i, i+1)
			d.answers = append(d.answers, carry())
		})
	}
	if len(d.answers) > 0 {
		moves = append(moves, func() {
			i := w.random.IntN(len(d.answers))
			tell := d.answers[i]
			d.answers = slices.Delete(d.answers, i, i+1)
			tell()
		})
	}
	return moves
}

// moves is everything that a writer could do now.
func (x *writer) moves() []func() {
	var moves []func()
	w := x.world
	x.letGo()
	for _, c := range w.controllers {
		name := c.Describe().Name
		for _, p := range w.bus.work(name).ready(w.now) {
			moves = append(moves, func() { x.take(p, w.bus.turns[name][p.sequence-1]) })
			break
		}
	}
	for _, c := range x.hands {
		if len(c.requests) > 0 {
			moves = append(moves, func() { x.step(c, w.random.IntN(len(c.requests)), works) })
		}
	}
	return moves
}

// fault is one thing that goes wrong.
func (w *World) fault() {
	w.faults--
	switch w.random.IntN(6) {
	case 0:
		i := w.random.IntN(len(w.replicas))
		w.note("fault: reconcilers %d killed", i)
		w.replicas = slices.Delete(w.replicas, i, i+1)
		w.replicas = append(w.replicas, newReplica(w))
	case 1:
		i := w.random.IntN(len(w.writers))
		w.note("fault: writer %d killed with %d turns in hand", i, len(w.writers[i].hands))
		w.writers[i] = &writer{world: w}
	case 2, 3:
		w.loseAnswer()
	case 4:
		w.deliverAgain()
	case 5:
		w.note("fault: time passes")
		w.advance(w.now.Add(time.Duration(w.random.IntN(4000)) * time.Millisecond))
	}
}

// loseAnswer lets a request fail, or have its effect and lose its answer.
func (w *World) loseAnswer() {
	for _, x := range w.writers {
		for _, c := range x.hands {
			if len(c.requests) > 0 {
				fate := []fate{fails, losesAnswer}[w.random.IntN(2)]
				w.note("fault: the answer to %s is lost", c.turn.Controller)
				x.step(c, w.random.IntN(len(c.requests)), fate)
				return
			}
		}
	}
}

// held tells whether a living writer has the turn of a delivery in its grip.
func (w *World) held(p *delivery) bool {
	for _, x := range w.writers {
		for _, c := range x.hands {
			if c.delivery == p && c.until.After(w.now) {
				return true
			}
		}
	}
	return false
}

// deliverAgain redelivers something that is being worked on.
func (w *World) deliverAgain() {
	for _, c := range w.controllers {
		name := c.Describe().Name
		for _, d := range []*durable{w.bus.work(name), w.bus.verdicts(name), w.bus.tickets(name, kinds.Pods.Name)} {
			if len(d.pending) > 0 {
				p := d.pending[w.random.IntN(len(d.pending))]
				if w.held(p) {
					return // a turn comes again only when its writer has been silent
				}
				w.note("fault: %s message %d delivered again", name, p.sequence)
				p.at = w.now
				return
			}
		}
	}
}
