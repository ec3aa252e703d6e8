package writer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

// busTime is the clock of the bus, which stamps the turns: by its own clock, that
// of a machine whose time is wrong, a writer would refuse every turn as too old. It
// is read now and then, and goes on by the time that has passed in between, which
// does not jump.
type busTime struct {
	mu    sync.Mutex
	told  time.Time // by the bus
	heard time.Time // when that was
}

const (
	// clockRead is how often the clock of the bus is read.
	clockRead = 10 * time.Second
	// slowAnswer is how long an answer takes that tells less than the time that has passed
	// since an earlier one: what the bus said may be that much older. A connection that was
	// lost answers when there is another one. Turns would seem older by as much, and to have
	// been begun by another writer.
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
	if t.heard.IsZero() || time.Since(asked) < slowAnswer {
		t.told, t.heard = state.Now, asked
	}
	return nil
}

// known tells whether the clock has been read.
func (t *busTime) known() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.heard.IsZero()
}

// begin reads the clock for the first time, however long the bus takes to answer: a
// server whose disk is slow may stand still for longer than a question waits.
func (t *busTime) begin(ctx context.Context, b bus.Bus, stream string, log *slog.Logger) error {
	for {
		err := t.read(ctx, b, stream)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		log.Warn("waiting for the clock of the bus", "err", err)
	}
}

// keep reads the clock again and again until the context ends.
func (t *busTime) keep(ctx context.Context, b bus.Bus, stream string) {
	for ctx.Err() == nil {
		wait(ctx, clockRead)
		_ = t.read(ctx, b, stream) // while the bus is away, there are no turns either
	}
}

// now is never earlier than the bus has it by more than an answer takes.
func (t *busTime) now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told.Add(time.Since(t.heard))
}
