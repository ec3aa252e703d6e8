package roster

import (
	"context"

	"github.com/millrace/millrace/pkg/events/bus"
)

// Ranked is a bus on which the replicas of a service share out the deliveries:
// all of a piece of work go to whom it falls to, and, from the moment when that
// one asks for no more, to the next. Nobody waits for a time-out to find out that
// a process has died: its connection is closed, and its requests with it.
type Ranked struct {
	bus.Bus
	Roster *Roster
	// Of names the piece of work that a consumer is part of.
	Of func(bus.Work) string
}

// Work consumes a stream, in the rank that this replica has for the work, and
// attaches anew when that changes; see [bus.Reader].
func (r *Ranked) Work(ctx context.Context, w bus.Work, handle func(bus.Delivery)) error {
	work := r.Of(w)
	for {
		session, end := context.WithCancel(ctx)
		rank, changed := r.Roster.rank(work)
		go func() {
			defer end()
			r.Roster.await(session, work, rank, changed)
		}()
		w.Rank = rank
		err := r.Bus.Work(session, w, handle)
		end()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// await returns when the rank for a piece of work is another one, or the context
// has ended.
func (r *Roster) await(ctx context.Context, work string, rank int, changed <-chan struct{}) {
	for now := rank; now == rank; now, changed = r.rank(work) {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
