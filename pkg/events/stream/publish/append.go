package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/ingest"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// maxInFlight bounds the messages that one appender has sent and not yet seen stored:
	// enough to go on while the server compresses and syncs a block.
	maxInFlight = 2048
	// maxBytesInFlight bounds the same in bytes.
	maxBytesInFlight = 16 << 20
	// markAge is how long the log keeps a mark; newer marks replace it.
	markAge = time.Hour
)

// appender publishes with predicted sequences: message i expects the sequence of message i-1 to
// be the log's last. If the server loses one message it refuses all after it, so the stored
// messages are always a gap-free prefix of the appended ones.
//
// The sequence alone does not identify the publisher: when another publisher has stored k
// messages in the meantime, the server refuses our next k messages, but the one after them
// would fit again. So all messages form one fast-ingest batch, which ends at the first refused
// message ([ingest]).
type appender struct {
	on     Connection
	kind   kinds.Name
	stream string
	// ctx ends when the server refuses our subject, or with Close.
	ctx     context.Context
	cancel  func()
	answers *nats.Subscription
	inbox   string

	age  time.Duration // how long the log keeps a message
	last uint64
	err  error // the first error; sticky
	// stored is the last sequence that is known to be stored.
	stored atomic.Uint64
	// answered holds a token when an answer has come.
	answered chan struct{}

	mu          sync.Mutex
	batch       *ingest.Batch
	before      uint64           // the log's last sequence before the batch
	unconfirmed []events.Message // what is not known to be stored, oldest first
	size        int              // of unconfirmed, in bytes
	used        time.Time
	// connection is the connection's own count of reconnects when the batch began. The callback
	// of a reconnect may run too late, after the first message that follows the reconnect.
	connection uint64
}

// Append opens a kind's log for its one publisher; see [bus.Publisher].
func (p Publisher) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	stream := subject.LogStream(kind)
	state, err := p.On.StreamState(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", kind, err)
	}
	a := &appender{on: p.On, kind: kind, stream: stream, last: state.Last, age: state.Keeps.Age, inbox: p.On.NATS().NewInbox(), answered: make(chan struct{}, 1)}
	if a.answers, err = p.On.NATS().Subscribe(a.inbox+".>", a.receive); err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", kind, natserr.Translate(ctx, err))
	}
	a.ctx, a.cancel = p.On.Guarded(context.Background(), subject.Log(kind)[:len(subject.Log(kind))-1])
	a.stored.Store(state.Last)
	return a, nil
}

func (a *appender) Append(ctx context.Context, m events.Message) error {
	if a.err != nil {
		return a.err
	}
	size := sizeOf(m)
	room, err := a.hasRoom(maxInFlight-1, maxBytesInFlight-size)
	switch {
	case err != nil:
		return a.fail(err)
	case !room:
		// Free half of the room at once: waiting for each single message costs far more.
		if err := a.awaitAnswers(ctx, maxInFlight/2, maxBytesInFlight/2); err != nil {
			return err
		}
	}
	out := Outgoing(m, jetstream.ExpectedLastSeqHeader, strconv.FormatUint(a.last, 10))
	if ttl := a.lifetime(m); ttl != "" {
		out.Header[jetstream.MsgTTLHeader] = []string{ttl}
	}
	out.Reply = a.next(published(out, a.stream, a.last+1))
	if err := a.on.NATS().PublishMsg(out); err != nil {
		return a.fail(err)
	}
	a.last++
	return nil
}

// next is the reply subject of the next message. It starts a new batch when there is none, or
// when the server may have forgotten the current one.
func (a *appender) next(m events.Message) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	connection := a.on.NATS().Stats().Reconnects
	if a.batch == nil || a.batch.Open() == 0 && a.batch.Err() == nil && (now.Sub(a.used) > ingest.Idle || connection != a.connection) {
		a.batch, a.before, a.connection = ingest.New(a.inbox, nuid.Next()), a.last, connection
	}
	a.used = now
	a.unconfirmed, a.size = append(a.unconfirmed, m), a.size+sizeOf(m)
	return a.batch.Next()
}

// receive handles an answer of the server.
func (a *appender) receive(m *nats.Msg) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.batch == nil || !a.batch.Owns(m.Subject) {
		return // an answer for an earlier batch, all of which is stored
	}
	if m.Header.Get("Status") != "" { // the server has no such stream
		a.batch.Fail(nats.ErrNoResponders)
	} else {
		a.batch.Hear(m.Data)
	}
	a.confirm(len(a.unconfirmed) - a.batch.Open())
	a.stored.Store(a.before + a.batch.Stored())
	select {
	case a.answered <- struct{}{}:
	default:
	}
}

