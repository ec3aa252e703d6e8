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

// lookupPatience is how long a look at a stream or consumer may take.
const lookupPatience = 2 * time.Second

// consumerOrder says which consumer is wanted. It has no subject to which messages would be
// sent, so it can be given to the provisioner: the reader that has a consumer asks it for messages.
type consumerOrder struct {
	Stream string `json:"stream"`
	// Durable is the name of one that several work on; empty: it is a reader's, who is
	// alone, answers nothing, and has it for as long as it reads.
	Durable     string `json:"durable,omitempty"`
	Subject     string `json:"subject,omitempty"`
	HeadersOnly bool   `json:"headersOnly,omitempty"`
	// Acks: the reader says how far it has dealt with what it was given, and the consumer
	// outlives it.
	Acks bool `json:"acks,omitempty"`
	// From is the first sequence, or Since the time of the first message.
	From  uint64     `json:"from,omitempty"`
	Since *time.Time `json:"since,omitempty"`

	AckWait    time.Duration `json:"ackWait,omitempty"` // nanoseconds
	MaxPending int           `json:"maxPending,omitempty"`
	// Update changes the one that is there, Remake replaces it.
	Update bool `json:"update,omitempty"`
	Remake bool `json:"remake,omitempty"`

	// name is that of a reader's consumer; empty: the client library makes one up.
	name string
}

// config is the consumer as the server is told.
func (o consumerOrder) config() jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{FilterSubject: o.Subject, HeadersOnly: o.HeadersOnly, MaxDeliver: -1}
	if o.Durable == "" {
		c.Name, c.AckPolicy = o.name, jetstream.AckNonePolicy
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(o.From, 1)
		c.Replicas, c.MemoryStorage, c.InactiveThreshold = 1, true, readerIdle
		if o.Acks {
			// What is not acknowledged comes again with the next session of the reader, and
			// not before: it is being worked on.
			c.Name, c.Durable, c.AckPolicy = "", o.name, jetstream.AckAllPolicy
			c.AckWait, c.MaxAckPending, c.InactiveThreshold = time.Hour, -1, bus.Abandoned
		}
	} else {
		c.Durable, c.AckPolicy, c.AckWait, c.MaxAckPending = o.Durable, jetstream.AckExplicitPolicy, o.AckWait, o.MaxPending
		c.DeliverPolicy = jetstream.DeliverAllPolicy
		// The server keeps the requests for deliveries in the order of their ranks,
		// and forgets those of a connection that has closed.
		c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPrioritized, []string{everybody}
	}
	if o.Since != nil {
		c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, o.Since
	}
	return c
}

// consumer makes a consumer, or changes the one that is there.
func (b own) consumer(ctx context.Context, o consumerOrder) (jetstream.Consumer, error) {
	if o.Acks && o.name == "" {
		o.name = "reader-" + nuid.Next()
	}
	want := o.config()
	switch {
	case o.Remake:
		removal, done := context.WithTimeout(ctx, lookupPatience)
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
	// Never an update here: of two that start together with other settings the second
	// is refused, finds the consumer the next time, and updates it. Where they differ in
	// no more than where they would start, it has that of the first.
	made, err := b.js.CreateConsumer(ctx, o.Stream, want)
	if o.Durable == "" || !errors.Is(err, jetstream.ErrConsumerExists) {
		return made, err
	}
	found, finding := b.js.Consumer(ctx, o.Stream, o.Durable)
	if finding != nil || !o.like(found.CachedInfo().Config) {
		return nil, err
	}
	return found, nil
}

// like tells whether a consumer that is there is as it is wanted, wherever it started.
func (o consumerOrder) like(have jetstream.ConsumerConfig) bool {
	want := o.config()
	return have.AckWait == want.AckWait && have.MaxAckPending == want.MaxAckPending &&
		have.HeadersOnly == want.HeadersOnly && have.FilterSubject == want.FilterSubject &&
		have.PriorityPolicy == want.PriorityPolicy && slices.Equal(have.PriorityGroups, want.PriorityGroups)
}

// leave removes a reader's consumer, without waiting: the server would do it by
// itself after a while.
func (b own) leave(stream, consumer string) {
	_ = b.conn.Publish(b.api("CONSUMER.DELETE."+stream+"."+consumer), nil)
}

// mostPending bounds what a consumer may be asked to have unanswered.
const mostPending = 1 << 20

// sane tells whether numbers are such as a service has.
func (o consumerOrder) sane() bool {
	return o.AckWait >= 0 && o.AckWait <= time.Hour && o.MaxPending >= 0 && o.MaxPending <= mostPending
}
