package bus

import (
	"context"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Archive is the part of a bus that readers of the past use: bounded reads, and lists of what is
// stored. A process that only reads needs no other interface, and no more permissions.
type Archive interface {
	Reader
	// Kinds and StreamState are those of [Streams].
	Kinds(ctx context.Context) ([]kinds.Kind, error)
	StreamState(ctx context.Context, stream string) (State, error)
	// Controllers are the controllers with stored turns, sorted.
	Controllers(ctx context.Context) ([]string, error)
	// Shadows are the controllers with a shadow stream, sorted.
	Shadows(ctx context.Context) ([]string, error)
	// Read passes a passage of a stream to the handler, in order, in batches that the handler
	// owns, and returns at the end of the passage. An error of the handler ends Read, which
	// returns it unchanged. The error is ErrNoStream if the stream does not exist, and
	// events.ErrDamaged if the bus holds a message that it cannot read.
	Read(ctx context.Context, p Passage, handle func(batch []events.Message) error) error
	// Next is the first message of a subject at or after a sequence; ok is false when there is
	// none. Its cost grows with the messages in between; it costs nothing if the subject has no
	// more messages.
	Next(ctx context.Context, stream, subject string, from uint64) (m events.Message, ok bool, err error)
	// Consumers are the durable consumers of a stream, sorted by name.
	Consumers(ctx context.Context, stream string) ([]Consumer, error)
}

// Passage is a part of a stream.
type Passage struct {
	Stream string
	// Subject filters; empty means all of the stream.
	Subject string
	// From is the first sequence. If it is 0, Since is the time of the first message; if that is
	// zero too, the passage begins with the stream.
	From  uint64
	Since time.Time
	// To is the last sequence; 0 means the last one when the read begins.
	To uint64
	// HeadersOnly leaves the bodies out.
	HeadersOnly bool
}

// Consumer is the progress of a durable consumer.
type Consumer struct {
	Name string `json:"name"`
	// Answered is the sequence up to which every message has been answered.
	Answered uint64 `json:"answered"`
	// Unanswered counts messages that were delivered but not answered; Pending those not
	// delivered yet; Again those delivered more than once and not answered.
	Unanswered int `json:"unanswered,omitempty"`
	Pending    int `json:"pending,omitempty"`
	Again      int `json:"again,omitempty"`
	// Active is the time of the last delivery; zero: never.
	Active time.Time `json:"active,omitzero"`
	// Ended: the consumer belongs to a reader ([Queue]) that has ended.
	Ended bool `json:"ended,omitempty"`
}