// confirm hands over the oldest messages, which are stored now. The server has stamped them a moment
// ago.
func (a *appender) confirm(stored int) {
	now := time.Now()
	for i := range a.unconfirmed[:stored] {
		m := &a.unconfirmed[i]
		a.size -= sizeOf(*m)
		m.Time = now
		a.on.Hub().Store(*m)
	}
	rest := copy(a.unconfirmed, a.unconfirmed[stored:])
	clear(a.unconfirmed[rest:])
	a.unconfirmed = a.unconfirmed[:rest]
}

// sizeOf is how much a message counts against the bound of bytes in flight.
func sizeOf(m events.Message) int { return len(m.Data) + len(m.Subject) }

// lifetime is the TTL of a message; "" for as long as the log keeps all messages. Newer marks
// replace a mark.
func (a *appender) lifetime(m events.Message) string {
	if events.Op(m.Get(events.HeaderOp)) != events.Mark {
		return ""
	}
	return seconds(min(markAge, cmp.Or(a.age, markAge)))
}

func (a *appender) Flush(ctx context.Context) error {
	if a.err != nil {
		return a.err
	}
	return a.awaitAnswers(ctx, 0, 0)
}

// hasRoom reports whether at most so many messages and bytes are in flight.
//
// Errors: the reason why the server stores no more of the sent messages.
func (a *appender) hasRoom(messages, bytes int) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.batch != nil && a.batch.Err() != nil {
		return false, a.batch.Err()
	}
	return len(a.unconfirmed) <= messages && a.size <= bytes, nil
}

// awaitAnswers waits until at most so many messages and bytes are in flight. When the server confirms
// nothing for half of the time that a request has, awaitAnswers pings it; the server then has the other
// half. If the server answers and confirms nothing, it is pinged again, [maxPings] times in all.
func (a *appender) awaitAnswers(ctx context.Context, messages, bytes int) error {
	patience := a.on.Timeout() / 2
	silence := time.NewTimer(patience)
	defer silence.Stop()
	for waits := (progress{left: a.inFlight()}); ; {
		done, err := a.hasRoom(messages, bytes)
		switch {
		case err != nil:
			return a.fail(err)
		case done:
			return nil
		}
		select {
		case <-a.answered:
			if !waits.answered(a.inFlight()) {
				continue
			}
		case <-silence.C:
			if waits.silent() {
				return a.fail(fmt.Errorf("the server does not say what it has stored: %w", nats.ErrTimeout))
			}
			if err := a.ping(); err != nil {
				return a.fail(err)
			}
		case <-ctx.Done():
			return a.fail(ctx.Err())
		case <-a.ctx.Done():
			return a.fail(context.Cause(a.ctx))
		case <-a.on.Closed():
			return a.fail(bus.ErrClosed)
		}
		silence.Reset(patience)
	}
}

// inFlight is the number of messages that the server has not confirmed.
func (a *appender) inFlight() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.unconfirmed)
}

// maxPings is how often a server is pinged that answers and confirms nothing. A server with a slow disk does
// that for a while; it does that for ever when the leader of a stream has changed in the middle of a batch.
const maxPings = 4

// progress is what a wait for answers has seen. An answer counts only if it confirms a message.
type progress struct {
	left  int  // messages in flight at the last answer that counted
	pings int  // since then
	heard bool // the server has answered the last of them
}

// answered handles an answer after which left messages are in flight, and reports whether it counts.
func (p *progress) answered(left int) bool {
	if left >= p.left {
		p.heard = true
		return false
	}
	*p = progress{left: left}
	return true
}

// silent handles that no answer has counted for a while, and reports whether to give up; otherwise the
// server has to be pinged.
func (p *progress) silent() (over bool) {
	over = p.pings > 0 && !p.heard || p.pings == maxPings
	p.pings, p.heard = p.pings+1, false
	return over
}

// ping asks the server to repeat how much it has stored.
func (a *appender) ping() error {
	a.mu.Lock()
	reply := a.batch.Ping()
	a.mu.Unlock()
	return a.on.NATS().PublishRequest(subject.Mark(a.kind), reply, nil)
}

func (a *appender) fail(err error) error {
	err = natserr.Translate(a.ctx, err)
	a.on.Hub().Lose(a.stream)
	if natserr.HasNoListener(err) {
		// The log is gone, or the server is only just starting.
		if _, lookup := a.on.StreamState(a.ctx, a.stream); errors.Is(lookup, bus.ErrNoStream) {
			err = lookup
		}
	}
	a.on.Failed(err)
	a.err = fmt.Errorf("append to %s: %w", a.stream, err)
	return a.err
}

func (a *appender) Last() uint64 { return a.last }

func (a *appender) Close() error {
	if !errors.Is(a.err, bus.ErrClosed) {
		a.err = fmt.Errorf("append to %s: %w", a.stream, bus.ErrClosed)
	}
	a.cancel()
	if done, _ := a.hasRoom(0, 0); !done {
		a.on.Hub().Lose(a.stream)
	}
	return a.answers.Unsubscribe()
}
