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
	"github.com/millrace/millrace/pkg/events/growstack"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/claim"
)

// inFlightTurns are the turns that a writer has in flight: its claims ([claim.Claims]), with a clock and
// a lock, and the deliveries that it has to answer.
type inFlightTurns struct {
	metrics *metrics
	// sign signs a heartbeat, and signed reports whether another writer's counts.
	sign   func(text []byte) []byte
	signed func([]byte) bool
	turns  sync.WaitGroup
	wake   chan struct{} // holds a token when a turn was taken while none was in flight
	hurry  chan struct{} // holds a token while a turn waits until its claim is announced

	mu         sync.Mutex
	claims     *claim.Claims
	deliveries map[claim.Place]bus.Delivery // the newest delivery of each turn
	namedTurns bool                         // the last heartbeat named turns in flight
	leads      map[string]uint64            // the fencing tokens of the leased controllers while this writer holds the Lease
}

func newInFlightTurns(id string, m *metrics) *inFlightTurns {
	return &inFlightTurns{
		metrics: m, sign: func(text []byte) []byte { return text }, signed: func([]byte) bool { return true },
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), claims: claim.New(id, time.Now()), deliveries: map[claim.Place]bus.Delivery{},
	}
}

// withClaims runs do on the claims, under the lock and with the current time.
func (f *inFlightTurns) withClaims(do func(c *claim.Claims, now time.Time)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.claims, time.Now())
}

// take accepts a delivery and runs carry in a goroutine of its own. If the turn is in flight
// already, take only marks it as in progress and remembers the new delivery, which is the one to
// answer. If the stream lost a turn in flight with its end and gave its sequence to this one, take
// asks for redelivery later.
func (f *inFlightTurns) take(at claim.Place, d bus.Delivery, fresh bool, carry func()) {
	f.mu.Lock()
	if before, some := f.deliveries[at]; some && !before.Message().Time.Equal(d.Message().Time) {
		f.mu.Unlock()
		d.NakWithDelay(claim.Interval)
		return
	}
	if f.claims.Empty() {
		signal(f.wake)
	}
	known := f.claims.Take(at, fresh, time.Now())
	f.deliveries[at] = d
	f.mu.Unlock()
	if known {
		d.InProgress()
		return
	}
	f.metrics.inFlight.WithLabelValues(at.Controller).Inc()
	f.turns.Go(func() {
		growstack.Grow()
		defer f.metrics.inFlight.WithLabelValues(at.Controller).Dec()
		carry()
	})
}

// answer releases a turn and answers its newest delivery.
func (f *inFlightTurns) answer(at claim.Place, how func(bus.Delivery)) {
	f.mu.Lock()
	newest := f.deliveries[at]
	f.claims.Release(at)
	delete(f.deliveries, at)
	f.mu.Unlock()
	how(newest)
}

// ofKey returns the turns of a key that are in flight, the oldest first.
func (f *inFlightTurns) ofKey(controller string, key events.Key) (all []report.TurnState) {
	f.withClaims(func(c *claim.Claims, now time.Time) {
		for at, d := range f.deliveries {
			m := d.Message()
			of, lane, k, err := subject.ParseTurn(m.Subject)
			if err != nil || of != controller || k != key {
				continue
			}
			all = append(all, report.TurnState{Lane: lane.String(), Turn: m.Sequence, Attempt: d.Attempt(), Stored: m.Time, Claim: c.Status(at, now).String()})
		}
	})
	slices.SortFunc(all, func(a, b report.TurnState) int { return cmp.Compare(a.Turn, b.Turn) })
	return all
}

// claim is [claim.Claims.Claim].
func (f *inFlightTurns) claim(at claim.Place) (ours bool) {
	f.withClaims(func(c *claim.Claims, now time.Time) { ours = c.Claim(at, now) })
	return ours
}

// elsewhere is [claim.Claims.Elsewhere].
func (f *inFlightTurns) elsewhere(at claim.Place) (it bool) {
	f.withClaims(func(c *claim.Claims, now time.Time) { it = c.Elsewhere(at, now) })
	return it
}

// watched is [claim.Claims.NoneBegunSince].
func (f *inFlightTurns) watched(since time.Time) (it bool) {
	f.withClaims(func(c *claim.Claims, now time.Time) { it = c.NoneBegunSince(since, now) })
	return it
}

// alone is [claim.Claims.NeverDelivered].
func (f *inFlightTurns) alone(at claim.Place, stored time.Time) (it bool) {
	f.withClaims(func(c *claim.Claims, now time.Time) { it = c.NeverDelivered(at, stored, now) })
	return it
}

// giveUp is [claim.Claims.GiveUp].
func (f *inFlightTurns) giveUp() { f.withClaims((*claim.Claims).GiveUp) }

