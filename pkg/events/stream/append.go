package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// maxInFlight bounds what one appender has sent and not yet seen stored: enough
	// to go on while the server compresses and syncs a block.
	maxInFlight = 2048
	// maxBytesInFlight bounds the same in bytes.
	maxBytesInFlight = 16 << 20
	// maxAsync is the client library's own bound, for all appenders together.
	// Ours must be the one that holds: at this one, publishing fails.
	maxAsync = 1 << 20
)

// appender publishes with predicted sequences: message i expects the sequence
// of message i-1 to be the log's last. If one is lost, all after it are
// refused, so what is stored is always a gap-free beginning of what was given.
//
// The sequence alone does not say whose message has it: when another publisher
// has stored k messages in the meantime, our next k are refused, and the one
// after them would fit again. So a message that is sent before its predecessor
// is known to be stored also expects the predecessor's id. (The id alone would
// not do: a server forgets ids.)
//
// Where a stream has copies, ids must not be expected: its leader stores such a
// message in the others' journals before anybody compares ids, and a copy that
// then finds another id there takes that for damage and never writes again, nor
// after a restart. So there each message waits until its predecessor is known to be
// stored.
type appender struct {
	name   string // makes our ids differ from those of other publishers
	bus    *Bus
	stream string
	// life ends when the server refuses our subject, or with Close.
	life context.Context
	end  func()

	age  time.Duration // how long the log keeps a message
	last uint64
	sent []sent // not yet known to be stored, oldest first
	size int    // bytes of sent
	err  error  // the first error; sticky
	// stored is the last sequence that is known to be stored.
	stored atomic.Uint64
}

type sent struct {
	future jetstream.PubAckFuture
	size   int
}

// Append opens a kind's log for its one publisher; see [bus.Publisher].
func (b *Bus) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	stream := subject.LogStream(kind)
	state, err := b.StreamState(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", kind, err)
	}
	life, end := b.guarded(context.Background(), subject.Log(kind)[:len(subject.Log(kind))-1])
	a := &appender{name: nuid.Next(), bus: b, stream: stream, life: life, end: end, last: state.Last, age: state.Keeps.Age}
	a.stored.Store(state.Last)
	if b.options.Replicas > 1 {
		go b.pace(life, kind, &a.stored)
	}
	return a, nil
}

func (a *appender) Append(ctx context.Context, m events.Message) error {
	if a.err != nil {
		return a.err
	}
	size := len(m.Data) + len(m.Subject)
	if a.bus.options.Replicas > 1 {
		if err := a.reap(ctx, 0, 0); err != nil {
			return err
		}
	}
	if len(a.sent) >= maxInFlight || a.size+size > maxBytesInFlight {
		// Half at once: to wait for each single one costs far more.
		if err := a.reap(ctx, maxInFlight/2, maxBytesInFlight/2); err != nil {
			return err
		}
	}
	out := outgoing(m, jetstream.ExpectedLastSeqHeader, strconv.FormatUint(a.last, 10), jetstream.MsgIDHeader, a.id(a.last+1))
	if len(a.sent) > 0 {
		out.Header[jetstream.ExpectedLastMsgIDHeader] = []string{a.id(a.last)}
	}
	if ttl := a.lifetime(m); ttl != "" {
		out.Header[jetstream.MsgTTLHeader] = []string{ttl}
	}
	// No retries: a message that is sent again would come after its successors.
	future, err := a.bus.js.PublishMsgAsync(out, jetstream.WithRetryAttempts(0))
	if err != nil {
		return a.fail(err)
	}
	a.last++
	a.size += size
	a.sent = append(a.sent, sent{future, size})
	return nil
}

// id of our message with a sequence.
func (a *appender) id(sequence uint64) string { return a.name + "-" + strconv.FormatUint(sequence, 10) }

// lifetime of a message in log and state: a tombstone leaves the state when
// nobody can resume behind it any more, a mark when there are newer ones.
func (a *appender) lifetime(m events.Message) string {
	switch events.Op(m.Get(events.HeaderOp)) {
	case events.Gone:
		return seconds(cmp.Or(a.age, defaultLogAge))
	case events.Mark:
		return seconds(min(markAge, cmp.Or(a.age, defaultLogAge)))
	default:
		return ""
	}
}

func (a *appender) Flush(ctx context.Context) error {
	if a.err != nil {
		return a.err
	}
	return a.reap(ctx, 0, 0)
}

// reap waits until at most so many messages and bytes are under way.
func (a *appender) reap(ctx context.Context, messages, bytes int) error {
	done := 0
	var err error
	for ; done < len(a.sent) && err == nil; done++ {
		if len(a.sent)-done <= messages && a.size <= bytes {
			break
		}
		if err = a.await(ctx, a.sent[done].future); err == nil {
			a.size -= a.sent[done].size
		}
	}
	if err != nil {
		return a.fail(err)
	}
	a.sent = a.sent[:copy(a.sent, a.sent[done:])]
	a.stored.Store(a.last - uint64(len(a.sent)))
	return nil
}

func (a *appender) await(ctx context.Context, future jetstream.PubAckFuture) error {
	select {
	case ack := <-future.Ok():
		if ack.Stream != a.stream {
			return fmt.Errorf("stored in %s", ack.Stream)
		}
		return nil
	case err := <-future.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-a.life.Done():
		return context.Cause(a.life)
	case <-a.bus.closed:
		return bus.ErrClosed
	}
}

func (a *appender) fail(err error) error {
	err = translated(a.life, err)
	if unanswered(err) {
		// The log is gone, or the server is only just starting.
		if _, lookup := a.bus.info(a.life, a.stream); errors.Is(lookup, bus.ErrNoStream) {
			err = lookup
		}
	}
	a.bus.stats.failed(err)
	a.err = fmt.Errorf("append to %s: %w", a.stream, err)
	return a.err
}

func (a *appender) Last() uint64 { return a.last }

func (a *appender) Close() error {
	if !errors.Is(a.err, bus.ErrClosed) {
		a.err = fmt.Errorf("append to %s: %w", a.stream, bus.ErrClosed)
	}
	a.sent = nil
	a.end()
	return nil
}
