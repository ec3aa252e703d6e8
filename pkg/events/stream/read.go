package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// Last is the newest message of a subject; see [bus.Reader]. One that this process has just
// published is found without the server.
func (b *Bus) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	if m, ok := b.local.Last(stream, subject); ok {
		b.stats.handedOver.WithLabelValues(stream).Inc()
		return m, true, nil
	}
	return b.get(ctx, stream, func(ctx context.Context, s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetLastMsgForSubject(ctx, subject)
	})
}

// At is the message at a sequence; see [bus.Reader].
func (b *Bus) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if sequence == 0 {
		return events.Message{}, false, nil
	}
	return b.get(ctx, stream, func(ctx context.Context, s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, sequence)
	})
}

type getter func(context.Context, jetstream.Stream) (*jetstream.RawStreamMsg, error)

func (b *Bus) get(ctx context.Context, stream string, ask getter) (events.Message, bool, error) {
	handle, err := b.reading(ctx, stream)
	if err != nil {
		return events.Message{}, false, err
	}
	request, done := b.guarded(ctx, stream)
	defer done()
	m, err := ask(request, handle)
	switch {
	case err == nil:
		return delivery.Stored(stream, m), true, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return events.Message{}, false, nil
	}
	return events.Message{}, false, b.readError(ctx, request, stream, err)
}

// readError says why a stream could not be read with a request.
func (b *Bus) readError(ctx, request context.Context, stream string, err error) error {
	// A stream that is gone does not answer direct gets at all.
	if natserr.HasNoListener(err) {
		if _, lookup := b.handle(ctx, stream); errors.Is(lookup, bus.ErrNoStream) {
			err = lookup
		}
	}
	err = natserr.Translate(request, err)
	if natserr.IsPermanent(err) {
		b.handles.Delete(stream)
	}
	return fmt.Errorf("read stream %s: %w", stream, err)
}

// reading gives a stream's cached handle, and looks it up the first time. The cached fact
// (direct gets are allowed) does not change.
func (b *Bus) reading(ctx context.Context, stream string) (jetstream.Stream, error) {
	if known, ok := b.handles.Load(stream); ok {
		return known.(jetstream.Stream), nil
	}
	handle, err := b.handle(ctx, stream)
	if err != nil {
		return nil, err
	}
	b.handles.Store(stream, handle)
	return handle, nil
}

var _ bus.Reader = (*Bus)(nil)