// missed is [claim.Claims.Missed].
func (f *inFlightTurns) missed() { f.withClaims((*claim.Claims).Missed) }

// standing is [claim.Claims.Status].
func (f *inFlightTurns) standing(at claim.Place) (s claim.Status) {
	f.withClaims(func(c *claim.Claims, now time.Time) { s = c.Status(at, now) })
	return s
}

// regain is [claim.Claims.HoldAgain].
func (f *inFlightTurns) regain(at claim.Place) {
	f.withClaims(func(c *claim.Claims, now time.Time) { c.HoldAgain(at, now) })
}

// limit is [claim.Claims.Limit].
func (f *inFlightTurns) limit(controller string, most int) {
	f.withClaims(func(c *claim.Claims, _ time.Time) { c.Limit(controller, most) })
}

// unheardFor reports whether no heartbeat of this writer has come back for heartbeatTimeout.
func (f *inFlightTurns) unheardFor() (it bool) {
	f.withClaims(func(c *claim.Claims, now time.Time) { it = c.UnheardFor(now) >= heartbeatTimeout })
	return it
}

// awaitAnnounced waits until every writer has heard that this one has claimed a turn, and reports whether
// still no other writer has it. It returns false as well when the context ends.
func (f *inFlightTurns) awaitAnnounced(ctx context.Context, at claim.Place) bool {
	var after uint64
	f.withClaims(func(c *claim.Claims, _ time.Time) { after = c.Sent() })
	signal(f.hurry)
	for ctx.Err() == nil && !f.elsewhere(at) {
		var told bool
		f.withClaims(func(c *claim.Claims, _ time.Time) { told = c.Announced(after) })
		if told {
			return !f.elsewhere(at)
		}
		sleep.For(ctx, claim.Interval/8)
	}
	return false
}

// receive processes a heartbeat, this writer's own or another's.
func (f *inFlightTurns) receive(text []byte) {
	b, ok := report.DecodeHeartbeat(text)
	if !ok {
		return
	}
	f.withClaims(func(c *claim.Claims, _ time.Time) { ok = c.Is(b) })
	if !ok && !f.signed(text) {
		return
	}
	f.withClaims(func(c *claim.Claims, now time.Time) {
		if c.Hear(b, now) {
			f.metrics.expiries.Inc()
		}
	})
}

// heartbeat returns the next heartbeat, and the deliveries in flight.
func (f *inFlightTurns) heartbeat() (all []bus.Delivery, said report.Heartbeat) {
	f.withClaims(func(c *claim.Claims, now time.Time) {
		said, f.namedTurns = c.Heartbeat(now), !c.Empty()
		said.Leads = f.leads
		for _, d := range f.deliveries {
			all = append(all, d)
		}
	})
	return all, said
}

// run marks the deliveries in flight as in progress, sends heartbeats and receives them until the
// context ends.
func (f *inFlightTurns) run(ctx context.Context, b bus.Peers, log *slog.Logger) {
	var heard sync.WaitGroup
	defer heard.Wait()
	heard.Go(func() {
		for ctx.Err() == nil {
			err := b.Listen(ctx, report.Writers, f.receive)
			f.missed()
			if err != nil {
				log.Warn("cannot subscribe to the writers' heartbeats", "err", err)
				sleep.For(ctx, claim.Interval)
			}
		}
	})
	say := func() {
		deliveries, said := f.heartbeat()
		if ctx.Err() == nil {
			for _, d := range deliveries {
				d.InProgress()
			}
		}
		if err := b.Broadcast(report.Writers, f.sign(said.Encode())); err != nil {
			log.Debug("cannot publish the turns in flight", "err", err)
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
//
// A turn that waits until its claim is announced ends the pause after [soonest]: it comes from a
// writer that has died, and its key has waited for [claim.AckWait] already.
func (f *inFlightTurns) pause(ctx context.Context) {
	if sleep.For(ctx, soonest); f.rest(ctx, claim.Interval-soonest, nil) {
		return
	}
	f.mu.Lock()
	idle := f.claims.Empty() && !f.namedTurns
	f.mu.Unlock()
	if idle {
		f.rest(ctx, claim.Interval, f.wake)
	}
}

// soonest is the shortest pause between two heartbeats.
const soonest = claim.Interval / 8

// rest waits, and returns true if a claim is to be announced before the time is over. A token of
// wake, which may be nil, ends the wait too.
func (f *inFlightTurns) rest(ctx context.Context, d time.Duration, wake <-chan struct{}) (hurried bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	case <-f.hurry:
		return true
	}
	return false
}

// signal puts a token into a channel that holds one at most.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drain waits until nothing is in flight. After the limit it calls cut, which must make the
// remaining turns give up.
func (f *inFlightTurns) drain(limit time.Duration, cut func()) {
	timer := time.AfterFunc(limit, cut)
	defer timer.Stop()
	f.turns.Wait()
}
