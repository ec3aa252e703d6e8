package membership

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

// Ranked is a bus on which the replicas of a service share out the deliveries. All deliveries of
// a piece of work go to its owner and, as soon as the owner requests no more, to the next
// replica. No replica waits for a time-out to notice a dead process: the server closes its
// connection, and with it its requests.
type Ranked struct {
	bus.Bus
	Membership *Membership
	// Of names the piece of work that a consumer belongs to.
	Of func(bus.Work) string
}

const (
	// movesAtOnce is how many times a worker re-attaches as soon as its rank changes; after that
	// it re-attaches at most every moveEvery. A forger that invents ever new replicas changes
	// the ranks continuously, and a worker does no work while it attaches. Working with a wrong
	// rank loses no work.
	movesAtOnce = 8
	moveEvery   = 2 * time.Second
	// sharesAtOnce and shareEvery are the same limits for taking over keys, which is cheaper
	// than attaching, and urgent.
	sharesAtOnce = 16
	shareEvery   = 250 * time.Millisecond
)

// moves is a rate limit: a burst of most, then one per interval every.
type moves struct {
	most  float64
	every time.Duration
	left  float64
	since time.Time
}

func newMoves(most int, every time.Duration) moves {
	return moves{most: float64(most), every: every, left: float64(most), since: time.Now()}
}

// pause takes one token, and returns how long to wait for it.
func (m *moves) pause(now time.Time) time.Duration {
	m.left = min(m.left+float64(now.Sub(m.since))/float64(m.every), m.most)
	m.since = now
	m.left--
	return time.Duration(max(-m.left, 0) * float64(m.every))
}

// Watch calls tell at once and whenever the membership's answers may have changed, until the
// context ends. A forger that invents ever new replicas changes them continuously: so after a
// burst of changes Watch waits between calls.
func (r *Membership) Watch(ctx context.Context, tell func()) {
	may := newMoves(sharesAtOnce, shareEvery)
	for {
		changed := r.Changed()
		tell()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		rest := time.NewTimer(may.pause(time.Now()))
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

// Work consumes a stream with this replica's rank for the work, and re-attaches when the rank
// changes; see [bus.Reader].
func (r *Ranked) Work(ctx context.Context, w bus.Work, handle func(bus.Delivery)) error {
	work, may := r.Of(w), newMoves(movesAtOnce, moveEvery)
	for {
		session, end := context.WithCancel(ctx)
		rank, changed := r.Membership.rank(work)
		var moving sync.WaitGroup
		moving.Go(func() {
			defer end()
			r.Membership.await(session, work, rank, changed, &may)
		})
		w.Rank = rank
		err := r.Bus.Work(session, w, handle)
		end()
		moving.Wait()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// await returns when the rank for a piece of work differs from rank and the rate limit allows
// the worker to re-attach, or when the context has ended.
func (r *Membership) await(ctx context.Context, work string, rank int, changed <-chan struct{}, may *moves) {
	for now := rank; now == rank; now, changed = r.rank(work) {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
	rest := time.NewTimer(may.pause(time.Now()))
	defer rest.Stop()
	select {
	case <-ctx.Done():
	case <-rest.C:
	}
}
