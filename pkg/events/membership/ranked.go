package membership

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

// Ranked is a bus on which the replicas of a service share out the deliveries:
// all of a piece of work go to whom it falls to, and, from the moment when that
// one asks for no more, to the next. No replica waits for a time-out to find out that
// a process has died: its connection is closed, and its requests with it.
type Ranked struct {
	bus.Bus
	Membership *Membership
	// Of names the piece of work that a consumer is part of.
	Of func(bus.Work) string
}

const (
	// movesAtOnce is how often a worker attaches anew as soon as its rank changes; after
	// that it does so every moveEvery. Replicas that are made up, always others, change the
	// ranks continuously, and who attaches does no work meanwhile. A rank that is not the
	// right one costs no work.
	movesAtOnce = 8
	moveEvery   = 2 * time.Second
	// sharesAtOnce and shareEvery are the same for who takes over keys, which is cheaper than
	// to attach, and urgent.
	sharesAtOnce = 16
	shareEvery   = 250 * time.Millisecond
)

// moves is how often something may be done anew: so often at once, and then every so often.
type moves struct {
	most  float64
	every time.Duration
	left  float64
	since time.Time
}

func newMoves(most int, every time.Duration) moves {
	return moves{most: float64(most), every: every, left: float64(most), since: time.Now()}
}

// pause is how long to wait before the next one.
func (m *moves) pause(now time.Time) time.Duration {
	m.left = min(m.left+float64(now.Sub(m.since))/float64(m.every), m.most)
	m.since = now
	m.left--
	return time.Duration(max(-m.left, 0) * float64(m.every))
}

// Watch calls tell now and whenever the answers of the membership may have changed, until the
// context ends. Replicas that are made up, always others, change them continuously: after a
// few changes at once it waits between them.
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

// Work consumes a stream, in the rank that this replica has for the work, and
// attaches anew when that changes; see [bus.Reader].
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

// await returns when the rank for a piece of work is another one and a worker may attach
// anew, or the context has ended.
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
