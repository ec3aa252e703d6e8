package kindlog

import (
	"context"
	"errors"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

var away = errors.New("away")

// holed is a bus that cannot deliver one message of each stream.
type holed struct {
	bus.Bus
	missing uint64
}

func (h holed) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if sequence == h.missing {
		return events.Message{}, false, away
	}
	return h.Bus.At(ctx, stream, sequence)
}

// garbled is a bus whose messages are all unreadable.
type garbled struct{ bus.Bus }

func (g garbled) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	m, ok, err := g.Bus.Last(ctx, stream, subject)
	m.Header, m.Data = nil, []byte("x")
	return m, ok, err
}

func (g garbled) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	m, ok, err := g.Bus.At(ctx, stream, sequence)
	m.Header, m.Data = nil, []byte("x")
	return m, ok, err
}
