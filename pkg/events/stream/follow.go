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
	// pullMessages and pullBytes bound one request for messages. The bytes keep
	// large objects from overrunning what client and server buffer.
	pullMessages = 2000
	pullBytes    = 16 << 20
	// heldMessages and heldBytes bound what waits for the handler.
	heldMessages = 4000
	heldBytes    = 32 << 20
	// readerIdle is when the server removes the consumer of a reader that died.
	readerIdle = time.Minute
	// stuckPoll is how long nothing comes to a reader before the server is asked
	// whether it still has something, and stuckPolls how often in a row it may say so in a
	// session. Where it has nothing it is asked less and less often (rhythm.resting):
	// it is old messages that it cannot read, which are waited for from the beginning.
	stuckPoll  = 2 * time.Second
	stuckPolls = 2
)

// errShaken ends a session after which deliveries may be missing.
var errShaken = errors.New("deliveries may have been lost")

// follower is one call of Follow. Each session has a consumer of its own; what
// a session had received and not handed over is read again by the next.
type follower struct {
	bus     *Bus
	stream  string
	next    uint64    // the lowest sequence that the handler has not had
	last    time.Time // when the message before next was stored
	read    bool      // next is behind a message that has been read
	created time.Time // when the stream was made, as of the first session
	stuckAt uint64    // what a session before waited for without result; 0: none did

	dealt func() uint64 // see [bus.Queue]; nil: nothing is acknowledged
	acks  acks
}

// Follow reads a stream in order and goes on for ever; see [bus.Reader].
func (b *Bus) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	if b.options.Guest {
		return b.guestFollow(ctx, stream, from, handle)
	}
	return b.follow(ctx, &follower{bus: b, stream: stream, next: max(from, 1)}, handle)
}

// Consume is Follow that acknowledges what has been dealt with; see [bus.Queue].
func (b *Bus) Consume(ctx context.Context, stream string, from uint64, dealt func() uint64, handle func([]events.Message) error) error {
	if b.options.Guest {
		return b.guestFollow(ctx, stream, from, handle) // guests have no consumers
	}
	return b.follow(ctx, &follower{bus: b, stream: stream, next: max(from, 1), dealt: dealt}, handle)
}

func (b *Bus) follow(ctx context.Context, f *follower, handle func([]events.Message) error) error {
	stream := f.stream
	for attempt := 0; ; attempt++ {
		before := f.next
		err := f.session(ctx, handle)
		b.listing.drop() // the stream may be another one by now
		var own *handlerError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &own):
			return own.err
		case final(err):
			return fmt.Errorf("follow %s: %w", stream, err)
		}
		if f.next != before {
			attempt = 0
		}
		b.stats.restarts.WithLabelValues(stream).Inc()
		b.options.Log.Debug("reading a stream anew", "stream", stream, "from", f.next, "because", err)
		pause(ctx, attempt)
	}
}

// handlerError is an error that the caller gave us, to be given back as it is.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }

func (f *follower) session(ctx context.Context, handle func([]events.Message) error) error {
	// Before anything is asked, so that no disturbance is missed.
	shaken := f.bus.whenShaken()
	request, done := f.bus.guarded(ctx, f.stream)
	defer done()
	source, err := f.open(request)
	if err != nil {
		return translated(request, err)
	}
	feed := newFeed(f.stream)
	if f.dealt != nil {
		feed.got = f.acks.add
	}
	consuming, err := source.Consume(feed.receive, f.bus.pulling(feed)...)
	if err != nil {
		return translated(request, err)
	}
	defer f.leave(ctx, source.CachedInfo().Name)
	defer consuming.Stop()
	defer feed.close()
	idle := time.NewTimer(stuckPoll)
	defer idle.Stop()
	acking, done := f.acking()
	defer done()
	for stuck, rest := 0, stuckPoll; ; {
		select {
		case <-acking:
			f.acknowledge()
			continue
		case <-idle.C:
			if stuck, err = f.stuck(request, source, stuck); err != nil {
				return translated(request, err)
			}
			if rest = min(2*rest, f.bus.options.rhythm().resting); stuck > 0 {
				rest = stuckPoll
			}
			idle.Reset(rest)
			continue
		case <-request.Done():
			return context.Cause(request)
		case <-f.bus.closed:
			return bus.ErrClosed
		case <-shaken:
			return errShaken
		case <-feed.ready:
		}
		batch, _, err := feed.take()
		stuck, rest = 0, stuckPoll
		idle.Reset(rest)
		if err := f.hand(f.fresh(batch), handle); err != nil {
			return err
		}
		if err != nil {
			return translated(request, err)
		}
	}
}

// pulling is how a reader asks for messages.
func (b *Bus) pulling(feed *feed) []jetstream.PullConsumeOpt {
	rhythm := b.options.rhythm()
	return []jetstream.PullConsumeOpt{
		jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes),
		jetstream.PullHeartbeat(rhythm.heartbeat), jetstream.PullExpiry(max(rhythm.asking, jetstream.DefaultExpires)),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { feed.fail(err) }),
	}
}

