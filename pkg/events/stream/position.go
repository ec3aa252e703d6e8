package stream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
)

// errPositionLost: a consumer's position is beyond the end of its stream, because the stream
// has lost its last messages; the consumer would deliver nothing until the stream has grown
// that far again. Or the consumer goes through its history once more.
var errPositionLost = errors.New("the consumer has lost its place")

// positionDoubtFor is how long a consumer may seem to be beyond its stream: different servers may report
// the two positions.
const positionDoubtFor = time.Second

// endSession ends a session, unless it has an error already.
func endSession(broken chan<- error, err error) {
	select {
	case broken <- err:
	default:
	}
}

// isRedeliveringHistory reports whether a delivery shows that the consumer goes through its history again. A
// message older than the consumer counts as delivered before, since an earlier consumer may
// have delivered it.
func (w *worker) isRedeliveringHistory(m jetstream.Msg, p *delivery.Position) bool {
	if w.work.Since <= 0 || p.Attempt > 1 {
		return false
	}
	if p.Time.Before(w.made) {
		p.Attempt++
	}
	if p.Pending <= bus.Backlog || time.Since(p.Time) <= w.work.Since || time.Since(w.asked) < positionDoubtFor {
		return false
	}
	w.asked = time.Now()
	return w.work.Known == nil || w.work.Known(delivery.Message(w.work.Stream, m, *p))
}

// watchPosition ends the session when the consumer is beyond the end of its stream. It checks at once,
// and then at the usual interval.
func (w *worker) watchPosition(ctx context.Context, broken chan<- error, usual time.Duration) {
	suspected := false
	for wait := time.Duration(0); ; {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		switch beyond, err := w.isBeyondEnd(ctx); {
		case err != nil || !beyond:
			suspected, wait = false, usual
		case suspected:
			endSession(broken, errPositionLost)
			return
		default:
			suspected, wait = true, positionDoubtFor
		}
	}
}

// isBeyondEnd reads the consumer's position before the stream's end, so that messages stored in
// between do not count.
func (w *worker) isBeyondEnd(ctx context.Context) (bool, error) {
	request, done := w.bus.guarded(ctx, w.work.Stream)
	defer done()
	found, err := w.bus.js.Consumer(request, w.work.Stream, w.work.Durable)
	if err != nil {
		return false, err
	}
	info, err := w.bus.info(request, w.work.Stream)
	if err != nil {
		return false, err
	}
	return found.CachedInfo().Delivered.Stream > info.State.LastSeq, nil
}
