package stream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// lookupTimeout bounds the lookup of a stream or consumer.
const lookupTimeout = 2 * time.Second

// consumer creates a consumer, or changes an existing one.
func (b direct) consumer(ctx context.Context, o settings.Consumer) (jetstream.Consumer, error) {
	if o.Acks && !o.HasName() {
		o = o.Named("reader-" + nuid.Next())
	}
	want := o.Config()
	switch {
	case o.Remake:
		removal, done := context.WithTimeout(ctx, lookupTimeout)
		defer done()
		err := b.js.DeleteConsumer(removal, o.Stream, o.Durable)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, err
		}
	case o.Update:
		found, err := b.js.Consumer(ctx, o.Stream, o.Durable)
		if err != nil {
			return nil, err
		}
		have := found.CachedInfo().Config
		want.DeliverPolicy, want.OptStartSeq, want.OptStartTime = have.DeliverPolicy, have.OptStartSeq, have.OptStartTime
		return b.js.UpdateConsumer(ctx, o.Stream, want)
	}
	// Create, never update here: when two processes start together with different settings, the
	// server refuses the second, which then finds the consumer at its next attempt and updates
	// it. If they differ only in the start, the consumer keeps that of the first.
	made, err := b.js.CreateConsumer(ctx, o.Stream, want)
	if o.Durable == "" || !errors.Is(err, jetstream.ErrConsumerExists) {
		return made, err
	}
	found, finding := b.js.Consumer(ctx, o.Stream, o.Durable)
	if finding != nil || !o.Matches(found.CachedInfo().Config) {
		return nil, err
	}
	return found, nil
}

// leave deletes a reader's consumer, without waiting for the answer: the server would delete it
// after a while anyway.
func (b direct) leave(stream, consumer string) {
	_ = b.conn.Publish(b.api("CONSUMER.DELETE."+stream+"."+consumer), nil)
}

// api is the subject of a JetStream API request.
func (b *Bus) api(request string) string {
	if b.options.APIPrefix != "" {
		return b.options.APIPrefix + "." + request
	}
	return "$JS.API." + request
}
