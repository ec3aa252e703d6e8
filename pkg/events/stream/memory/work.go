package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

const (
	defaultAckWait    = 30 * time.Second
	defaultMaxPending = 5000
	maxLater          = time.Minute
)

// durable is a durable consumer. It is used under the bus's lock.
type durable struct {
	stream  *stream
	work    bus.Work
	next    uint64                // the lowest sequence that was never delivered
	made    uint64                // a predecessor may have delivered messages up to here
	pending map[uint64]*pending   // delivered and not answered
	due     []uint64              // the pending messages to redeliver, in order of need
	ranks   [bus.LastRank + 1]int // the number of workers of each rank
	// ready is closed, and replaced, when there may be something to deliver.
	ready chan struct{}
}

type pending struct {
	attempt int
	due     bool
	stop    func() bool // stops the timer of the redelivery
	round   int         // identifies a timer that was stopped too late
}

// Work consumes a stream through a durable consumer; see [bus.Reader].
func (b *Bus) Work(ctx context.Context, w bus.Work, handle func(bus.Delivery)) error {
	w.Rank = min(max(w.Rank, 0), bus.LastRank)
	leave := b.enlist(w)
	defer leave()
	for {
		d, ready, err := b.next(ctx, w)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("work on %s as %s: %w", w.Stream, w.Durable, err)
		case d != nil:
			handle(d)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
	}
}

func (b *Bus) next(ctx context.Context, w bus.Work) (d bus.Delivery, ready <-chan struct{}, err error) {
	err = b.do(ctx, func() error {
		s, err := b.stream(w.Stream)
		if err != nil {
			return err
		}
		consumer := s.durable(w)
		ready = consumer.ready
		if first := consumer.first(); first >= 0 && first < w.Rank {
			return nil
		}
		if taken := consumer.take(); taken != nil {
			d = taken
		}
		return nil
	})
	return d, ready, err
}

// enlist counts a worker in its rank until it leaves. Errors of the stream are ignored here;
// Work reports them.
func (b *Bus) enlist(w bus.Work) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.stream(w.Stream)
	if err != nil {
		return func() {}
	}
	d := s.durable(w)
	d.ranks[w.Rank]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		d.ranks[w.Rank]--
		d.poke()
	}
}

// first is the lowest rank that has a worker; -1 when there is none.
func (d *durable) first() int {
	return slices.IndexFunc(d.ranks[:], func(workers int) bool { return workers > 0 })
}

func (s *stream) durable(w bus.Work) *durable {
	w.AckWait = cmp.Or(w.AckWait, defaultAckWait)
	w.MaxPending = cmp.Or(w.MaxPending, defaultMaxPending)
	d := s.durables[w.Durable]
	if d == nil {
		d = &durable{stream: s, next: 1, pending: map[uint64]*pending{}, ready: make(chan struct{})}
		if w.Since > 0 {
			d.made = s.last
			d.next = s.since(s.bus.clock.Now().Add(-w.Since))
		}
		s.durables[w.Durable] = d
	}
	d.work = w
	return d
}

// take returns the next delivery, or nil: redeliveries before new messages.
func (d *durable) take() *delivery {
	for len(d.due) > 0 {
		sequence := d.due[0]
		d.due = d.due[1:]
		if p := d.pending[sequence]; p != nil && p.due {
			return d.deliver(d.stream.messages[sequence], p)
		}
	}
	if len(d.pending) >= d.work.MaxPending {
		return nil
	}
	m, ok := d.stream.after(d.next, "")
	if !ok {
		return nil
	}
	d.next = m.Sequence + 1
	p := &pending{}
	if m.Sequence <= d.made {
		p.attempt = 1
	}
	d.pending[m.Sequence] = p
	return d.deliver(m, p)
}

func (d *durable) deliver(m events.Message, p *pending) *delivery {
	p.attempt++
	p.due = false
	d.dueAfter(m.Sequence, p, d.work.AckWait)
	m = clone(m)
	return &delivery{durable: d, message: m, attempt: p.attempt, ackWait: d.work.AckWait}
}

// dueAfter schedules the redelivery of a pending message.
func (d *durable) dueAfter(sequence uint64, p *pending, wait time.Duration) {
	if p.stop != nil {
		p.stop()
	}
	p.round++
	round, b := p.round, d.stream.bus
	p.stop = b.clock.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if d.pending[sequence] != p || p.round != round || p.due {
			return
		}
		p.due = true
		d.due = append(d.due, sequence)
		d.poke()
	})
}

// dismiss forgets a message that was answered, or has been removed.
func (d *durable) dismiss(sequence uint64) {
	p := d.pending[sequence]
	if p == nil {
		return
	}
	p.stop()
	delete(d.pending, sequence)
	d.due = slices.DeleteFunc(d.due, func(n uint64) bool { return n == sequence })
	d.poke()
}

func (d *durable) poke() {
	close(d.ready)
	d.ready = make(chan struct{})
}

func (d *durable) end() {
	for _, p := range d.pending {
		p.stop()
	}
	d.poke()
}

type delivery struct {
	durable *durable
	message events.Message
	attempt int
	ackWait time.Duration
	once    sync.Once
}

func (d *delivery) Message() events.Message { return d.message }
func (d *delivery) Attempt() int            { return d.attempt }
func (d *delivery) Term(string)             { d.Ack() }

// Ack takes effect even when a redelivery of the message is due or has happened.
func (d *delivery) Ack() {
	d.once.Do(func() { d.pending(func(n uint64, _ *pending) { d.durable.dismiss(n) }) })
}

func (d *delivery) NakWithDelay(delay time.Duration) {
	d.once.Do(func() { d.postpone(min(max(delay, 0), maxLater)) })
}

func (d *delivery) InProgress() { d.postpone(d.ackWait) }

// postpone does nothing when the message has been redelivered since: then it belongs to its
// newer delivery.
func (d *delivery) postpone(wait time.Duration) {
	d.pending(func(n uint64, p *pending) {
		if p.attempt == d.attempt {
			p.due = false
			d.durable.dueAfter(n, p, wait)
		}
	})
}

func (d *delivery) pending(then func(uint64, *pending)) {
	b := d.durable.stream.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := d.durable.pending[d.message.Sequence]; p != nil {
		then(d.message.Sequence, p)
	}
}
