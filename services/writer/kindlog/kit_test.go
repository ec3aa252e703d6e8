package kindlog

import (
	"context"
	"errors"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
)

var away = errors.New("away")

// holed returns a bus that cannot deliver one message of each stream.
func holed(b bus.Bus, missing uint64) *bustest.Bus {
	h := bustest.Wrap(b)
	h.OnAt = func(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
		if sequence == missing {
			return events.Message{}, false, away
		}
		return b.At(ctx, stream, sequence)
	}
	return h
}

// garbled returns a bus whose messages are all unreadable.
func garbled(b bus.Bus) *bustest.Bus {
	g := bustest.Wrap(b)
	g.OnLast = func(ctx context.Context, stream, subject string) (events.Message, bool, error) {
		m, ok, err := b.Last(ctx, stream, subject)
		m.Header, m.Data = nil, []byte("x")
		return m, ok, err
	}
	g.OnAt = func(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
		m, ok, err := b.At(ctx, stream, sequence)
		m.Header, m.Data = nil, []byte("x")
		return m, ok, err
	}
	return g
}