// stuck counts how often in a row the server had something and nothing came. A
// server that cannot read a block of messages does not go past it, and says
// so only in its log. A session that only lost its request is begun anew.
func (f *follower) stuck(ctx context.Context, source jetstream.Consumer, before int) (int, error) {
	info, err := source.Info(ctx)
	switch {
	case err != nil:
		return 0, err
	case info.NumPending == 0:
		return 0, nil
	case before+1 < stuckPolls:
		return before + 1, nil
	case f.stuckAt != f.next:
		f.stuckAt = f.next
		return 0, errShaken
	}
	return 0, fmt.Errorf("%w: the server has %d messages from %d on and does not deliver them", events.ErrDamaged, info.NumPending, f.next)
}

func (f *follower) hand(batch []events.Message, handle func([]events.Message) error) error {
	if len(batch) == 0 {
		return nil
	}
	for _, m := range batch {
		if !m.Sealed() {
			f.bus.stats.unsealed.WithLabelValues(f.stream).Inc()
		}
	}
	newest := batch[len(batch)-1]
	sequence, at := newest.Sequence, newest.Time // the handler owns the batch
	if err := handle(batch); err != nil {
		return &handlerError{err}
	}
	f.next, f.last, f.read = sequence+1, at, true
	return nil
}

// fresh is a batch without what the handler has had in a session before.
func (f *follower) fresh(batch []events.Message) []events.Message {
	for len(batch) > 0 && batch[0].Sequence < f.next {
		batch = batch[1:]
	}
	return batch
}

// open makes a consumer for the rest of the stream, and then checks that the stream still is
// the one that was read so far: one that is made anew takes its consumers with it, so that
// the consumer is one of the stream that was checked.
func (f *follower) open(ctx context.Context) (jetstream.Consumer, error) {
	order := consumerOrder{Stream: f.stream, From: f.next, Acks: f.dealt != nil}
	if order.Acks {
		order.From = min(f.next, f.dealt()+1)
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

// check looks the stream up at its leader, and is the error of same.
func (f *follower) check(ctx context.Context) error {
	lookup, done := context.WithTimeout(ctx, lookupPatience)
	defer done()
	handle, err := f.bus.led(lookup, f.stream)
	if err != nil {
		return err
	}
	return f.same(lookup, handle)
}

// same is ErrOvertaken when the stream was made anew, when its sequences went
// back, or when another message stands where the last one read was: then the
// server has lost what it had acknowledged, and has gone on without it.
func (f *follower) same(ctx context.Context, handle jetstream.Stream) error {
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
	case !m.Time.Equal(f.last):
		return fmt.Errorf("%w: message %d was stored at %v, and now another at %v", bus.ErrOvertaken, f.next-1, f.last, m.Time)
	}
	return nil
}

// feed takes messages from the client library's goroutine and keeps them until
// the handler is free; when it is full it holds that goroutine back.
type feed struct {
	stream string
	ready  chan struct{} // holds a token when there is something to take
	enough int           // messages that are worth taking, where the server has more

	mu       sync.Mutex
	room     sync.Cond
	batch    []events.Message
	size     int
	received uint64 // the consumer's count of deliveries
	behind   uint64 // messages behind the last one that was received
	err      error
	closed   bool
	got      func(sequence uint64, reply string) // may be nil
}

func newFeed(stream string) *feed {
	f := &feed{stream: stream, ready: make(chan struct{}, 1)}
	f.room.L = &f.mu
	return f
}

func (f *feed) receive(m jetstream.Msg) {
	p, err := placeOf(m.Reply())
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.closed && (len(f.batch) >= heldMessages || f.size >= heldBytes) {
		f.room.Wait()
	}
	switch {
	case f.closed || f.err != nil:
		return
	case err != nil:
		f.err = err
	case p.delivery != f.received+1:
		f.err = fmt.Errorf("%w: delivery %d after %d", errShaken, p.delivery, f.received)
	default:
		if f.received++; f.got != nil {
			f.got(p.sequence, m.Reply())
		}
		f.batch = append(f.batch, delivered(f.stream, m, p))
		f.size += len(m.Data())
		f.behind = p.pending
		if len(f.batch) < f.enough && f.size < heldBytes && p.pending > 0 {
			return
		}
	}
	f.signal()
}

func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.signal()
}

func (f *feed) signal() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// take gives all messages that have come, how many the server has behind them, and the
// error after them.
func (f *feed) take() (batch []events.Message, behind uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	batch = f.batch
	f.batch, f.size = nil, 0
	if n := len(batch); n > 0 && f.err == nil {
		// The next batch is likely to be as large.
		f.batch = make([]events.Message, 0, min(n, pullMessages))
	}
	f.room.Broadcast()
	return batch, f.behind, f.err
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.room.Broadcast()
}
