// Package bus defines the message bus that Millrace needs. Package stream implements it with
// JetStream, package stream/memory with a fake; one conformance suite checks both against the
// contracts in this package.
package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Errors that callers branch on. Implementations wrap them.
var (
	// ErrOvertaken: another publisher has stored a message where this publisher expected its own
	// to be next. Nothing was stored.
	ErrOvertaken = errors.New("overtaken by another publisher")
	// ErrNoStream: the stream does not exist.
	ErrNoStream = errors.New("no such stream")
	// ErrSettings: the stream exists with settings other than ours.
	ErrSettings = errors.New("stream has other settings")
	// ErrTooLarge: the message is larger than the bus carries.
	ErrTooLarge = errors.New("message too large for the bus")
	// ErrClosed: the bus, reader or publisher has been closed.
	ErrClosed = errors.New("closed")
)

// Bus is the whole bus, as the services use it. It is safe for concurrent use.
type Bus interface {
	Streams
	Publisher
	Reader
	Queue
	LastReader
	Peers
	// Healthy is nil while the bus is usable; otherwise the error says what is wrong.
	Healthy() error
	// Close ends every reader and publisher and the connection.
	Close() error
}

// Streams creates and removes streams, with settings that lose no messages.
type Streams interface {
	// EnsureKind creates the log of a kind and records the kind in its metadata. If the log
	// exists with other settings, the error is ErrSettings and names the differences. Its
	// retention is the exception: it is changed to the requested one, unless a process that
	// started later has set another.
	EnsureKind(ctx context.Context, kind kinds.Kind) error
	// EnsureController creates the turn and outcome streams of a controller, the wake stream,
	// and the stream of the reconcilers' reports, in the same way.
	EnsureController(ctx context.Context, controller string) error
	// Kinds are the kinds whose logs exist, sorted by name.
	Kinds(ctx context.Context) ([]kinds.Kind, error)
	// DeleteKind removes the log of a kind that the API server no longer serves.
	DeleteKind(ctx context.Context, kind kinds.Name) error
	// StreamState is where a stream stands.
	StreamState(ctx context.Context, stream string) (State, error)
}

// State describes a stream.
type State struct {
	// First and Last are sequences; First is Last+1 when the stream is empty.
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Messages uint64 `json:"messages"`
	// Bytes is the compressed size of the stream.
	Bytes   uint64    `json:"bytes,omitempty"`
	Created time.Time `json:"created"`
	// Keeps is the retention of the stream.
	Keeps Retention `json:"keeps,omitzero"`
	// Bounded is the lowest size to which the stream was cut lately to free space, although more
	// may be kept by now.
	Bounded Bound `json:"bounded,omitzero"`
	// Now is the current time of the server's clock, which stamps messages.
	Now time.Time `json:"now"`
	// Begins is the time from which on the stream is a record: when its first message was
	// stored, or zero when it is empty; for a stretch exported from a stream, the beginning of
	// the stretch.
	Begins time.Time `json:"begins,omitzero"`
	// Whole is the sequence from which on an exported stretch has every message; the messages
	// before it are those that were current at its beginning. 0: the stream is complete.
	Whole uint64 `json:"whole,omitempty"`
}

// Retention is how much of a stream is kept: messages older than Age are removed, and the oldest
// ones when the stream exceeds Bytes. 0 means no such limit.
type Retention struct {
	Age   time.Duration `json:"age,omitempty"` // nanoseconds
	Bytes int64         `json:"bytes,omitempty"`
}

// Bound is the size to which a stream was cut to free space, and when last; zero: never.
type Bound struct {
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
}

// Publisher stores messages.
type Publisher interface {
	// Append opens a kind's log for its only publisher. The previous publisher gets ErrOvertaken
	// as soon as the new one has appended a message.
	Append(ctx context.Context, kind kinds.Name) (Appender, error)
	// Store stores one message on its subject and returns its sequence, if the last message of
	// that subject has the sequence expect (0: there is none). Otherwise the error is
	// ErrOvertaken.
	Store(ctx context.Context, m events.Message, expect uint64) (sequence uint64, err error)
	// Put stores one message unconditionally. Messages with the same id within
	// two minutes are stored once.
	Put(ctx context.Context, m events.Message, id string) (sequence uint64, err error)
	// Schedule sets the wake of a key and replaces an earlier one. A time that has passed fires
	// at once. A wake never fires early.
	Schedule(ctx context.Context, w events.Wake) error
}

// Appender is the only publisher of a log. It is not safe for concurrent use.
type Appender interface {
	// Append sends a message in order, without waiting until it is stored; it may block for
	// back-pressure. After an error the appender accepts no more messages: close it, open a new
	// one, and read the last message to see what was stored.
	Append(ctx context.Context, m events.Message) error
	// Flush waits until everything appended is stored.
	Flush(ctx context.Context) error
	// Last is the sequence of the last message appended, or found on opening.
	Last() uint64
	Close() error
}

// Reader reads streams.
type Reader interface {
	// Follow reads a stream in order from a sequence (inclusive; 0 or 1: from the start),
	// continues with messages that are stored later, and returns nil when the context ends. It
	// survives reconnects without gaps. Batches have any size. The handler owns them, but must not
	// change the headers and bodies of their messages, which other readers may have, too. An error
	// of the handler ends Follow. The error is ErrNoStream if the stream does not exist or is
	// deleted; ErrOvertaken if the stream was emptied or re-created during the read, so that
	// sequences go back; and events.ErrDamaged if the bus cannot read on.
	Follow(ctx context.Context, stream string, from uint64, handle func(batch []events.Message) error) error
	// Work consumes a stream through a durable consumer. The workers with the same durable name
	// share the deliveries; each message is redelivered until it is answered. Work returns nil
	// when the context ends.
	Work(ctx context.Context, w Work, handle func(Delivery)) error
	// Last is the newest message of a subject; ok is false when there is none.
	Last(ctx context.Context, stream, subject string) (m events.Message, ok bool, err error)
	// At is the message at a sequence; ok is false when it does not exist, or no longer does.
	At(ctx context.Context, stream string, sequence uint64) (m events.Message, ok bool, err error)
}

