// Package ingest is the publisher's side of JetStream's fast ingest (nats-server 2.14 or
// later), without any I/O: it encodes what a batch tells the server, and decodes the server's
// answers.
//
// A batch is a series of messages, sent one after the other without waiting. The server stores
// a prefix of the series without gaps, and nothing after the first message that it lacks or
// refuses. So a publisher that gives an expected sequence with each message needs nothing else
// to know which messages are stored, even if the stream changes its leader in the middle. A
// batch has no explicit end: the server forgets an unused one some time after [Idle].
//
// The reply subject of a message says everything about its batch:
//
//	<inbox>.<batch>.<acknowledge every so many>.fail.<number>.<operation>.$FI
package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Idle is for how long a publisher may leave a batch idle and still use it. The server forgets
// batches that were idle for 10 s, unless its operator has set less.
const Idle = 3 * time.Second

// The operations of a message.
const (
	start  = "0"
	more   = "1"
	ping   = "4"
	suffix = ".$FI"
)

// acknowledged is after how many messages the server acknowledges: after each, since the
// publisher may wait for any of them, as the last of a series.
const acknowledged = "1"

// ErrUnsupported says that the server stored a message without treating it as part of a batch.
var ErrUnsupported = errors.New("the server does not know fast ingest: nats-server 2.14 or later is needed")

// ErrBroken says that a batch has ended although the server refused none of it: a message was
// lost, or the stream's new leader does not know the batch. The publisher may send the unstored
// messages again.
var ErrBroken = errors.New("the batch of messages was broken off")

// unknownBatch is the server's code for an unknown batch.
const unknownBatch = jetstream.ErrorCode(10208)

// Batch is one batch. It is not safe for concurrent use.
type Batch struct {
	prefix string
	sent   uint64
	stored uint64
	err    error
}

// New begins a batch. inbox is a subject below which the publisher receives answers. id is
// unique among the batches of a stream, and has at most 64 bytes without dots.
func New(inbox, id string) *Batch {
	return &Batch{prefix: inbox + "." + id + "." + acknowledged + ".fail."}
}

// Next is the reply subject of the batch's next message.
func (b *Batch) Next() (reply string) {
	operation := more
	if b.sent == 0 {
		operation = start
	}
	b.sent++
	return b.reply(operation)
}

// Ping is the reply subject of an empty message, on a subject of the stream, that the server
// does not store but answers with how much it has stored. At least one message of the batch
// must have been sent.
func (b *Batch) Ping() (reply string) { return b.reply(ping) }

func (b *Batch) reply(operation string) string {
	return b.prefix + strconv.FormatUint(b.sent, 10) + "." + operation + suffix
}

// Owns reports whether an answer on a subject belongs to the batch.
func (b *Batch) Owns(subject string) bool { return strings.HasPrefix(subject, b.prefix) }

// said is any answer of the server.
type said struct {
	Type     string              `json:"type"`
	Sequence uint64              `json:"seq"` // of the batch where there is a type, or else of the stream
	Last     uint64              `json:"last_seq"`
	Error    *jetstream.APIError `json:"error"`
	Batch    string              `json:"batch"`
	Count    uint64              `json:"count"`
}

// Hear processes an answer of the server. Answers may come in any order and any number of
// times.
func (b *Batch) Hear(answer []byte) {
	var s said
	if err := json.Unmarshal(answer, &s); err != nil {
		b.Fail(fmt.Errorf("read an answer of the server: %w", err))
		return
	}
	switch {
	case s.Type == "ack":
		b.reach(s.Sequence)
	case s.Type == "gap":
		b.Fail(fmt.Errorf("%w: the server lacks messages %d to %d of it", ErrBroken, s.Last, s.Sequence-1))
	case s.Error != nil && s.Error.ErrorCode == unknownBatch:
		b.Fail(fmt.Errorf("%w: %w", ErrBroken, s.Error))
	case s.Error != nil:
		b.Fail(s.Error)
	case s.Type != "":
		b.Fail(fmt.Errorf("the server answers with %q, which is not known", s.Type))
	case s.Batch == "":
		b.Fail(ErrUnsupported)
	default: // the batch has ended, although the publisher did not end it
		b.reach(s.Count)
		b.Fail(fmt.Errorf("%w after message %d", ErrBroken, s.Count))
	}
}

// reach records how far the batch is stored, which cannot exceed what was sent.
func (b *Batch) reach(stored uint64) { b.stored = max(b.stored, min(stored, b.sent)) }

// Fail ends the batch for a reason; the first one counts.
func (b *Batch) Fail(reason error) {
	if b.err == nil {
		b.err = reason
	}
}

// Stored is how many of its messages are known to be stored.
func (b *Batch) Stored() uint64 { return b.stored }

// Open is how many messages were sent and are not known to be stored.
func (b *Batch) Open() int { return int(b.sent - b.stored) }

// Err is the reason why the server stores no more of the batch; nil while it does.
func (b *Batch) Err() error { return b.err }

// String shows the batch.
func (b *Batch) String() string {
	return fmt.Sprintf("%d sent, %d stored, %v", b.sent, b.stored, b.err)
}
