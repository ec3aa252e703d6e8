package streams

import (
	"slices"
	"time"
)

func (d *Durable) due(consider func(time.Time)) {
	consider(d.absent)
	for _, p := range d.Pending {
		consider(p.At)
	}
}

// Durable is a consumer that knows its messages by sequence. It redelivers a message until it
// is answered.
type Durable struct {
	bus     *Bus
	next    uint64 // the last sequence that it has looked at
	Length  func() int
	Pending []*Delivery
	// absent is until when the consumer does not exist; a recreated one was created then.
	absent time.Time
}

// Delivery is a message in flight; it is due at a time.
type Delivery struct {
	durable  *Durable
	Sequence uint64
	At       time.Time // not before
	Attempts int
}

// window is how many messages may overtake another one.
const window = 64

func (b *Bus) durable(length func() int) *Durable { return &Durable{bus: b, Length: length} }

// Ready are the deliveries that are due, in the order in which they came; only the first of
// them if one is enough.
func (d *Durable) Ready(one bool) []*Delivery {
	now := d.bus.now()
	if d.absent.After(now) {
		return nil
	}
	var ready []*Delivery
	for _, p := range d.Pending {
		if !p.At.After(now) && (!one || ready == nil) && len(ready) < window {
			ready = append(ready, p)
		}
	}
	for d.next < uint64(d.Length()) && len(ready) < window && !(one && ready != nil) {
		d.next++
		p := &Delivery{durable: d, Sequence: d.next}
		d.Pending, ready = append(d.Pending, p), append(ready, p)
	}
	return ready
}

// Some reports whether a delivery is due.
func (d *Durable) Some() bool {
	if d.next == uint64(d.Length()) && len(d.Pending) == 0 {
		return false // the usual case
	}
	return len(d.Ready(true)) > 0
}

// Before reports whether an earlier consumer may have delivered a message that was stored at a
// time. The count of attempts depends on it.
func (d *Durable) Before(stored time.Time) bool { return stored.Before(d.absent) }

// Again recreates the consumer, which takes a while: it delivers everything after a place as if
// for the first time, and nothing before it.
func (d *Durable) Again(from uint64) {
	d.next, d.Pending = from, nil
	d.absent = d.bus.now().Add(d.bus.ackWait)
}

// cut forgets everything behind the new end of a stream.
func (d *Durable) cut(end uint64) {
	d.next = min(d.next, end)
	d.Pending = slices.DeleteFunc(d.Pending, func(p *Delivery) bool { return p.Sequence > end })
}

// Take delivers a message, which comes again unless it is answered.
func (p *Delivery) Take() {
	p.Attempts++
	p.At = p.durable.bus.now().Add(p.durable.bus.ackWait)
}

// Ack: never again.
func (p *Delivery) Ack() {
	if b := p.durable.bus; b.LoseAcks > 0 {
		b.LoseAcks--
		return
	}
	d := p.durable
	if i := slices.Index(d.Pending, p); i >= 0 {
		d.Pending = slices.Delete(d.Pending, i, i+1)
	}
}

// NakWithDelay: again after a delay.
func (p *Delivery) NakWithDelay(delay time.Duration) { p.At = p.durable.bus.now().Add(delay) }

// InProgress: not answered yet, but being worked on.
func (p *Delivery) InProgress() { p.At = p.durable.bus.now().Add(p.durable.bus.ackWait) }
