package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A cut bus says at its call that the connection was cut, whatever is called, and otherwise what
// the bus says.
func TestEachCallCanBeCut(t *testing.T) {
	calls := map[string]func(ctx context.Context, on *memory.Cut) error{
		"kinds":       func(ctx context.Context, on *memory.Cut) error { _, err := on.Kinds(ctx); return err },
		"controllers": func(ctx context.Context, on *memory.Cut) error { _, err := on.Controllers(ctx); return err },
		"shadows":     func(ctx context.Context, on *memory.Cut) error { _, err := on.Shadows(ctx); return err },
		"state":       func(ctx context.Context, on *memory.Cut) error { _, err := on.StreamState(ctx, stored); return err },
		"consumers":   func(ctx context.Context, on *memory.Cut) error { _, err := on.Consumers(ctx, stored); return err },
		"read": func(ctx context.Context, on *memory.Cut) error {
			return on.Read(ctx, bus.Passage{Stream: stored}, func([]events.Message) error { return nil })
		},
		"next": func(ctx context.Context, on *memory.Cut) error { _, _, err := on.Next(ctx, stored, "", 1); return err },
		"last": func(ctx context.Context, on *memory.Cut) error {
			_, _, err := on.Last(ctx, stored, "turn.c.>")
			return err
		},
		"at":     func(ctx context.Context, on *memory.Cut) error { _, _, err := on.At(ctx, stored, 1); return err },
		"notary": func(ctx context.Context, on *memory.Cut) error { return on.EnsureNotary(ctx, time.Hour) },
		"store": func(ctx context.Context, on *memory.Cut) error {
			_, err := on.Store(ctx, events.Message{Subject: subject.Notary("EV_pods")}, 0)
			return err
		},
	}
	for name, call := range calls {
		for _, answered := range []bool{false, true} {
			inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
				must(t, b.EnsureNotary(t.Context(), time.Hour))
				if err := call(t.Context(), &memory.Cut{NotaryBus: b, Call: 1, Answered: answered}); !errors.Is(err, memory.ErrCut) {
					t.Errorf("%s at the cut (carried out: %t): %v", name, answered, err)
				}
			})
		}
		inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
			must(t, b.EnsureNotary(t.Context(), time.Hour))
			on := &memory.Cut{NotaryBus: b, Call: 2}
			if err := call(t.Context(), on); err != nil || on.Calls() != 1 {
				t.Errorf("%s before the cut: %v, and there were %d calls", name, err, on.Calls())
			}
			over, end := context.WithCancel(t.Context())
			if end(); !errors.Is(call(over, &memory.Cut{NotaryBus: b}), context.Canceled) {
				t.Errorf("%s hides what the bus says", name)
			}
		})
	}
}
