package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

const (
	// stuckPoll is after how long without messages a reader asks the server whether it still
	// has some, and stuckPolls how often in a row the server may say so in a session. While the
	// server has none, the reader asks less and less often ([conn.Intervals].ConsumerChecksIdle): the server fails
	// to read old messages, and a reader waits for those from the beginning.
	stuckPoll  = 2 * time.Second
	stuckPolls = 2
)

// Reader follows streams.
type Reader struct {
	on *conn.Conn
	by conn.ConsumerMaker
	// recreated is called when a session has ended, since the stream may have been recreated.
	recreated func()
}

// New reads through a connection, with consumers that by creates. It calls recreated when a stream may have been
// recreated.
func New(on *conn.Conn, by conn.ConsumerMaker, recreated func()) *Reader {
	return &Reader{on: on, by: by, recreated: recreated}
}

// Follow reads a stream in order and goes on for ever; see [bus.Reader].
func (r *Reader) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	f := &follower{Reader: r, stream: stream, next: max(from, 1)}
	return f.follow(ctx, handle)
}

// Consume is Follow with acknowledgements of the messages that were dealt with; see
// [bus.Queue].
func (r *Reader) Consume(ctx context.Context, stream string, from uint64, dealt func() uint64, handle func([]events.Message) error) error {
	f := &follower{Reader: r, stream: stream, next: max(from, 1), processed: dealt}
	return f.follow(ctx, handle)
}

// follower is one call of [Reader.Follow] or [Reader.Consume]. Each session has its own consumer. A session reads again what
// the session before received and did not hand over.
type follower struct {
	*Reader
	stream  string
	next    uint64    // the lowest sequence that the handler has not received
	last    string    // the checksum of the message before next
	read    bool      // the message before next has been read
	created time.Time // when the stream was created, as of the first session
	stuckAt uint64    // the sequence at which an earlier session was stuck; 0: none was

	processed func() uint64 // see [bus.Queue]; nil: nothing is acknowledged
	acks      delivery.Acks
}

func (f *follower) follow(ctx context.Context, handle func([]events.Message) error) error {
	stream := f.stream
	for attempt := 0; ; attempt++ {
		before := f.next
		err := f.session(ctx, handle)
		f.recreated() // the stream may have been recreated
		var own *delivery.HandlerError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &own):
			return own.Err
		case natserr.IsPermanent(err):
			return fmt.Errorf("follow %s: %w", stream, err)
		}
		if f.next != before {
			attempt = 0
		}
		f.on.Stats.Restarts.WithLabelValues(stream).Inc()
		f.on.Log.Debug("reading a stream again", "stream", stream, "from", f.next, "because", err)
		natserr.Pause(ctx, attempt)
	}
}

func (f *follower) session(ctx context.Context, handle func([]events.Message) error) error {
	// Before the first request, so that no disturbance is missed.
	shaken := f.on.MayHaveMissed()
	request, done := f.on.Guarded(ctx, f.stream)
	defer done()
	source, err := f.open(request)
	if err != nil {
		return natserr.Translate(request, err)
	}
	feed := delivery.NewPrefetch(f.stream)
	if f.processed != nil {
		feed.OnReceived = f.acks.Add
	}
	consuming, err := source.Consume(feed.Receive, f.on.Intervals.Pulling(feed)...)
	if err != nil {
		return natserr.Translate(request, err)
	}
	defer f.deleteConsumer(ctx, source.CachedInfo().Name)
	defer consuming.Stop()
	defer feed.Close()
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
		case <-f.on.Closed():
			return bus.ErrClosed
		case <-shaken:
			return delivery.ErrMayHaveMissed
		case <-feed.Ready:
			err = s.takeReceived(request)
		case <-s.local.Ready():
			err = s.takeLocal()
		}
		if err != nil {
			return natserr.Translate(request, err)
		}
	}
}

func (f *follower) deliver(batch []events.Message, handle func([]events.Message) error) error {
	if len(batch) == 0 {
		return nil
	}
	for _, m := range batch {
		if !m.Sealed() {
			f.on.Stats.Unsealed.WithLabelValues(f.stream).Inc()
		}
	}
	newest := batch[len(batch)-1]
	sequence, sum := newest.Sequence, newest.Get(events.HeaderSum) // the handler owns the batch
	if err := handle(batch); err != nil {
		return &delivery.HandlerError{Err: err}
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
	order := settings.Consumer{Stream: f.stream, From: f.next, Acks: f.processed != nil}
	if order.Acks {
		order.From = min(f.next, f.processed()+1)
	}
	source, err := f.by.Consumer(ctx, order)
	if err != nil {
		return nil, err
	}
	if err := f.check(ctx); err != nil {
		f.by.Leave(f.stream, source.CachedInfo().Name)
		return nil, err
	}
	return source, nil
}

// check looks the stream up at its leader; its error is that of same.
func (f *follower) check(ctx context.Context) error {
	lookup, done := context.WithTimeout(ctx, conn.LookupTimeout)
	defer done()
	handle, err := f.on.Led(lookup, f.stream)
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
