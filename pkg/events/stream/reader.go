package stream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/guest"
	"github.com/millrace/millrace/pkg/events/stream/internal/work"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

var _ bus.Reader = (*Bus)(nil)

// Follow reads a stream in order and goes on for ever; see [bus.Reader].
func (b *Bus) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	if b.options.Guest {
		return b.guest().Follow(ctx, stream, from, handle)
	}
	return b.followed.Follow(ctx, stream, from, handle)
}

// Consume is Follow with acknowledgements of the messages that were dealt with; see
// [bus.Queue].
func (b *Bus) Consume(ctx context.Context, stream string, from uint64, dealt func() uint64, handle func([]events.Message) error) error {
	if b.options.Guest {
		return b.guest().Follow(ctx, stream, from, handle) // guests have no consumers
	}
	return b.followed.Consume(ctx, stream, from, dealt, handle)
}

// guest reads for a user who may not create consumers.
func (b *Bus) guest() *guest.Reader {
	return &guest.Reader{
		Source: b, Subscribe: b.subscribe, MayHaveMissed: b.on.MayHaveMissed, Closed: b.on.Closed(), Imported: b.on.APIPrefix != "",
	}
}

// subscribe hears what is published on a subject; see [guest.Reader].
func (b *Bus) subscribe(ctx context.Context, on string, hear func()) (life context.Context, stop func(), err error) {
	life, done := b.on.Guarded(ctx, fmt.Sprintf("%q", on))
	if on == "" {
		return life, done, nil
	}
	sub, err := b.on.NATS.Subscribe(on, func(*nats.Msg) { hear() })
	if err != nil {
		done()
		return nil, nil, natserr.Translate(ctx, err)
	}
	return life, func() {
		_ = sub.Unsubscribe()
		done()
	}, nil
}

// Acknowledged is how far ended readers had dealt with a stream; see [bus.Queue].
func (b *Bus) Acknowledged(ctx context.Context, stream string) (dealt uint64, ok bool, err error) {
	return b.listing.Acknowledged(ctx, stream)
}

// Work consumes a stream through a durable consumer; see [bus.Reader]. It calls the handler for
// one delivery at a time. The handler should only queue the delivery: while it runs, the
// deliveries behind it grow older.
func (b *Bus) Work(ctx context.Context, w bus.Work, handle func(bus.Delivery)) error {
	return work.Run(ctx, b.on, b.make, w, handle)
}

// Last is the newest message of a subject; see [bus.Reader]. One that this process has just
// published is found without the server.
func (b *Bus) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	return b.messages.Last(ctx, stream, subject)
}

// At is the message at a sequence; see [bus.Reader].
func (b *Bus) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	return b.messages.At(ctx, stream, sequence)
}

// LastOf is the newest message of each of many subjects; see [bus.LastReader].
func (b *Bus) LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	return b.messages.LastOf(ctx, stream, subjects)
}
