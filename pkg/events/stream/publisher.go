package stream

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/handover"
	"github.com/millrace/millrace/pkg/events/stream/publish"
)

// connection is the bus as its publishers see it.
type connection struct{ *Bus }

func (c connection) NATS() *nats.Conn               { return c.on.NATS }
func (c connection) JetStream() jetstream.JetStream { return c.on.JetStream }
func (c connection) Hub() *handover.Hub             { return c.on.Hub }
func (c connection) Timeout() time.Duration         { return c.on.Timeout }
func (c connection) Closed() <-chan struct{}        { return c.on.Closed() }
func (c connection) Stored(stream string)           { c.on.Stats.Published.WithLabelValues(stream).Inc() }
func (c connection) Failed(reason error)            { c.on.Stats.Failed(reason) }

func (c connection) Guarded(ctx context.Context, about string) (context.Context, func()) {
	return c.on.Guarded(ctx, about)
}

var _ bus.Publisher = (*Bus)(nil)

func (b *Bus) publisher() publish.Publisher { return publish.Publisher{On: connection{b}} }

// Append opens a kind's log for its one publisher; see [bus.Publisher].
func (b *Bus) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	return b.publisher().Append(ctx, kind)
}

// Store stores a message if the last message of its subject has the sequence expect; see
// [bus.Publisher].
func (b *Bus) Store(ctx context.Context, m events.Message, expect uint64) (uint64, error) {
	return b.publisher().Store(ctx, m, expect)
}

// Put stores a message once per id; see [bus.Publisher]. It hands an outcome over to the readers
// of this process.
func (b *Bus) Put(ctx context.Context, m events.Message, id string) (uint64, error) {
	return b.publisher().Put(ctx, m, id)
}

// Schedule sets the wake of a key; see [bus.Publisher].
func (b *Bus) Schedule(ctx context.Context, w events.Wake) error {
	return b.publisher().Schedule(ctx, w)
}
