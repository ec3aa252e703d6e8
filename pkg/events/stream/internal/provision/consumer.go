package provision

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// Consumer creates a consumer, or changes an existing one.
func (d direct) Consumer(ctx context.Context, o settings.Consumer) (jetstream.Consumer, error) {
	if o.Acks && !o.HasName() {
		o = o.Named("reader-" + nuid.Next())
	}
	want := o.Config()
	switch {
	case o.Remake:
		removal, done := context.WithTimeout(ctx, conn.LookupTimeout)
		defer done()
		err := d.on.JetStream.DeleteConsumer(removal, o.Stream, o.Durable)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, err
		}
	case o.Update:
		found, err := d.on.JetStream.Consumer(ctx, o.Stream, o.Durable)
		if err != nil {
			return nil, err
		}
		have := found.CachedInfo().Config
		want.DeliverPolicy, want.OptStartSeq, want.OptStartTime = have.DeliverPolicy, have.OptStartSeq, have.OptStartTime
		return d.on.JetStream.UpdateConsumer(ctx, o.Stream, want)
	}
	// Create, never update here: when two processes start together with different settings, the
	// server refuses the second, which then finds the consumer at its next attempt and updates
	// it. If they differ only in the start, the consumer keeps that of the first.
	made, err := d.on.JetStream.CreateConsumer(ctx, o.Stream, want)
	if o.Durable == "" || !errors.Is(err, jetstream.ErrConsumerExists) {
		return made, err
	}
	found, finding := d.on.JetStream.Consumer(ctx, o.Stream, o.Durable)
	if finding != nil || !o.Matches(found.CachedInfo().Config) {
		return nil, err
	}
	return found, nil
}

// Leave deletes a reader's consumer, without waiting for the answer: the server would delete it
// after a while anyway.
func (d direct) Leave(stream, consumer string) {
	_ = d.on.NATS.Publish(d.on.API("CONSUMER.DELETE."+stream+"."+consumer), nil)
}
