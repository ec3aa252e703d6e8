package stream

import (
	"context"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/internal/restore"
)

var _ bus.Archive = (*Bus)(nil)

// Controllers are the controllers whose turns are kept; see [bus.Archive].
func (b *Bus) Controllers(ctx context.Context) ([]string, error) { return b.listing.Controllers(ctx) }

// Shadows are the controllers whose shadows are kept; see [bus.Archive].
func (b *Bus) Shadows(ctx context.Context) ([]string, error) { return b.listing.Shadows(ctx) }

// Consumers are the durable consumers of a stream; see [bus.Archive].
func (b *Bus) Consumers(ctx context.Context, stream string) ([]bus.Consumer, error) {
	return b.listing.Consumers(ctx, stream)
}

// Next is the first message of a subject from a sequence on; see [bus.Archive].
func (b *Bus) Next(ctx context.Context, stream, subject string, from uint64) (events.Message, bool, error) {
	return b.messages.Next(ctx, stream, subject, from)
}

// Read hands over a passage of a stream; see [bus.Archive].
func (b *Bus) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	at, err := b.StreamState(ctx, p.Stream)
	if err != nil {
		return err
	}
	if p.To == 0 || p.To > at.Last {
		p.To = at.Last
	}
	if b.options.Guest {
		return b.guest().Read(ctx, p, handle)
	}
	return b.passages.Read(ctx, p, at, handle)
}

// MayImport makes sure that the bus has imported streams only, so that nothing is put beside
// those of services.
//
// Errors: the bus has streams that services created; the bus cannot be asked.
func (b *Bus) MayImport(ctx context.Context) error { return restore.MayImport(ctx, b.on) }

// Import creates a stream with the messages of another one, under their sequences and times.
// The server keeps an imported stream for ever. Nothing expires in it, and no service works on
// it.
//
// Errors: the name is not that of a stream of the record; the stream exists already; the
// original cannot be read, or the stream cannot be created.
func (b *Bus) Import(ctx context.Context, from bus.Archive, name string, kind *kinds.Kind) error {
	return restore.Import(ctx, b.on, b.options.policy(), from, name, kind)
}
