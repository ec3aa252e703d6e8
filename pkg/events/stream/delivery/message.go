package delivery

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
)

// Position is the position of a delivery in its stream and in its consumer.
type Position struct {
	Attempt  int // from 1
	Sequence uint64
	Delivery uint64 // the consumer's own count, without holes
	Time     time.Time
	Pending  uint64 // messages behind this one
}

// PositionOf reads the reply subject of a delivery without allocating, since this
// is done for every message:
//
//	$JS.ACK.<stream>.<consumer>.<attempt>.<sequence>.<delivery>.<nanoseconds>.<pending>
//
// or the same with two more tokens before the stream and perhaps one at the end.
//
// Errors: it is no such subject.
func PositionOf(reply string) (Position, error) {
	before := 4
	if strings.Count(reply, ".") > 8 {
		before = 6
	}
	rest := reply
	for range before {
		_, rest, _ = strings.Cut(rest, ".")
	}
	var numbers [5]uint64
	for i := range numbers {
		var token string
		var more bool
		token, rest, more = strings.Cut(rest, ".")
		n, ok := Number(token)
		if !ok || !more && i+1 < len(numbers) {
			return Position{}, fmt.Errorf("%q is not the reply subject of a delivery", reply)
		}
		numbers[i] = n
	}
	return Position{int(numbers[0]), numbers[1], numbers[2], time.Unix(0, int64(numbers[3])), numbers[4]}, nil
}

// Number reads a decimal number without a sign; ok is false for any other text.
func Number(digits string) (n uint64, ok bool) {
	for i := range len(digits) {
		c := digits[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	return n, digits != ""
}

// Message is the message of a delivery; it shares headers and body with it.
func Message(stream string, m jetstream.Msg, p Position) events.Message {
	return events.Message{
		Subject: m.Subject(), Header: m.Headers(), Data: m.Data(),
		Stream: stream, Sequence: p.Sequence, Time: p.Time,
	}
}

// LastHeader is the header, in each message that the server returns for one of many subjects, with the sequence
// of the message before it.
const LastHeader = "Nats-Last-Sequence"

// serverHeaders are the headers with which the server describes a message that it returns to a request.
// They are not part of the message: a consumer delivers it without them.
var serverHeaders = []string{jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, "Nats-Time-Stamp", "Nats-Num-Pending", LastHeader}

// Stored is a message that the server returned to a request, without those headers. It shares the others, and
// the body, with m.
func Stored(stream string, m *jetstream.RawStreamMsg) events.Message {
	for _, key := range serverHeaders {
		delete(m.Header, key)
	}
	return events.Message{
		Subject: m.Subject, Header: m.Header, Data: m.Data,
		Stream: stream, Sequence: m.Sequence, Time: m.Time,
	}
}

// HandlerError wraps an error of the handler that a reader delivers to, which the reader returns unchanged.
type HandlerError struct{ Err error }

// Error is that of the handler.
func (e *HandlerError) Error() string { return e.Err.Error() }
