// Package bus says what Millrace asks of a message bus. Package stream answers
// with JetStream, package stream/memory with a fake; one conformance suite holds
// both to what is written here.
package bus

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Errors that callers branch on. Implementations wrap them.
var (
	// ErrOvertaken: another publisher has published where the publisher expected
	// its own message to be next. Nothing was stored.
	ErrOvertaken = errors.New("overtaken by another publisher")
	// ErrNoStream: the stream does not exist.
	ErrNoStream = errors.New("no such stream")
	// ErrSettings: the stream exists with other settings than ours.
	ErrSettings = errors.New("stream has other settings")
	// ErrTooLarge: the message is larger than the bus carries.
	ErrTooLarge = errors.New("message too large for the bus")
	// ErrClosed: the bus, reader or publisher has been closed.
	ErrClosed = errors.New("closed")
)

// Bus is everything that the services ask of the bus. It is safe for
// concurrent use.
type Bus interface {
	Streams
	Publisher
	Reader
	Queue
	Looker
	Peers
	// Healthy is nil while the bus can be used; the error says what is wrong.
	Healthy() error
	// Close ends every reader and publisher and the connection.
	Close() error
}

// Streams makes sure that streams are there, with the settings that lose
// nothing.
type Streams interface {
	// EnsureKind makes the log and state stream of a kind and records the kind
	// in their metadata. A stream that exists with other settings is ErrSettings,
	// with what differs; but how much of a log is kept is changed to what is asked
	// for, unless a process that began later has said otherwise. A state stream that is
	// missing beside an existing log is made anew.
	EnsureKind(ctx context.Context, kind kinds.Kind) error
	// EnsureController makes the turn and outcome stream of a controller, and
	// the wake stream, and the stream of what reconcilers report; likewise.
	EnsureController(ctx context.Context, controller string) error
	// Kinds are the kinds whose streams exist, sorted by name.
	Kinds(ctx context.Context) ([]kinds.Kind, error)
	// Renew makes the state stream of a kind anew, empty, because what it holds
	// cannot be read or trusted. It holds what is stored in the log from then on,
	// under the log's sequences; the watcher that renews it says everything again.
	Renew(ctx context.Context, kind kinds.Kind) error
	// Forget removes the streams of a kind that the API server no longer serves.
	Forget(ctx context.Context, kind kinds.Name) error
	// StreamState is where a stream stands.
	StreamState(ctx context.Context, stream string) (State, error)
}

// State is where a stream stands.
type State struct {
	// First and Last are sequences; First is Last+1 when it is empty.
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Messages uint64 `json:"messages"`
	// Bytes is what it takes up, packed.
	Bytes   uint64    `json:"bytes,omitempty"`
	Created time.Time `json:"created"`
	// Keeps is how much of it is kept.
	Keeps Retention `json:"keeps,omitzero"`
	// Bounded is to how few bytes room was made in it lately, though more may be kept by now.
	Bounded Bound `json:"bounded,omitzero"`
	// Now is the moment by the server's clock, which stamps messages.
	Now time.Time `json:"now"`
	// Begins is the moment from which on it tells what there was: when its first
	// message was stored, zero when it is empty, and of a stretch that was cut out of
	// a stream, when that begins.
	Begins time.Time `json:"begins,omitzero"`
	// Whole is the sequence from which on nothing of such a stretch was left out; what
	// is before that is what counted at its beginning. 0: nothing was left out.
	Whole uint64 `json:"whole,omitempty"`
}

// Retention is how much of a stream is kept: what is older than Age goes, and the
// oldest messages where all of them take up more than Bytes. 0 is no such bound.
type Retention struct {
	Age   time.Duration `json:"age,omitempty"` // nanoseconds
	Bytes int64         `json:"bytes,omitempty"`
}

// Bound is to how few bytes room was made in a stream, and when last; zero: never.
type Bound struct {
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
}

// Publisher stores messages.
type Publisher interface {
	// Append opens a kind's log for its one publisher. The one that opened it before
	// will be refused with ErrOvertaken as soon as the new one has appended.
	Append(ctx context.Context, kind kinds.Name) (Appender, error)
	// Store stores one message on its subject, if the last message of that
	// subject has the sequence expect (0: there is none), and gives its
	// sequence. ErrOvertaken otherwise.
	Store(ctx context.Context, m events.Message, expect uint64) (sequence uint64, err error)
	// Put stores one message unconditionally. Messages with the same id within
	// two minutes are stored once.
	Put(ctx context.Context, m events.Message, id string) (sequence uint64, err error)
	// Schedule sets the wake of a key; the last one set counts. A time that has
	// passed fires at once. It never fires early.
	Schedule(ctx context.Context, w events.Wake) error
}

// Appender is the one publisher of a log. Not safe for concurrent use.
type Appender interface {
	// Append sends a message in order, without waiting until it is stored; it
	// may block for back-pressure. After an error nothing more is accepted:
	// close, open again, and look at the last message to see what was stored.
	Append(ctx context.Context, m events.Message) error
	// Flush waits until everything appended is stored.
	Flush(ctx context.Context) error
	// Last is the sequence of the last message appended or found.
	Last() uint64
	Close() error
}

