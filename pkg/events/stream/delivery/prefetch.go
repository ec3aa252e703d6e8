package delivery

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
)

const (
	// pullMessages bounds one pull request of a reader.
	pullMessages = 2000
	// PullBytes bounds one pull request in bytes. It keeps large objects from overrunning the buffers of client
	// and server.
	PullBytes = 16 << 20
	// heldMessages and heldBytes bound the messages that wait for the handler.
	heldMessages = 4000
	heldBytes    = 32 << 20
)

// ErrMayHaveMissed: deliveries may be missing, and a reader must begin anew behind the last one that it has.
var ErrMayHaveMissed = errors.New("deliveries may have been lost")

// Prefetch takes messages from the client library's goroutine and keeps them until the handler is
// free. When it is full it blocks that goroutine.
type Prefetch struct {
	// Ready holds a token when Take has something to return.
	Ready chan struct{}
	// WakeAt is how many messages are worth a wake-up, if the server has more; 0: each is.
	WakeAt int
	// OnReceived is told of each message; nil: nothing is. It must not call back.
	OnReceived func(sequence uint64, reply string)

	stream string

	mu        sync.Mutex
	spaceFree sync.Cond
	batch     []events.Message
	size      int
	received  uint64 // the consumer's count of deliveries
	behind    uint64 // messages that the server has after the last received one
	err       error
	closed    bool
}

// NewPrefetch makes one for a consumer of a stream.
func NewPrefetch(stream string) *Prefetch {
	f := &Prefetch{stream: stream, Ready: make(chan struct{}, 1)}
	f.spaceFree.L = &f.mu
	return f
}

// Receive takes a message; it is the handler of a jetstream.Consumer. It drops all messages behind a missing one.
func (f *Prefetch) Receive(m jetstream.Msg) {
	p, err := PositionOf(m.Reply())
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.closed && (len(f.batch) >= heldMessages || f.size >= heldBytes) {
		f.spaceFree.Wait()
	}
	switch {
	case f.closed || f.err != nil:
		return
	case err != nil:
		f.err = err
	case p.Delivery != f.received+1:
		f.err = fmt.Errorf("%w: delivery %d after %d", ErrMayHaveMissed, p.Delivery, f.received)
	default:
		if f.received++; f.OnReceived != nil {
			f.OnReceived(p.Sequence, m.Reply())
		}
		f.batch = append(f.batch, Message(f.stream, m, p))
		f.size += len(m.Data())
		f.behind = p.Pending
		if len(f.batch) < f.WakeAt && f.size < heldBytes && p.Pending > 0 {
			return
		}
	}
	f.signal()
}

// Fail ends the messages with an error, unless they have ended with another.
func (f *Prefetch) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.signal()
}

// Pulling is the options of a consumer's pull requests, with the interval of the server's heartbeats, and the time
// after which a request is repeated.
func (f *Prefetch) Pulling(heartbeat, expiry time.Duration) []jetstream.PullConsumeOpt {
	return []jetstream.PullConsumeOpt{
		jetstream.PullMaxMessagesWithBytesLimit(pullMessages, PullBytes),
		jetstream.PullHeartbeat(heartbeat), jetstream.PullExpiry(expiry),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { f.Fail(err) }),
	}
}

func (f *Prefetch) signal() {
	select {
	case f.Ready <- struct{}{}:
	default:
	}
}

// Take returns all received messages, how many more the server has, and the error that followed
// them.
func (f *Prefetch) Take() (batch []events.Message, behind uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	batch = f.batch
	f.batch, f.size = nil, 0
	if n := len(batch); n > 0 && f.err == nil {
		// The next batch is likely to be as large.
		f.batch = make([]events.Message, 0, min(n, pullMessages))
	}
	f.spaceFree.Broadcast()
	return batch, f.behind, f.err
}

// Close drops what is received from now on, and frees the goroutine that waits in Receive.
func (f *Prefetch) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.spaceFree.Broadcast()
}
