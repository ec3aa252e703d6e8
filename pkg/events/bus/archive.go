package bus

import (
	"context"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Archive is what those ask of a bus who read the past: bounded reads, and what
// there is to be read. Who only reads needs nothing else, and no more rights.
type Archive interface {
	Reader
	// Kinds and StreamState are those of [Streams].
	Kinds(ctx context.Context) ([]kinds.Kind, error)
	StreamState(ctx context.Context, stream string) (State, error)
	// Controllers are the controllers whose turns are kept, sorted.
	Controllers(ctx context.Context) ([]string, error)
	// Shadows are the controllers of which is kept what they said in shadow, sorted.
	Shadows(ctx context.Context) ([]string, error)
	// Read hands over a passage of a stream in order, in batches that the handler
	// owns, and returns when there is no more of it. An error of the handler ends
	// it, and is given as it is. ErrNoStream if the stream is not there; what the
	// bus holds and cannot read is events.ErrDamaged.
	Read(ctx context.Context, p Passage, handle func(batch []events.Message) error) error
	// Next is the first message of a subject at a sequence or behind it; ok is false
	// when there is none. It costs what lies between, and nothing where the subject
	// has no more messages.
	Next(ctx context.Context, stream, subject string, from uint64) (m events.Message, ok bool, err error)
	// Consumers are the durable consumers of a stream, sorted by name.
	Consumers(ctx context.Context, stream string) ([]Consumer, error)
}

// Passage is a part of a stream.
type Passage struct {
	Stream string
	// Subject filters; empty means all of the stream.
	Subject string
	// From is the first sequence. Where it is 0, Since is the time of the first
	// message; where that is zero too, the passage begins with the stream.
	From  uint64
	Since time.Time
	// To is the last sequence; 0 means the last one when the reading begins.
	To uint64
	// HeadersOnly leaves the bodies out.
	HeadersOnly bool
}

// Consumer is how far those have come who work under a name.
type Consumer struct {
	Name string `json:"name"`
	// Answered is the sequence up to which everything has been answered.
	Answered uint64 `json:"answered"`
	// Unanswered are delivered and not answered yet; Pending are not delivered yet;
	// Again have been delivered more than once, and are not answered yet.
	Unanswered int `json:"unanswered,omitempty"`
	Pending    int `json:"pending,omitempty"`
	Again      int `json:"again,omitempty"`
	// Active is when something was last delivered; zero: never.
	Active time.Time `json:"active,omitzero"`
	// Ended: it is that of a reader ([Queue]) that has ended.
	Ended bool `json:"ended,omitempty"`
}
