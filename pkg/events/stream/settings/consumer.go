package settings

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
)

const (
	// ReaderIdle is after how long the server removes the consumer of a dead reader.
	ReaderIdle = time.Minute
	// WorkersGroup is the one priority group that all workers of a consumer join.
	WorkersGroup = "all"
)

// Consumer describes a wanted consumer. It has no delivery subject (the reader pulls), so
// a service may send it to the provisioner.
type Consumer struct {
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

// Named is the consumer under a name, which only a reader's has.
func (o Consumer) Named(name string) Consumer {
	o.name = name
	return o
}

// HasName reports whether it was named.
func (o Consumer) HasName() bool { return o.name != "" }

// Config is the consumer in the server's terms.
func (o Consumer) Config() jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{FilterSubject: o.Subject, HeadersOnly: o.HeadersOnly, MaxDeliver: -1}
	if o.Durable == "" {
		c.Name, c.AckPolicy = o.name, jetstream.AckNonePolicy
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(o.From, 1)
		c.Replicas, c.MemoryStorage, c.InactiveThreshold = 1, true, ReaderIdle
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
		c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPrioritized, []string{WorkersGroup}
	}
	if o.Since != nil {
		c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, o.Since
	}
	return c
}

// Matches reports whether an existing consumer has the wanted settings, apart from its start.
func (o Consumer) Matches(have jetstream.ConsumerConfig) bool {
	want := o.Config()
	return have.AckWait == want.AckWait && have.MaxAckPending == want.MaxAckPending &&
		have.HeadersOnly == want.HeadersOnly && have.FilterSubject == want.FilterSubject &&
		have.PriorityPolicy == want.PriorityPolicy && slices.Equal(have.PriorityGroups, want.PriorityGroups)
}

// maxPendingLimit bounds the unanswered deliveries that an order may ask for.
const maxPendingLimit = 1 << 20

// Valid reports whether its numbers are within the bounds of a service.
func (o Consumer) Valid() bool {
	return o.AckWait >= 0 && o.AckWait <= time.Hour && o.MaxPending >= 0 && o.MaxPending <= maxPendingLimit
}
