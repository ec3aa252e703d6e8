package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Bus is a toy of the streams: logs that coalesce for their readers, turns with
// expected sequences, outcomes, wakes, and durables that deliver until they are
// answered.
type Bus struct {
	now      func() time.Time
	logs     map[kinds.Name][]events.Message
	newest   map[string]uint64 // last sequence of each delta's subject
	turns    map[string][]events.Turn
	lasts    map[string]uint64 // last turn of each subject
	outcomes map[string][]events.Outcome
	decided  map[string]map[uint64]bool // turns of a controller that have an outcome
	wakes    map[wakeKey]events.Wake
	durables map[string]*durable
}

type wakeKey struct {
	controller string
	key        events.Key
}

// durable is a consumer whose messages are known by sequence.
type durable struct {
	next    int // the first message that it has not looked at
	pending []*delivery
}

// delivery is a message on its way; it comes (again) at a moment.
type delivery struct {
	bus      *Bus
	durable  *durable
	sequence uint64
	ref      events.Ref
	wake     events.Wake
	at       time.Time // not before
	attempts int
}

// ackWait is how long a delivery may stay unanswered.
const ackWait = 2 * time.Second

func newBus(now func() time.Time) *Bus {
	return &Bus{
		now: now, logs: map[kinds.Name][]events.Message{}, newest: map[string]uint64{}, turns: map[string][]events.Turn{}, lasts: map[string]uint64{},
		outcomes: map[string][]events.Outcome{}, decided: map[string]map[uint64]bool{},
		wakes: map[wakeKey]events.Wake{}, durables: map[string]*durable{},
	}
}

// append stores a delta at the end of its kind's log.
func (b *Bus) append(d events.Delta) {
	m := events.EncodeDelta(d)
	m.Subject = subject.Mark(d.Kind)
	if d.Ref.Name != "" {
		m.Subject = subject.Delta(d.Ref)
	}
	m.Stream, m.Sequence, m.Time = subject.StateStream(d.Kind), uint64(len(b.logs[d.Kind])+1), b.now()
	b.logs[d.Kind] = append(b.logs[d.Kind], m)
	b.newest[m.Subject] = m.Sequence
}

// state is what a reader of the state stream finds from a sequence on, at most
// so many messages: those that nothing newer has replaced.
func (b *Bus) state(kind kinds.Name, from uint64, most int) []events.Message {
	var out []events.Message
	for _, m := range b.logs[kind][min(from, uint64(len(b.logs[kind]))):] {
		if b.newest[m.Subject] == m.Sequence {
			if out = append(out, m); len(out) == most {
				break
			}
		}
	}
	return out
}

// store stores a turn behind the last one of its subject.
func (b *Bus) store(t events.Turn, expect uint64) (uint64, error) {
	at := subject.Turn(t.Controller, t.Lane, t.Key)
	if b.lasts[at] != expect {
		return 0, bus.ErrOvertaken
	}
	b.turns[t.Controller] = append(b.turns[t.Controller], t)
	sequence := uint64(len(b.turns[t.Controller]))
	b.lasts[at] = sequence
	return sequence, nil
}

// put stores an outcome, once for every turn.
func (b *Bus) put(o events.Outcome) {
	known := b.decided[o.Controller]
	if known == nil {
		known = map[uint64]bool{}
		b.decided[o.Controller] = known
	}
	if !known[o.Turn] {
		known[o.Turn] = true
		b.outcomes[o.Controller] = append(b.outcomes[o.Controller], o)
	}
}

// last is the newest turn and outcome of a key and lane.
func (b *Bus) last(controller string, lane events.Lane, key events.Key) (sequence uint64, turn *events.Turn, outcome *events.Outcome) {
	if sequence = b.lasts[subject.Turn(controller, lane, key)]; sequence > 0 {
		turn = &b.turns[controller][sequence-1]
	}
	for i := range slices.Backward(b.outcomes[controller]) {
		if o := b.outcomes[controller][i]; o.Key == key && o.Lane == lane {
			return sequence, turn, &o
		}
	}
	return sequence, turn, nil
}

// consumer is the durable of a name, which takes in what has been stored.
func (b *Bus) consumer(name string, stored int, ref func(i int) (events.Ref, bool)) *durable {
	d, ok := b.durables[name]
	if !ok {
		d = &durable{}
		b.durables[name] = d
	}
	for ; d.next < stored; d.next++ {
		if r, ok := ref(d.next); ok {
			d.pending = append(d.pending, &delivery{bus: b, durable: d, sequence: uint64(d.next + 1), ref: r})
		}
	}
	return d
}

// tickets is a controller's durable on the state stream of a kind. What has been
// overwritten is no longer delivered.
func (b *Bus) tickets(controller string, kind kinds.Name) *durable {
	log := b.logs[kind]
	d := b.consumer(controller+"/"+string(kind), len(log), func(i int) (events.Ref, bool) {
		ref, err := subject.ParseDelta(log[i].Subject)
		return ref, err == nil && ref.Name != ""
	})
	d.pending = slices.DeleteFunc(d.pending, func(p *delivery) bool {
		return p.attempts == 0 && b.newest[log[p.sequence-1].Subject] != p.sequence
	})
	return d
}

// verdicts is a controller's durable on its outcomes.
func (b *Bus) verdicts(controller string) *durable {
	return b.consumer(controller+"/outcomes", len(b.outcomes[controller]), func(int) (events.Ref, bool) { return events.Ref{}, true })
}

// work is the writers' durable on a controller's turns.
func (b *Bus) work(controller string) *durable {
	return b.consumer(controller+"/turns", len(b.turns[controller]), func(int) (events.Ref, bool) { return events.Ref{}, true })
}

// ready are the deliveries that may come now.
func (d *durable) ready(now time.Time) []*delivery {
	var out []*delivery
	for _, p := range d.pending {
		if !p.at.After(now) {
			out = append(out, p)
		}
	}
	return out
}

// take delivers: unless it is answered, it comes again.
func (p *delivery) take() {
	p.attempts++
	p.at = p.bus.now().Add(ackWait)
}

// Done implements shell.Handle.
func (p *delivery) Done() {
	p.durable.pending = slices.DeleteFunc(p.durable.pending, func(q *delivery) bool { return q == p })
}

// Later implements shell.Handle.
func (p *delivery) Later(delay time.Duration) { p.at = p.bus.now().Add(delay) }

// Hopeless implements shell.Handle.
func (p *delivery) Hopeless(string) { p.Done() }

// Working implements shell.Handle.
func (p *delivery) Working() { p.at = p.bus.now().Add(ackWait) }

// lastDelta is the newest delta of an object.
func (b *Bus) lastDelta(ref events.Ref) (events.Delta, bool) {
	at := b.newest[subject.Delta(ref)]
	if at == 0 {
		return events.Delta{}, false
	}
	d, err := events.DecodeDelta(ref, b.logs[ref.Kind][at-1])
	return d, err == nil
}
