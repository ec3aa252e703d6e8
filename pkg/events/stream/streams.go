package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/internal/restore"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/stream/space"
	"github.com/millrace/millrace/pkg/events/subject"
)

// EnsureKind creates the log of a kind; see [bus.Streams]. It deletes what an earlier version kept
// beside it.
func (b *Bus) EnsureKind(ctx context.Context, kind kinds.Kind) error {
	return natserr.Retry(ctx, b.on.Log, "make the log of "+string(kind.Name), func() error { return b.make.Kind(ctx, kind) })
}

// EnsureController creates the turn and outcome stream of a controller, and the shared streams
// of wakes and status reports; see [bus.Streams].
func (b *Bus) EnsureController(ctx context.Context, controller string) error {
	return natserr.Retry(ctx, b.on.Log, "make the streams of "+controller, func() error { return b.make.Controller(ctx, controller) })
}

var _ bus.NotaryBus = (*Bus)(nil)

// EnsureNotary makes the notary's stream; see [bus.NotaryBus].
func (b *Bus) EnsureNotary(ctx context.Context, keep time.Duration) error {
	return natserr.Retry(ctx, b.on.Log, "make the notary's stream", func() error { return b.make.Notary(ctx, keep) })
}

var _ bus.ShadowBus = (*Bus)(nil)

// ShadowUser is the user of shadows that have an account of their own
// (deployments/nats/accounts.conf): guests that may also publish their findings.
const ShadowUser = access.Shadow

// EnsureShadow creates the stream of a controller's shadow; see [bus.ShadowBus]. A guest may not
// create a stream, since its creator could have it publish anything on any subject: a guest
// waits for the stream.
func (b *Bus) EnsureShadow(ctx context.Context, controller string) error {
	if b.options.Guest {
		return b.awaitShadow(ctx, controller)
	}
	return natserr.Retry(ctx, b.on.Log, "make the stream of the shadow of "+controller, func() error { return b.make.Shadow(ctx, controller) })
}

// awaitShadow waits until another process has created the stream.
func (b *Bus) awaitShadow(ctx context.Context, controller string) error {
	for attempt := 0; ; attempt++ {
		_, err := b.on.Info(ctx, subject.ShadowStream(controller))
		if !errors.Is(err, bus.ErrNoStream) && !natserr.IsPassing(err) {
			return err
		}
		if attempt == 10 {
			b.on.Log.Info("Waiting for the stream of a shadow: is the watcher running, with the same --shadow, and a provisioner?", "controller", controller)
		}
		if !natserr.Pause(ctx, attempt) {
			return fmt.Errorf("wait for the stream of the shadow of %s: %w", controller, ctx.Err())
		}
	}
}

// Provide creates the streams and consumers that services order, with the settings that follow
// from the options of this bus, until the context ends. It refuses the streams of a controller
// that is not among controllers, the catalogue. It begins by applying its settings to the
// existing streams, retention included. Any number of processes may provide on one bus: each
// order goes to one of them.
//
// Errors: it may not subscribe to orders, or the bus was closed.
func (b *Bus) Provide(ctx context.Context, controllers []string) error {
	return b.provision.Provide(ctx, controllers)
}

// StoreLimit makes room on servers that each hold a replica of all streams and may store at most so
// many bytes.
func (b *Bus) StoreLimit(most int64) *space.Limit {
	return space.NewLimit(b.on.JetStream, b.on.Log, most)
}

// Kinds are the kinds whose logs exist, sorted by name.
func (b *Bus) Kinds(ctx context.Context) ([]kinds.Kind, error) { return b.listing.Kinds(ctx) }

// DeleteKind deletes the log of a kind; a missing log is no error.
func (b *Bus) DeleteKind(ctx context.Context, kind kinds.Name) error {
	defer b.listing.Drop()
	return b.make.Forget(ctx, kind)
}

// StreamState is the state of a stream: its sequences, size and retention.
func (b *Bus) StreamState(ctx context.Context, name string) (bus.State, error) {
	info, err := b.on.Info(ctx, name)
	if err != nil {
		return bus.State{}, err
	}
	return stateOf(info), nil
}

func stateOf(info *jetstream.StreamInfo) bus.State {
	s := bus.State{
		First: info.State.FirstSeq, Last: info.State.LastSeq, Messages: info.State.Msgs, Created: info.Created,
		Begins: info.State.FirstTime, Bytes: info.State.Bytes, Keeps: settings.Keeps(info.Config), Bounded: space.BoundOf(info.Config.Metadata),
		Now: info.TimeStamp,
	}
	if s.Messages == 0 {
		s.First, s.Begins = s.Last+1, time.Time{}
	}
	restore.Original(&s, info.Config.Metadata)
	return s
}
