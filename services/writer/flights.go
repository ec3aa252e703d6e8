package writer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/claim"
)

// flights are the turns that a writer has in flight: its claims ([claim.Claims]), with a clock and
// a lock, and the deliveries that it has to answer.
type flights struct {
	metrics *metrics
	// sign signs a heartbeat, and signed tells whether another writer's counts.
	sign   func(text []byte) []byte
	signed func([]byte) bool
	turns  sync.WaitGroup
	taken  chan struct{} // holds a token when a turn was taken while none was in flight

	mu         sync.Mutex
	claims     *claim.Claims
	deliveries map[claim.Place]bus.Delivery // the newest delivery of each turn
	told       bool                         // the last heartbeat named turns in flight
}

func newFlights(id string, m *metrics) *flights {
	return &flights{
		metrics: m, sign: func(text []byte) []byte { return text }, signed: func([]byte) bool { return true },
		taken: make(chan struct{}, 1), claims: claim.New(id, time.Now()), deliveries: map[claim.Place]bus.Delivery{},
	}
}

// with runs do on the claims, under the lock and with the current time.
func (f *flights) with(do func(c *claim.Claims, now time.Time)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.claims, time.Now())
}

// take accepts a delivery and runs carry in a goroutine of its own. If the turn is in flight
// already, take only marks it as in progress and remembers the new delivery, which is the one to
// answer. If the stream lost a turn in flight with its end and gave its sequence to this one, take
// asks for redelivery later.
func (f *flights) take(at claim.Place, d bus.Delivery, fresh bool, carry func()) {
	f.mu.Lock()
	if before, some := f.deliveries[at]; some && !before.Message().Time.Equal(d.Message().Time) {
		f.mu.Unlock()
		d.Later(claim.Interval)
		return
	}
	if f.claims.Empty() {
		select {
		case f.taken <- struct{}{}:
		default:
		}
	}
	known := f.claims.Take(at, fresh, time.Now())
	f.deliveries[at] = d
	f.mu.Unlock()
	if known {
		d.Working()
		return
	}
	f.metrics.inFlight.WithLabelValues(at.Controller).Inc()
	f.turns.Go(func() {
		defer f.metrics.inFlight.WithLabelValues(at.Controller).Dec()
		carry()
	})
}

// answer releases a turn and answers its newest delivery.
func (f *flights) answer(at claim.Place, how func(bus.Delivery)) {
	f.mu.Lock()
	newest := f.deliveries[at]
	f.claims.Release(at)
	delete(f.deliveries, at)
	f.mu.Unlock()
	how(newest)
}

// of returns the turns of a key that are in flight, the oldest first.
func (f *flights) of(controller string, key events.Key) (all []events.TurnState) {
	f.with(func(c *claim.Claims, now time.Time) {
		for at, d := range f.deliveries {
			m := d.Message()
			of, lane, k, err := subject.ParseTurn(m.Subject)
			if err != nil || of != controller || k != key {
				continue
			}
			all = append(all, events.TurnState{Lane: lane, Turn: m.Sequence, Attempt: d.Attempt(), Stored: m.Time, Claim: c.Standing(at, now).String()})
		}
	})
	slices.SortFunc(all, func(a, b events.TurnState) int { return cmp.Compare(a.Turn, b.Turn) })
	return all
}

// claim is [claim.Claims.Claim].
func (f *flights) claim(at claim.Place) (ours bool) {
	f.with(func(c *claim.Claims, now time.Time) { ours = c.Claim(at, now) })
	return ours
}

// elsewhere is [claim.Claims.Elsewhere].
func (f *flights) elsewhere(at claim.Place) (it bool) {
	f.with(func(c *claim.Claims, now time.Time) { it = c.Elsewhere(at, now) })
	return it
}

// watched is [claim.Claims.Watched].
func (f *flights) watched(since time.Time) (it bool) {
	f.with(func(c *claim.Claims, now time.Time) { it = c.Watched(since, now) })
	return it
}

// alone is [claim.Claims.Alone].
func (f *flights) alone(at claim.Place, stored time.Time) (it bool) {
	f.with(func(c *claim.Claims, now time.Time) { it = c.Alone(at, stored, now) })
	return it
}

// giveUp is [claim.Claims.GiveUp].
func (f *flights) giveUp() { f.with((*claim.Claims).GiveUp) }

