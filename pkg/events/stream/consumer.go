package stream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/millrace/millrace/pkg/events/bus"
)

// lookupTimeout bounds the lookup of a stream or consumer.
const lookupTimeout = 2 * time.Second

// consumerOrder describes a wanted consumer. It has no delivery subject (the reader pulls), so
// a service may send it to the provisioner.
type consumerOrder struct {
	Stream string `json:"stream"`
	// Durable is the name of a consumer that several workers share. Empty: the consumer belongs
	// to one reader, which answers nothing and keeps it for as long as it reads.
	Durable     string `json:"durable,omitempty"`
	Subject     string `json:"subject,omitempty"`
	HeadersOnly bool   `json:"headersOnly,omitempty"`
	// Acks: the reader acknowledges how far it has dealt with its messages, and the consumer
	// outlives the reader.
	Acks bool `json:"acks,omitempty"`
	// From is the first sequence, or Since the time of the first message.
	From  uint64     `json:"from,omitempty"`
	Since *time.Time `json:"since,omitempty"`

	AckWait    time.Duration `json:"ackWait,omitempty"` // nanoseconds
	MaxPending int           `json:"maxPending,omitempty"`
	// Update changes an existing consumer, Remake replaces it.
	Update bool `json:"update,omitempty"`
	Remake bool `json:"remake,omitempty"`

	// name is that of a reader's consumer; empty: the client library chooses one.
	name string
}

// config is the consumer in the server's terms.
func (o consumerOrder) config() jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{FilterSubject: o.Subject, HeadersOnly: o.HeadersOnly, MaxDeliver: -1}
	if o.Durable == "" {
		c.Name, c.AckPolicy = o.name, jetstream.AckNonePolicy
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(o.From, 1)
		c.Replicas, c.MemoryStorage, c.InactiveThreshold = 1, true, readerIdle
		if o.Acks {
			// The server redelivers unacknowledged messages in the reader's next session and
			// not earlier, since the reader is still working on them.
			c.Name, c.Durable, c.AckPolicy = "", o.name, jetstream.AckAllPolicy
			c.AckWait, c.MaxAckPending, c.InactiveThreshold = time.Hour, -1, bus.Abandoned
		}
	} else {
		c.Durable, c.AckPolicy, c.AckWait, c.MaxAckPending = o.Durable, jetstream.AckExplicitPolicy, o.AckWait, o.MaxPending
		c.DeliverPolicy = jetstream.DeliverAllPolicy
		// The server keeps the pull requests ordered by rank, and forgets those of a connection
		// that has closed.
		c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPrioritized, []string{allControllers}
	}
	if o.Since != nil {
		c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, o.Since
	}
	return c
}

// consumer creates a consumer, or changes an existing one.
func (b direct) consumer(ctx context.Context, o consumerOrder) (jetstream.Consumer, error) {
	if o.Acks && o.name == "" {
		o.name = "reader-" + nuid.Next()
	}
	want := o.config()
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
	if finding != nil || !o.matches(found.CachedInfo().Config) {
		return nil, err
	}
	return found, nil
}

// matches reports whether an existing consumer has the wanted settings, apart from its start.
func (o consumerOrder) matches(have jetstream.ConsumerConfig) bool {
	want := o.config()
	return have.AckWait == want.AckWait && have.MaxAckPending == want.MaxAckPending &&
		have.HeadersOnly == want.HeadersOnly && have.FilterSubject == want.FilterSubject &&
		have.PriorityPolicy == want.PriorityPolicy && slices.Equal(have.PriorityGroups, want.PriorityGroups)
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

// maxPendingLimit bounds the unanswered deliveries that an order may ask for.
const maxPendingLimit = 1 << 20

// validate reports whether an order's numbers are within the bounds of a service.
func (o consumerOrder) validate() bool {
	return o.AckWait >= 0 && o.AckWait <= time.Hour && o.MaxPending >= 0 && o.MaxPending <= maxPendingLimit
}
