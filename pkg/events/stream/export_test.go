package stream

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/ingest"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/quota"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// Shake has readers believe that deliveries may be missing, as after a reconnect.
func (b *Bus) Shake() { b.on.CheckReaders() }

// Passing tells the errors that end by themselves when a cluster has chosen a leader.
func Passing(err error) bool {
	return natserr.IsPassing(err) || errors.Is(err, delivery.ErrMayHaveMissed) || errors.Is(err, ingest.ErrBroken) || errors.Is(err, nats.ErrTimeout)
}

// OrderReader has the provisioner make a reader's consumer, which nothing reads then.
func (b *Bus) OrderReader(ctx context.Context, stream string) error {
	_, err := b.make.Consumer(ctx, settings.Consumer{Stream: stream, From: 1})
	return err
}

// ConsumerNames are the names of all consumers of a stream.
func (b *Bus) ConsumerNames(ctx context.Context, stream string) (all []string, err error) {
	handle, err := b.on.Handle(ctx, stream)
	if err != nil {
		return nil, err
	}
	list := handle.ConsumerNames(ctx)
	for name := range list.Name() {
		all = append(all, name)
	}
	return all, list.Err()
}

// MostReaders bounds the readers of a user at a stream.
const MostReaders = quota.MaxPerStream

// BacklogBytes bounds what waits to be heard on a topic.
const BacklogBytes = backlogBytes

// Received is how many bytes this process has been sent.
func (b *Bus) Received() uint64 { return b.on.NATS.Stats().InBytes }
