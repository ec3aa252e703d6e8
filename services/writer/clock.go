package writer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/sleep"
)

// busTime is the clock of the bus, which timestamps the turns. By its own clock a writer on a
// machine with a wrong time would refuse every turn as too old. The writer reads the bus's clock
// at intervals and extrapolates from the last reading with the monotonic clock.
type busTime struct {
	mu           sync.Mutex
	busReading   time.Time // the time that the bus gave
	localReading time.Time // the local time of that reading
}

const (
	// clockRead is how often the clock of the bus is read.
	clockRead = 10 * time.Second
	// slowAnswer is the round trip from which a new reading is dropped if there is an earlier one:
	// the writer counts from its request, and the bus may have read its clock later by as much. A
	// lost connection answers only once it is re-established. With such a reading turns would seem
	// older by as much, and would look as if another writer had begun them.
	slowAnswer = 200 * time.Millisecond
)

func (t *busTime) read(ctx context.Context, b bus.Bus, stream string) error {
	asked := time.Now()
	state, err := b.StreamState(ctx, stream)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.localReading.IsZero() || time.Since(asked) < slowAnswer {
		t.busReading, t.localReading = state.Now, asked
	}
	return nil
}

// known reports whether the clock has been read.
func (t *busTime) known() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.localReading.IsZero()
}

// begin reads the clock for the first time. It retries time-outs until the bus answers, since a
// server with a slow disk may stall for longer than one request waits.
func (t *busTime) begin(ctx context.Context, b bus.Bus, stream string, log *slog.Logger) error {
	for {
		err := t.read(ctx, b, stream)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		log.Warn("waiting for the clock of the bus", "err", err)
	}
}

// run reads the clock every clockRead until the context ends.
func (t *busTime) run(ctx context.Context, b bus.Bus, stream string) {
	for ctx.Err() == nil {
		sleep.For(ctx, clockRead)
		_ = t.read(ctx, b, stream) // without the bus there are no turns either
	}
}

// now returns the time of the bus. It may be ahead of the bus's own clock by the time that an
// answer took.
func (t *busTime) now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busReading.Add(time.Since(t.localReading))
}
