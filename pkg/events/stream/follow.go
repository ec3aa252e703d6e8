package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

const (
	// pullMessages and pullBytes bound one pull request. The bound in bytes keeps large objects
	// from overrunning the buffers of client and server.
	pullMessages = 2000
	pullBytes    = 16 << 20
	// heldMessages and heldBytes bound the messages that wait for the handler.
	heldMessages = 4000
	heldBytes    = 32 << 20
	// readerIdle is after how long the server removes the consumer of a dead reader.
	readerIdle = time.Minute
	// stuckPoll is after how long without messages a reader asks the server whether it still
	// has some, and stuckPolls how often in a row the server may say so in a session. While the
	// server has none, the reader asks less and less often (rhythm.consumerChecksIdle): the server fails
	// to read old messages, and a reader waits for those from the beginning.
	stuckPoll  = 2 * time.Second
	stuckPolls = 2
)

// errMayHaveMissed ends a session after which deliveries may be missing.
var errMayHaveMissed = errors.New("deliveries may have been lost")

// follower is one call of Follow. Each session has its own consumer. A session reads again what
// the session before received and did not hand over.
type follower struct {
	bus     *Bus
	stream  string
	next    uint64    // the lowest sequence that the handler has not received
	last    string    // the checksum of the message before next
	read    bool      // the message before next has been read
	created time.Time // when the stream was created, as of the first session
	stuckAt uint64    // the sequence at which an earlier session was stuck; 0: none was

	processed func() uint64 // see [bus.Queue]; nil: nothing is acknowledged
	acks      acks
}

// Follow reads a stream in order and goes on for ever; see [bus.Reader].
func (b *Bus) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	if b.options.Guest {
		return b.guestFollow(ctx, stream, from, handle)
	}
	return b.follow(ctx, &follower{bus: b, stream: stream, next: max(from, 1)}, handle)
}

// Consume is Follow with acknowledgements of the messages that were dealt with; see
// [bus.Queue].
func (b *Bus) Consume(ctx context.Context, stream string, from uint64, dealt func() uint64, handle func([]events.Message) error) error {
	if b.options.Guest {
		return b.guestFollow(ctx, stream, from, handle) // guests have no consumers
	}
	return b.follow(ctx, &follower{bus: b, stream: stream, next: max(from, 1), processed: dealt}, handle)
}

func (b *Bus) follow(ctx context.Context, f *follower, handle func([]events.Message) error) error {
	stream := f.stream
	for attempt := 0; ; attempt++ {
		before := f.next
		err := f.session(ctx, handle)
		b.listing.drop() // the stream may have been recreated
		var own *handlerError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &own):
			return own.err
		case isPermanent(err):
			return fmt.Errorf("follow %s: %w", stream, err)
		}
		if f.next != before {
			attempt = 0
		}
		b.stats.restarts.WithLabelValues(stream).Inc()
		b.options.Log.Debug("reading a stream again", "stream", stream, "from", f.next, "because", err)
		pause(ctx, attempt)
	}
}

// handlerError wraps an error of the caller's handler, which Follow returns unchanged.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }

func (f *follower) session(ctx context.Context, handle func([]events.Message) error) error {
	// Before the first request, so that no disturbance is missed.
	shaken := f.bus.onMayHaveMissed()
	request, done := f.bus.guarded(ctx, f.stream)
	defer done()
	source, err := f.open(request)
	if err != nil {
		return translated(request, err)
	}
	feed := newPrefetch(f.stream)
	if f.processed != nil {
		feed.onReceived = f.acks.add
	}
	consuming, err := source.Consume(feed.receive, f.bus.pulling(feed)...)
	if err != nil {
		return translated(request, err)
	}
	defer f.deleteConsumer(ctx, source.CachedInfo().Name)
	defer consuming.Stop()
	defer feed.close()
	s := newSession(f, source, feed, handle)
	defer s.end()
	if err := s.attach(request, source.CachedInfo().NumPending); err != nil {
		return err
	}
	for {
		select {
		case <-s.acking.C:
			s.acking.ticked(s)
		case <-s.idle.C:
			err = s.checkIdle(request)
		case <-request.Done():
			return context.Cause(request)
		case <-f.bus.closed:
			return bus.ErrClosed
		case <-shaken:
			return errMayHaveMissed
		case <-feed.ready:
			err = s.takeReceived(request)
		case <-s.local.Ready():
			err = s.takeLocal()
		}
		if err != nil {
			return translated(request, err)
		}
	}
}

// pulling is the options of a reader's pull requests.
func (b *Bus) pulling(feed *prefetch) []jetstream.PullConsumeOpt {
	rhythm := b.options.intervals()
	return []jetstream.PullConsumeOpt{
		jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes),
		jetstream.PullHeartbeat(rhythm.heartbeat), jetstream.PullExpiry(max(rhythm.pullExpiry, jetstream.DefaultExpires)),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { feed.fail(err) }),
	}
}

