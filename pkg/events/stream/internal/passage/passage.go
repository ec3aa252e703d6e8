package passage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// Reader reads passages of streams.
type Reader struct {
	on      *conn.Conn
	by      conn.ConsumerMaker
	backups bool
	// mayNotBackUp is set when the server has refused the right to backups.
	mayNotBackUp atomic.Bool
}

// New reads through a connection, with consumers that by creates; backups allows it to read from backups.
func New(on *conn.Conn, by conn.ConsumerMaker, backups bool) *Reader {
	return &Reader{on: on, by: by, backups: backups}
}

// Read hands over a passage, up to its To, of a stream in a state; see [bus.Archive].
func (r *Reader) Read(ctx context.Context, p bus.Passage, at bus.State, handle func([]events.Message) error) error {
	one := &read{Reader: r, Passage: p, handle: handle}
	return one.run(ctx, at)
}

func (r *read) run(ctx context.Context, at bus.State) error {
	if r.backedUp(at) {
		err := r.backup(ctx)
		if over, err := r.finished(ctx, err); over {
			return err
		}
		r.noBackup(err)
	}
	for attempt := 0; ; attempt++ {
		before := r.From
		err := r.session(ctx)
		if over, err := r.finished(ctx, err); over {
			return err
		}
		if natserr.IsPermanent(err) || attempt == readAttempts {
			return fmt.Errorf("read %s: %w", r.Stream, err)
		}
		if r.From != before {
			attempt = 0
		}
		natserr.Pause(ctx, attempt)
	}
}

// finished reports whether the read is complete, and its result: all was read, the handler returned
// an error, or the caller's context has ended.
func (r *read) finished(ctx context.Context, err error) (over bool, result error) {
	var own *delivery.HandlerError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &own):
		return true, own.Err
	case ctx.Err() != nil:
		return true, fmt.Errorf("read %s: %w", r.Stream, ctx.Err())
	}
	return false, nil
}

const (
	// readAttempts bounds how often in a row a read starts a new session without progress.
	readAttempts = 3
	// readStuck is how long the server may deliver nothing although it says that it has
	// messages.
	readStuck = 5 * time.Second
	// readBatch is how many messages the handler gets at a time, if there are more.
	readBatch = 512
)

// read is one read. Each session has its own consumer, and goes on where the session before
// ended.
type read struct {
	*Reader
	bus.Passage
	handle func([]events.Message) error
	// stuckAt is the sequence at which an earlier session timed out; 0: none did.
	stuckAt uint64
}

func (r *read) session(ctx context.Context) error {
	if r.From > r.To {
		return nil
	}
	request, done := r.on.Guarded(ctx, r.Stream)
	defer done()
	source, err := r.by.Consumer(request, r.consumer())
	if err != nil {
		return natserr.Translate(request, err)
	}
	info := source.CachedInfo()
	defer r.by.Leave(r.Stream, info.Name)
	if info.NumPending == 0 {
		return nil
	}
	feed := delivery.NewPrefetch(r.Stream)
	feed.WakeAt = int(min(readBatch, r.To-max(r.From, 1)+1))
	consuming, err := source.Consume(feed.Receive, r.on.Intervals.Pulling(feed)...)
	if err != nil {
		return natserr.Translate(request, err)
	}
	defer consuming.Stop()
	defer feed.Close()
	return r.consume(request, feed)
}

func (r *read) consumer() settings.Consumer {
	c := settings.Consumer{Stream: r.Stream, Subject: r.Subject, HeadersOnly: r.HeadersOnly, From: r.From}
	if r.From == 0 && !r.Since.IsZero() {
		c.Since = &r.Since
	}
	return c
}

// consume takes messages until the end of the passage.
func (r *read) consume(ctx context.Context, feed *delivery.Prefetch) error {
	patience := time.NewTimer(readStuck)
	defer patience.Stop()
	for {
		waited := false
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.on.Closed():
			return bus.ErrClosed
		case <-patience.C:
			waited = true
		case <-feed.Ready:
		}
		batch, behind, broken := feed.Take()
		over, err := r.deliver(batch)
		switch {
		case err != nil, over:
			return err
		case broken != nil:
			return natserr.Translate(ctx, broken)
		case len(batch) > 0 && behind == 0:
			return nil
		case len(batch) == 0 && waited:
			return r.stuckError()
		}
		patience.Reset(readStuck)
	}
}

// stuckError is the error of a session that gets no messages. A server that stalls for a while looks
// like one that cannot read its messages; stuckError reports damage only when a second session gets
// no further.
func (r *read) stuckError() error {
	at := max(r.From, 1)
	if r.stuckAt == at {
		return fmt.Errorf("%w: the server has more messages from %d on and does not deliver them", events.ErrDamaged, r.From)
	}
	r.stuckAt = at
	return fmt.Errorf("nothing came for %v", readStuck)
}

// deliver gives the handler the messages of a batch that belong to the passage; over reports whether
// the passage is complete.
func (r *read) deliver(batch []events.Message) (over bool, err error) {
	n := len(batch)
	for n > 0 && batch[n-1].Sequence > r.To {
		n--
	}
	over = n < len(batch) || n > 0 && batch[n-1].Sequence == r.To
	if n == 0 {
		return over, nil
	}
	next := batch[n-1].Sequence + 1
	if err := r.handle(batch[:n]); err != nil {
		return false, &delivery.HandlerError{Err: err}
	}
	r.From = next
	return over, nil
}
