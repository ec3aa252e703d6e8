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

// flights are the turns that a writer has in flight: its claims ([claim.Claims]), by the
// clock and for many goroutines, with the deliveries that are to be answered.
type flights struct {
	metrics *metrics
	// sign signs a heartbeat, and signed tells whether another's counts.
	sign   func(text []byte) []byte
	signed func([]byte) bool
	turns  sync.WaitGroup
	taken  chan struct{} // holds a token when a turn has been taken where there was none

	mu         sync.Mutex
	claims     *claim.Claims
	deliveries map[claim.Place]bus.Delivery // the newest of each turn
	told       bool                         // the last heartbeat said that something is in flight
}

func newFlights(id string, m *metrics) *flights {
	return &flights{
		metrics: m, sign: func(text []byte) []byte { return text }, signed: func([]byte) bool { return true },
		taken: make(chan struct{}, 1), claims: claim.New(id, time.Now()), deliveries: map[claim.Place]bus.Delivery{},
	}
}

// with runs something on the claims as they are now.
func (f *flights) with(do func(c *claim.Claims, now time.Time)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.claims, time.Now())
}

// take takes a delivery in and carries on with it in a goroutine of its own. A turn
// that is in flight already is only said to be worked on; its newest delivery is the one to
// answer. One that has the place of a turn in flight, which was lost with the end of the
// stream, comes again later.
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

// answer lets a turn go, with the answer to its newest delivery.
func (f *flights) answer(at claim.Place, how func(bus.Delivery)) {
	f.mu.Lock()
	newest := f.deliveries[at]
	f.claims.Release(at)
	delete(f.deliveries, at)
	f.mu.Unlock()
	how(newest)
}

// of are the turns of a key that are in flight, the oldest first.
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

// deaf tells whether heartbeats have not come back for long.
func (f *flights) deaf() (it bool) {
	f.with(func(c *claim.Claims, now time.Time) { it = c.Deaf(now) >= heartbeatTimeout })
	return it
}

// announced waits until every writer has been told that a claimed turn is this one's, and
// tells whether no other has it still: false as well when the context ends.
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

// hear takes in a heartbeat, this writer's own or another's.
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

// heartbeat is the next heartbeat, and what is in flight.
func (f *flights) heartbeat() (all []bus.Delivery, said events.Heartbeat) {
	f.with(func(c *claim.Claims, now time.Time) {
		said, f.told = c.Heartbeat(now), !c.Empty()
		for _, d := range f.deliveries {
			all = append(all, d)
		}
	})
	return all, said
}

// keep says of everything in flight that it is worked on, and hears the heartbeats, until
// the context ends.
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
	say() // what has been handed back must not seem to be in flight for another while
}

// pause is between two heartbeats: twice as long while nothing is in flight, and the others
// know it: a writer may wait to hear that a turn was let go. A turn that is taken in a pause
// is held all the same, since an expiry is longer than that, and it is said as soon as ever.
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

// drain waits until nothing is in flight; after the limit it calls cut, which
// must make whatever is left give up.
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