// missed is [claim.Claims.Missed].
func (f *flights) missed() { f.with((*claim.Claims).Missed) }

// standing is [claim.Claims.Standing].
func (f *flights) standing(at claim.Place) (s claim.Standing) {
	f.with(func(c *claim.Claims, now time.Time) { s = c.Standing(at, now) })
	return s
}

// regain is [claim.Claims.Regain].
func (f *flights) regain(at claim.Place) {
	f.with(func(c *claim.Claims, now time.Time) { c.Regain(at, now) })
}

// limit is [claim.Claims.Limit].
func (f *flights) limit(controller string, most int) {
	f.with(func(c *claim.Claims, _ time.Time) { c.Limit(controller, most) })
}

// deaf tells whether no heartbeat of this writer has come back for heartbeatTimeout.
func (f *flights) deaf() (it bool) {
	f.with(func(c *claim.Claims, now time.Time) { it = c.Deaf(now) >= heartbeatTimeout })
	return it
}

// announced waits until every writer has heard that this one has claimed a turn, and tells whether
// still no other writer has it. It returns false as well when the context ends.
func (f *flights) announced(ctx context.Context, at claim.Place) bool {
	var after uint64
	f.with(func(c *claim.Claims, _ time.Time) { after = c.Said() })
	for ctx.Err() == nil && !f.elsewhere(at) {
		var told bool
		f.with(func(c *claim.Claims, _ time.Time) { told = c.Announced(after) })
		if told {
			return !f.elsewhere(at)
		}
		wait(ctx, claim.Interval/8)
	}
	return false
}

// hear processes a heartbeat, this writer's own or another's.
func (f *flights) hear(text []byte) {
	b, ok := events.DecodeHeartbeat(text)
	if !ok {
		return
	}
	f.with(func(c *claim.Claims, _ time.Time) { ok = c.Is(b) })
	if !ok && !f.signed(text) {
		return
	}
	f.with(func(c *claim.Claims, now time.Time) {
		if c.Hear(b, now) {
			f.metrics.expiries.Inc()
		}
	})
}

// heartbeat returns the next heartbeat, and the deliveries in flight.
func (f *flights) heartbeat() (all []bus.Delivery, said events.Heartbeat) {
	f.with(func(c *claim.Claims, now time.Time) {
		said, f.told = c.Heartbeat(now), !c.Empty()
		for _, d := range f.deliveries {
			all = append(all, d)
		}
	})
	return all, said
}

// keep marks the deliveries in flight as in progress, sends heartbeats and receives them until the
// context ends.
func (f *flights) keep(ctx context.Context, b bus.Peers, log *slog.Logger) {
	var heard sync.WaitGroup
	defer heard.Wait()
	heard.Go(func() {
		for ctx.Err() == nil {
			err := b.Listen(ctx, events.Writers, f.hear)
			f.missed()
			if err != nil {
				log.Warn("cannot hear the writers", "err", err)
				wait(ctx, claim.Interval)
			}
		}
	})
	say := func() {
		deliveries, said := f.heartbeat()
		if ctx.Err() == nil {
			for _, d := range deliveries {
				d.Working()
			}
		}
		if err := b.Say(events.Writers, f.sign(said.Encode())); err != nil {
			log.Debug("cannot say what is in flight", "err", err)
		}
	}
	for ctx.Err() == nil {
		say()
		f.pause(ctx)
	}
	say() // without this the turns handed back would seem to be in flight for a while
}

// pause waits between two heartbeats. It waits twice as long while nothing is in flight and the
// last heartbeat said so: until then another writer may wait to hear that a turn was released. A
// turn that is taken during a pause is held all the same, since an expiry is longer than a pause,
// and taking it ends the longer pause, so that the heartbeat is not late.
func (f *flights) pause(ctx context.Context) {
	wait(ctx, claim.Interval)
	f.mu.Lock()
	idle := f.claims.Empty() && !f.told
	f.mu.Unlock()
	if !idle {
		return
	}
	timer := time.NewTimer(claim.Interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-f.taken:
	case <-timer.C:
	}
}

// drain waits until nothing is in flight. After the limit it calls cut, which must make the
// remaining turns give up.
func (f *flights) drain(limit time.Duration, cut func()) {
	timer := time.AfterFunc(limit, cut)
	defer timer.Stop()
	f.turns.Wait()
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