// Queue reads streams as work queues: the reader acknowledges what it has processed.
type Queue interface {
	// Consume is Follow through a durable consumer of this reader's own: the server stores how
	// far the reader has processed the stream, and resumes there for it. While messages are
	// unacknowledged, Consume calls dealt a few times a second, and acknowledges everything up to
	// the sequence that it returns; dealt must not block. The consumer outlives its reader for
	// [Abandoned].
	Consume(ctx context.Context, stream string, from uint64, dealt func() uint64, handle func(batch []events.Message) error) error
	// Acknowledged is the sequence up to which the readers of a stream that have ended had processed it:
	// the lowest, if there were several. ok is false when no reader ended lately. A reader whose
	// process is suspended has not ended.
	Acknowledged(ctx context.Context, stream string) (dealt uint64, ok bool, err error)
}

// LastReader reads the last messages of many subjects at once.
type LastReader interface {
	// LastOf is Last for many subjects: the newest message of each subject that has one, by
	// subject. Each was the newest of its subject at some moment of the call, not all at the
	// same moment. Many subjects cost little more than one.
	LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error)
}

// skew is the largest clock difference between the servers that stamp messages.
const skew = time.Second

// Before reports whether m was certainly stored before other, in any streams. A stream that lost
// its end assigns the same sequences again, so an outcome that was stored before a turn belongs
// to an earlier turn with the same sequence.
func Before(m, other events.Message) bool { return m.Time.Add(skew).Before(other.Time) }

// Work describes a durable consumer.
type Work struct {
	Stream  string
	Durable string
	// Since limits how old deliveries may be; 0 means no limit. A new consumer starts with
	// messages that were stored that long ago. So does a consumer that goes through its history
	// again: it is re-created when it delivers an older message for the first time, with more
	// than [Backlog] messages behind it, and Known says that the message has been processed. The
	// worker must find out by other means about messages that are not delivered for this reason.
	Since time.Duration
	// Known reports whether a message has been processed; nil means that every old one has. It is
	// called for few messages.
	Known func(events.Message) bool
	// AckWait is how long a delivery may stay unanswered before it comes again;
	// 0 means 30 s.
	AckWait time.Duration
	// MaxPending limits the unanswered deliveries; 0 means 5000.
	MaxPending int
	// Rank orders the workers of one durable name, from 0 to [LastRank]: each delivery, and each
	// redelivery, goes to the lowest rank that requests more. Workers of one rank share. A
	// worker that has gone requests no more, but see [Lingering].
	Rank int
}

// Abandoned is how long the consumer of an ended reader is kept, with its position.
const Abandoned = 10 * time.Minute

// LastRank is the highest rank of a worker.
const LastRank = 9

// Lingering is how long a worker that was stopped or cut off may still count as requesting
// deliveries, because the server cannot tell it from one that waits. A message sent to it is
// redelivered after AckWait.
const Lingering = 10 * time.Second

// Backlog is how many messages may lie between a delivery and the newest message before Since
// applies.
const Backlog = 1000

// Delivery is one message, to be answered in exactly one of three ways: Done, Later or Term. Its
// methods may be called from any goroutine and do not block on the network.
type Delivery interface {
	Message() events.Message
	// Attempt is the number of deliveries of the message, from 1. If the consumer has a Since, a
	// message older than the consumer counts as delivered before, because an earlier consumer
	// may have delivered it.
	Attempt() int
	// Ack: do not redeliver.
	Ack()
	// NakWithDelay: redeliver after a delay of at most a minute.
	NakWithDelay(delay time.Duration)
	// Term: do not redeliver, for this reason.
	Term(reason string)
	// InProgress: still being processed; restarts AckWait.
	InProgress()
}

// Peers carries messages that are worthless a second later: heartbeats.
type Peers interface {
	// Broadcast sends data to all current listeners of a topic, without storing it.
	Broadcast(topic string, data []byte) error
	// Listen receives messages on a topic until the context ends, or until it may have missed
	// one. An error says why it cannot receive.
	Listen(ctx context.Context, topic string, hear func(data []byte)) error
	// NoListeners reports whether no process listens on a topic at the moment; the server closes the
	// connection of a process that has died. It is false if the bus does not answer before the
	// context ends. Listeners receive an empty message.
	NoListeners(ctx context.Context, topic string) bool
}

// LastGetter finds the newest message of a subject; see [Reader].
type LastGetter interface {
	Last(ctx context.Context, stream, subject string) (m events.Message, ok bool, err error)
}

// RecordedSince is the message of a kind's log since which every existing object has been
// recorded, as the newest mark of the log says; 1 where no mark says it. A reader of the log that
// begins there knows all objects of the kind when it has read as far as that mark.
//
// Errors: those of the bus. A damaged mark says nothing.
func RecordedSince(ctx context.Context, b LastGetter, kind kinds.Name) (uint64, error) {
	m, there, err := b.Last(ctx, subject.LogStream(kind), subject.Mark(kind))
	if err != nil {
		return 0, fmt.Errorf("look since when everything is recorded of %s: %w", kind, err)
	}
	mark, unread := events.DecodeDelta(events.Ref{Kind: kind}, m)
	if !there || unread != nil {
		return 1, nil
	}
	return max(mark.Since, 1), nil
}
