package shell

import (
	"cmp"
	"maps"
	"net/http"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ticket is a delivery in hand. It is answered when every key that it maps to
// has had a whole turn on a view at or past its sequence.
type ticket struct {
	handle   Handle
	ref      events.Ref
	sequence uint64
	trigger  events.Trigger
	trace    events.Trace
	stored   time.Time // when the bus had its message

	// lane and turn are set for the ticket of an outcome: its key's turn counts
	// only once the lane is settled up to that turn.
	lane events.Lane
	turn uint64

	keys     int    // that still have to have their turn
	hopeless string // the reason of the first key that was parked
	broken   int    // attempts to map it that panicked
	at       int    // position in Desk.hand
}

// Ticket says that an object changed, or is looked at again, at a sequence of
// its kind's state stream.
func (d *Desk) Ticket(ref events.Ref, sequence uint64, trace events.Trace, handle Handle) {
	t := d.keep(&ticket{
		handle: handle, ref: ref, sequence: sequence, trace: trace, stored: d.storedAt(handle),
		trigger: events.Trigger{Stream: subject.StateStream(ref.Kind), Sequence: sequence, Ref: ref, Trace: trace},
	})
	if d.position(ref.Kind) < sequence || d.shut[ref.Kind] {
		d.waiting[ref.Kind] = append(d.waiting[ref.Kind], t)
		return
	}
	d.accept(t)
}

// Folded says that the memory has taken in a kind's state stream further.
func (d *Desk) Folded(kind kinds.Name) {
	d.turnOver(kind)
	d.admit(kind)
	d.recheckMoved(kind)
	keys, news := d.memory.touched(d.name)
	maps.Copy(d.news, news)
	d.note(keys)
	d.sharp()
}

// admit lets in the tickets that waited for the memory.
func (d *Desk) admit(kind kinds.Name) {
	if d.shut[kind] || len(d.waiting[kind]) == 0 {
		return
	}
	position := d.position(kind)
	var ready, still []*ticket
	for _, t := range d.waiting[kind] {
		if t.sequence <= position {
			ready = append(ready, t)
		} else {
			still = append(still, t)
		}
	}
	d.waiting[kind] = still
	for _, t := range ready {
		d.accept(t)
	}
}

// OutcomeTicket says that an outcome of this controller, at a sequence of its
// outcome stream, waits for an answer.
func (d *Desk) OutcomeTicket(sequence uint64, o events.Outcome, handle Handle) {
	e := d.entry(o.Key)
	took := d.took(e, o)
	d.Outcome(o)
	d.answered(o, took)
	t := d.keep(&ticket{handle: handle, lane: o.Lane, turn: o.Turn, trace: o.Trace, sequence: sequence, stored: d.storedAt(handle)})
	t.trigger = events.Trigger{Stream: subject.OutcomeStream(d.name), Sequence: sequence, Trace: o.Trace}
	d.assign(t, e)
}

// answered tells how a turn ended.
//
// Upstream: a failure without a status of the API server counts as a 500.
func (d *Desk) answered(o events.Outcome, took time.Duration) {
	if d.settings.Answered == nil {
		return
	}
	code := http.StatusOK
	if failure, failed := o.Failure(); failed {
		code = cmp.Or(failure.Code, http.StatusInternalServerError)
	}
	d.settings.Answered(code, took)
}

// took is how long a turn took, from its decision until now; 0 where that is not
// known, since another replica made it.
func (d *Desk) took(e *entry, o events.Outcome) time.Duration {
	if j := e.lane(o.Lane).journey; j.turn == o.Turn {
		return d.now.Sub(j.decided)
	}
	return 0
}

// Wake says that a wake of a key has fired. handle may be nil.
func (d *Desk) Wake(sequence uint64, w events.Wake, handle Handle) {
	t := d.keep(&ticket{handle: handle, trace: w.Trace, sequence: sequence, stored: d.storedAt(handle)})
	t.trigger = events.Trigger{Stream: subject.WakeStream, Sequence: sequence, Trace: w.Trace}
	e := d.entry(w.Key)
	e.first = e.first || w.Trace.Parent == ""
	d.assign(t, e)
}

// accept maps a ticket, whose change the memory has seen, to its keys.
func (d *Desk) accept(t *ticket) {
	keys, reason, again := d.keysOf(t)
	switch {
	case again && t.broken+1 < d.settings.Attempts:
		t.broken++
		d.timers.set(d.now.Add(d.settings.delay(t.broken)), func() { d.accept(t) })
		return
	case reason != "":
		// There is no key to be parked, so the message is, under its own name.
		e := d.entry(events.Key(t.ref))
		e.message = true
		d.hold(t, e)
		d.release(t, keys...)
		d.park(e, reason)
		return
	}
	if e, ok := d.parked[events.Key(t.ref)]; ok && e.message {
		d.mend(e) // the object can be read again
	}
	if len(keys) == 0 {
		d.answer(t)
		return
	}
	d.release(t, keys...)
}

func (d *Desk) release(t *ticket, keys ...events.Key) {
	for _, k := range keys {
		d.assign(t, d.entry(k))
	}
}

// keysOf gives the keys of a ticket: those that the changes of its object made
// since the last ticket, or else those of the object as it is. There are none
// when the changes are known to concern nobody; but while an earlier ticket of
// the object is in hand, the later one has to stand in for it, since the message
// of the earlier one is no more and would not come again.
func (d *Desk) keysOf(t *ticket) (keys []events.Key, reason string, again bool) {
	d.memory.look(d.name, nil, func(s scene) {
		k, ok := s.kind(t.ref.Kind)
		if !ok {
			return
		}
		at := name{t.ref.Namespace, t.ref.Name}
		if damage, ok := k.damaged[at]; ok {
			reason = damage.reason
		}
		var set keySet
		owed := s.reader.take(t.ref, t.sequence)
		if owed != nil {
			set.add(owed.keys...)
			for _, c := range owed.failed {
				found, err := s.reader.keys(s, c)
				if set.add(found...); err != nil {
					reason, again = err.Error(), true
					s.reader.owe(s, []change{c})
				}
			}
		}
		known := owed.nothing(t.sequence) && d.held[t.ref] == 1
		if len(set.keys) == 0 && reason == "" && !known {
			// Of an object that is not there, and whose end has been forgotten or never was seen,
			// no key can be told. Desks that open ask about every key.
			if c := k.now(t.ref); !c.was.None() || !c.now.None() {
				found, err := s.reader.keys(s, c)
				if set.add(found...); err != nil {
					reason, again = err.Error(), true
				}
			}
		}
		keys = set.keys
	})
	return keys, reason, again
}

// now is the change that a ticket stands for when nothing else is known: the
// object as it is, or its end.
func (k *kindMemory) now(ref events.Ref) change {
	at := name{ref.Namespace, ref.Name}
	c := change{ref: ref}
	if h, ok := k.objects[at]; ok {
		c.now = h.object
	} else if t, ok := k.gone[k.last[at]]; ok {
		c.was = t.object
	}
	return c
}

// assign makes a key dirty and lets it hold the ticket.
func (d *Desk) assign(t *ticket, e *entry) {
	d.hold(t, e)
	e.caused(t)
	e.asked(t)
	d.demand(e, urgently)
}

func (d *Desk) hold(t *ticket, e *entry) {
	t.keys++
	e.tickets = append(e.tickets, t)
}

// discharge says that one key of each ticket has had its turn.
func (d *Desk) discharge(tickets []*ticket, hopeless string) {
	for _, t := range tickets {
		if t.hopeless == "" {
			t.hopeless = hopeless
		}
		if t.keys--; t.keys == 0 {
			d.answer(t)
		}
	}
}

func (d *Desk) answer(t *ticket) {
	d.drop(t)
	switch {
	case t.handle == nil:
	case t.hopeless != "":
		t.handle.Hopeless(t.hopeless)
	default:
		t.handle.Done()
	}
}

// keep takes a ticket into the hand, whose tickets are renewed until they are
// answered.
func (d *Desk) keep(t *ticket) *ticket {
	t.at = len(d.hand)
	if len(d.hand) == 0 {
		d.laden = d.now
	}
	if d.hand = append(d.hand, t); len(d.hand) == 1 && !d.renewing {
		d.renewing = true
		d.timers.set(d.now.Add(d.settings.Working), d.renew)
	}
	d.held[t.ref]++
	return t
}

func (d *Desk) drop(t *ticket) {
	last := d.hand[len(d.hand)-1]
	d.hand[t.at], last.at = last, t.at
	d.hand[len(d.hand)-1] = nil
	d.hand = d.hand[:len(d.hand)-1]
	if d.held[t.ref]--; d.held[t.ref] == 0 {
		delete(d.held, t.ref)
	}
}

func (d *Desk) renew() {
	if d.renewing = len(d.hand) > 0; !d.renewing {
		return
	}
	for _, t := range d.hand {
		if t.handle != nil {
			t.handle.Working()
		}
	}
	d.timers.set(d.now.Add(d.settings.Working), d.renew)
}