func (f *follower) deliver(batch []events.Message, handle func([]events.Message) error) error {
	if len(batch) == 0 {
		return nil
	}
	for _, m := range batch {
		if !m.Sealed() {
			f.bus.stats.unsealed.WithLabelValues(f.stream).Inc()
		}
	}
	newest := batch[len(batch)-1]
	sequence, sum := newest.Sequence, newest.Get(events.HeaderSum) // the handler owns the batch
	if err := handle(batch); err != nil {
		return &handlerError{err}
	}
	f.next, f.last, f.read = sequence+1, sum, true
	return nil
}

// withoutRead is a batch without the messages that the handler received in an earlier session.
func (f *follower) withoutRead(batch []events.Message) []events.Message {
	for len(batch) > 0 && batch[0].Sequence < f.next {
		batch = batch[1:]
	}
	return batch
}

// open creates a consumer for the rest of the stream, and then checks that the stream is still
// the one that was read so far. In this order the consumer belongs to the checked stream,
// because a stream that is recreated loses its consumers.
func (f *follower) open(ctx context.Context) (jetstream.Consumer, error) {
	order := consumerOrder{Stream: f.stream, From: f.next, Acks: f.processed != nil}
	if order.Acks {
		order.From = min(f.next, f.processed()+1)
	}
	source, err := f.bus.make.consumer(ctx, order)
	if err != nil {
		return nil, err
	}
	if err := f.check(ctx); err != nil {
		f.bus.make.leave(f.stream, source.CachedInfo().Name)
		return nil, err
	}
	return source, nil
}

// check looks the stream up at its leader; its error is that of same.
func (f *follower) check(ctx context.Context) error {
	lookup, done := context.WithTimeout(ctx, lookupTimeout)
	defer done()
	handle, err := f.bus.led(lookup, f.stream)
	if err != nil {
		return err
	}
	return f.sameStream(lookup, handle)
}

// sameStream returns ErrOvertaken when the stream was recreated, when its sequences went back, or
// when another message has the sequence of the last one read: then the server has lost messages
// that it had acknowledged, and has gone on without them.
func (f *follower) sameStream(ctx context.Context, handle jetstream.Stream) error {
	info := handle.CachedInfo()
	if f.created.IsZero() {
		f.created = info.Created
	}
	switch {
	case !info.Created.Equal(f.created):
		return fmt.Errorf("%w: the stream was made anew at %v", bus.ErrOvertaken, info.Created)
	case info.State.LastSeq+1 < f.next:
		return fmt.Errorf("%w: the stream ends at %d, before %d", bus.ErrOvertaken, info.State.LastSeq, f.next-1)
	case !f.read:
		return nil
	}
	m, err := handle.GetMsg(ctx, f.next-1)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil // coalesced away or expired since
	case err != nil:
		return err
	case m.Header.Get(events.HeaderSum) != f.last:
		return fmt.Errorf("%w: message %d had the checksum %q, and now there is another with %q", bus.ErrOvertaken, f.next-1, f.last, m.Header.Get(events.HeaderSum))
	}
	return nil
}

// prefetch takes messages from the client library's goroutine and keeps them until the handler is
// free. When it is full it blocks that goroutine.
type prefetch struct {
	stream string
	ready  chan struct{} // holds a token when take has something to return
	wakeAt int           // messages that are worth a wake-up, if the server has more

	mu         sync.Mutex
	spaceFree  sync.Cond
	batch      []events.Message
	size       int
	received   uint64 // the consumer's count of deliveries
	behind     uint64 // messages that the server has after the last received one
	err        error
	closed     bool
	onReceived func(sequence uint64, reply string) // may be nil
}

func newPrefetch(stream string) *prefetch {
	f := &prefetch{stream: stream, ready: make(chan struct{}, 1)}
	f.spaceFree.L = &f.mu
	return f
}

func (f *prefetch) receive(m jetstream.Msg) {
	p, err := deliveryPositionOf(m.Reply())
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
	case p.delivery != f.received+1:
		f.err = fmt.Errorf("%w: delivery %d after %d", errMayHaveMissed, p.delivery, f.received)
	default:
		if f.received++; f.onReceived != nil {
			f.onReceived(p.sequence, m.Reply())
		}
		f.batch = append(f.batch, delivered(f.stream, m, p))
		f.size += len(m.Data())
		f.behind = p.pending
		if len(f.batch) < f.wakeAt && f.size < heldBytes && p.pending > 0 {
			return
		}
	}
	f.signal()
}

func (f *prefetch) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.signal()
}

func (f *prefetch) signal() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// take returns all received messages, how many more the server has, and the error that followed
// them.
func (f *prefetch) take() (batch []events.Message, behind uint64, err error) {
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

func (f *prefetch) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.spaceFree.Broadcast()
}
