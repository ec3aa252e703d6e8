// Package ingest is the publisher's side of JetStream's fast ingest (nats-server 2.14 or
// later), without any I/O: what a batch says to the server, and what the server's answers
// say of the batch.
//
// A batch is a row of messages, sent one after the other without waiting. The server
// stores a beginning of the row that has no gaps, and nothing after the first message that
// it lacks or refuses. So a publisher that expects a sequence with each message needs
// nothing else to know what was stored, also where the stream changes its leader in the
// middle. A batch has no end of its own: one that is not used any more is forgotten by the
// server, after [Idle] and more.
//
// All that a message says of its batch is in its reply subject:
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

// Idle is for how long a batch may rest and be used again. The server forgets batches that
// have rested for 10 s, unless its operator has set less.
const Idle = 3 * time.Second

// The operations of a message.
const (
	start  = "0"
	more   = "1"
	ping   = "4"
	suffix = ".$FI"
)

// acknowledged is after how many messages the server acknowledges: each of them, since the
// last one of a row is one that the publisher waits for.
const acknowledged = "1"

// ErrUnsupported says that the server stored a message and did not take it for part of a
// batch.
var ErrUnsupported = errors.New("the server does not know fast ingest: nats-server 2.14 or later is needed")

// ErrBroken says that a batch has ended although the server refused nothing of it: a message
// was lost, or the server that leads the stream now does not know the batch. What is not
// stored can be sent again.
var ErrBroken = errors.New("the batch of messages was broken off")

// unknownBatch is the server's code for a batch that it does not know.
const unknownBatch = jetstream.ErrorCode(10208)

// Batch is one batch. It is for one goroutine at a time.
type Batch struct {
	prefix string
	sent   uint64
	stored uint64
	err    error
}

// New begins a batch. inbox is a subject below which the publisher hears answers, and id is
// different for each batch of a stream, of at most 64 bytes without dots.
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

// Ping is the reply subject of an empty message, on a subject of the stream, that is not
// stored and has the server say again what it has stored. At least one message of the batch
// must have been sent.
func (b *Batch) Ping() (reply string) { return b.reply(ping) }

func (b *Batch) reply(operation string) string {
	return b.prefix + strconv.FormatUint(b.sent, 10) + "." + operation + suffix
}

// Owns tells whether an answer on a subject is to a message of the batch.
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

// Hear takes in an answer of the server, in any order and any number of times.
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
	default: // the batch has ended, which was not asked for
		b.reach(s.Count)
		b.Fail(fmt.Errorf("%w after message %d", ErrBroken, s.Count))
	}
}

// reach notes how far the batch is stored. What was not sent cannot be.
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

// Err is why the server stores no more of the batch; nil while it does.
func (b *Batch) Err() error { return b.err }

// String shows the batch.
func (b *Batch) String() string {
	return fmt.Sprintf("%d sent, %d stored, %v", b.sent, b.stored, b.err)
}
