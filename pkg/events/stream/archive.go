package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/subject"
)

var _ bus.Archive = (*Bus)(nil)

// Controllers are the controllers whose turns are kept; see [bus.Archive].
func (b *Bus) Controllers(ctx context.Context) ([]string, error) {
	return b.named(ctx, "turn.>", subject.TurnStream(""))
}

// Shadows are the controllers whose shadows are kept; see [bus.Archive].
func (b *Bus) Shadows(ctx context.Context) ([]string, error) {
	return b.named(ctx, "shadow.>", subject.ShadowStream(""))
}

// named lists the streams with a filter, and returns the part of their names that follows the
// prefix.
func (b *Bus) named(ctx context.Context, subjects, prefix string) ([]string, error) {
	request, done := b.guarded(ctx, "STREAM.NAMES")
	defer done()
	var found []string
	names := b.js.StreamNames(request, jetstream.WithStreamListSubject(subjects))
	for name := range names.Name() {
		if controller, ours := strings.CutPrefix(name, prefix); ours {
			found = append(found, controller)
		}
	}
	if err := natserr.Translate(request, names.Err()); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	slices.Sort(found)
	return found, nil
}

// Consumers are the durable consumers of a stream; see [bus.Archive].
func (b *Bus) Consumers(ctx context.Context, stream string) ([]bus.Consumer, error) {
	handle, err := b.handle(ctx, stream)
	if err != nil {
		return nil, err
	}
	request, done := b.guarded(ctx, stream)
	defer done()
	var found []bus.Consumer
	list := handle.ListConsumers(request)
	for info := range list.Info() {
		if info.Config.Durable == "" {
			continue
		}
		c := bus.Consumer{
			Name: info.Name, Answered: info.AckFloor.Stream,
			Unanswered: info.NumAckPending, Pending: int(info.NumPending), Again: info.NumRedelivered,
			Ended: hasEndedReader(info),
		}
		if info.Delivered.Last != nil {
			c.Active = *info.Delivered.Last
		}
		found = append(found, c)
	}
	if err := natserr.Translate(request, list.Err()); err != nil {
		return nil, fmt.Errorf("list the consumers of %s: %w", stream, err)
	}
	slices.SortFunc(found, func(a, b bus.Consumer) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// Next is the first message of a subject from a sequence on; see [bus.Archive].
func (b *Bus) Next(ctx context.Context, stream, subject string, from uint64) (events.Message, bool, error) {
	return b.get(ctx, stream, func(ctx context.Context, s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, max(from, 1), jetstream.WithGetMsgSubject(subject))
	})
}

// Read hands over a passage of a stream; see [bus.Archive].
func (b *Bus) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	at, err := b.StreamState(ctx, p.Stream)
	if err != nil {
		return err
	}
	if p.To == 0 || p.To > at.Last {
		p.To = at.Last
	}
	if b.options.Guest {
		return b.guest().Read(ctx, p, handle)
	}
	r := &read{bus: b, Passage: p, handle: handle}
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
			return fmt.Errorf("read %s: %w", p.Stream, err)
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
	var own *handlerError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &own):
		return true, own.err
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
	bus *Bus
	bus.Passage
	handle func([]events.Message) error
	// stuckAt is the sequence at which an earlier session timed out; 0: none did.
	stuckAt uint64
}

func (r *read) session(ctx context.Context) error {
	if r.From > r.To {
		return nil
	}
	request, done := r.bus.guarded(ctx, r.Stream)
	defer done()
	source, err := r.bus.make.consumer(request, r.consumer())
	if err != nil {
		return natserr.Translate(request, err)
	}
	info := source.CachedInfo()
	defer r.bus.make.leave(r.Stream, info.Name)
	if info.NumPending == 0 {
		return nil
	}
	feed := delivery.NewPrefetch(r.Stream)
	feed.WakeAt = int(min(readBatch, r.To-max(r.From, 1)+1))
	consuming, err := source.Consume(feed.Receive, r.bus.options.intervals().pulling(feed)...)
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
		case <-r.bus.closed:
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
// like one that cannot read its messages; stuck reports damage only when a second session gets
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
		return false, &handlerError{err}
	}
	r.From = next
	return over, nil
}