// Reader reads streams.
type Reader interface {
	// Follow reads a stream in order from a sequence (inclusive; 0 or 1: from
	// the start) and goes on with what is stored later, until the context ends;
	// it then returns nil. It survives reconnects without gaps. Batches are as
	// large as they come; the handler owns them. An error of the handler ends it.
	// ErrNoStream if the stream is not there or disappears; a stream that was
	// emptied or made anew behind the reader's back (sequences going back) is
	// ErrOvertaken, and one that the bus cannot read on events.ErrDamaged.
	Follow(ctx context.Context, stream string, from uint64, handle func(batch []events.Message) error) error
	// Work consumes a stream through a durable consumer. Deliveries go to
	// the workers under that name; each comes again until it is answered.
	// Work returns nil when the context ends.
	Work(ctx context.Context, w Work, handle func(Delivery)) error
	// Last is the newest message of a subject; ok is false when there is none.
	Last(ctx context.Context, stream, subject string) (m events.Message, ok bool, err error)
	// At is the message at a sequence; ok is false when it is not there (any more).
	At(ctx context.Context, stream string, sequence uint64) (m events.Message, ok bool, err error)
}

// Queue reads streams as work queues: it says how far it has dealt with them.
type Queue interface {
	// Consume is Follow through a durable consumer of the reader's own: the server knows
	// how far the reader has dealt with what it was given, and goes on from there for it.
	// dealt is asked a few times a second, and everything up to the sequence that it gives is
	// acknowledged; it must not block. The consumer outlives its reader for [Abandoned].
	Consume(ctx context.Context, stream string, from uint64, dealt func() uint64, handle func(batch []events.Message) error) error
	// Left is up to which sequence readers that consumed a stream and have ended had
	// dealt with it: the lowest, where there were several. ok is false where there was none
	// lately. A reader whose process stands still has not ended.
	Left(ctx context.Context, stream string) (dealt uint64, ok bool, err error)
}

// Looker looks up many subjects at once.
type Looker interface {
	// LastOf is Last of many subjects: the newest message of each, by subject, without
	// those that have none. Each is the newest of its subject at some moment of the
	// call, not all at the same. Many cost little more than one.
	LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error)
}

// skew is how far the clocks of the servers may be apart that stamp messages.
const skew = time.Second

// Before tells whether a message was certainly stored before another one, in
// whatever streams. A stream that lost its end gives the same sequences once more,
// so an outcome that was stored before a turn is of an earlier turn in its place.
func Before(m, other events.Message) bool { return m.Time.Add(skew).Before(other.Time) }

// Work describes a durable consumer.
type Work struct {
	Stream  string
	Durable string
	// Since bounds how far back deliveries reach; 0 means to the start of the
	// stream. A consumer that does not exist yet starts with what was stored that
	// long ago, and so does one that goes through its history once more: it is made
	// anew when it delivers something older for the first time, with more than
	// [Backlog] messages behind it, that Known says has been dealt with. What is not
	// delivered for that reason the worker must find out about by other means.
	Since time.Duration
	// Known tells whether a message has been dealt with; nil: every old one has. It
	// is asked about few.
	Known func(events.Message) bool
	// AckWait is how long a delivery may stay unanswered before it comes again;
	// 0 means 30 s.
	AckWait time.Duration
	// MaxPending bounds the deliveries that are unanswered; 0 means 5000.
	MaxPending int
	// Rank orders those who work under the same name, from 0 to [LastRank]: each
	// delivery, also one that comes again, goes to the lowest rank that asks for
	// more. Those of one rank share. Who has gone asks no more, but see [Lingering].
	Rank int
}

// Abandoned is how long it is known how far a reader that has ended had dealt with a stream.
const Abandoned = 10 * time.Minute

// LastRank is the highest rank of a worker.
const LastRank = 9

// Lingering is how long a worker may still count as asking for deliveries that
// was stopped or cut off, which looks the same as one that waits. What it is
// sent comes again after AckWait.
const Lingering = 10 * time.Second

// Backlog is how many messages may be in front of the newest one before Since
// cuts them short.
const Backlog = 1000

// Delivery is one message to be answered, in exactly one of three ways. Its
// methods may be called from any goroutine and do not block on the network.
type Delivery interface {
	Message() events.Message
	// Attempt is how often the message has been delivered, from 1. Where the
	// consumer has a Since, a message that is older than the consumer counts as
	// delivered before: it may have been, through one that is gone.
	Attempt() int
	// Done: never again.
	Done()
	// Later: again after a delay of at most a minute.
	Later(delay time.Duration)
	// Term: never again, and for this reason.
	Term(reason string)
	// Working: not answered yet, but being worked on; restarts AckWait.
	Working()
}

// Peers carries what is worth nothing a second later: heartbeats.
type Peers interface {
	// Say tells everybody who listens on a topic, now, without storing it.
	Say(topic string, data []byte) error
	// Listen hears a topic until the context ends, or something may have been said
	// that was not heard. An error says why nothing can be heard.
	Listen(ctx context.Context, topic string, hear func(data []byte)) error
	// Absent tells whether nothing listens on a topic at the moment: the connection of a
	// process that has died is closed. It is false where the bus does not say so before
	// the context ends. What listens hears an empty message.
	Absent(ctx context.Context, topic string) bool
}
