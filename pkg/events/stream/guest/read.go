package guest

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// A guest reads, and may not create a consumer: the creator of one can have the server send
// stored messages to any subject, even to a subject of a stream. So a guest gets messages one
// by one, many at a time.

// Source reads single messages of streams; it is part of [bus.Archive].
type Source interface {
	// StreamState is the state of a stream.
	StreamState(ctx context.Context, stream string) (bus.State, error)
	// At is the message at a sequence.
	At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error)
	// Next is the first message of a subject, which may be a filter, from a sequence on.
	Next(ctx context.Context, stream, subject string, from uint64) (events.Message, bool, error)
}

// Reader reads streams without consumers.
type Reader struct {
	Source Source
	// Subscribe calls hear for each message that is published on a subject, until stop is called; on an empty
	// subject it hears nothing. The context ends, with the reason as its cause, if the server forbids it.
	Subscribe func(ctx context.Context, subject string, hear func()) (life context.Context, stop func(), err error)
	// MayHaveMissed is a channel that is closed when messages may have been missed from now on, and Closed one
	// that is closed with the connection.
	MayHaveMissed func() <-chan struct{}
	Closed        <-chan struct{}
	// Imported reports whether the streams are those of another account.
	Imported bool
}

// maxGuestGets is how many messages a guest requests at a time.
const maxGuestGets = 128

// Read hands over the passage up to the sequence p.To, as [bus.Archive] does. It returns bodies even with
// HeadersOnly.
//
// Errors: those of the source and of handle.
func (r *Reader) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	from := max(p.From, 1)
	if p.From == 0 && !p.Since.IsZero() {
		var err error
		if from, err = r.firstSince(ctx, p); err != nil {
			return err
		}
	}
	filter := p.Subject
	if filter == "" {
		filter = ">"
	}
	for from <= p.To {
		m, there, err := r.Source.Next(ctx, p.Stream, filter, from)
		if err != nil || !there || m.Sequence > p.To {
			return err
		}
		batch := []events.Message{m}
		if p.Subject == "" {
			if batch, err = r.readRun(ctx, batch, p.To); err != nil {
				return err
			}
		}
		from = batch[len(batch)-1].Sequence + 1
		if err := handle(batch); err != nil {
			return err
		}
	}
	return nil
}

// readRun appends the messages that follow a batch's first one.
func (r *Reader) readRun(ctx context.Context, batch []events.Message, to uint64) ([]events.Message, error) {
	first := batch[0]
	n := min(maxGuestGets, to-first.Sequence)
	found, there, errs := make([]events.Message, n), make([]bool, n), make([]error, n)
	var asking sync.WaitGroup
	for i := range n {
		asking.Go(func() { found[i], there[i], errs[i] = r.Source.At(ctx, first.Stream, first.Sequence+1+i) })
	}
	asking.Wait()
	for i := range n {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if there[i] {
			batch = append(batch, found[i])
		}
	}
	return batch, nil
}

// firstSince is the sequence of the first message that was stored at the time p.Since or later.
func (r *Reader) firstSince(ctx context.Context, p bus.Passage) (uint64, error) {
	at, err := r.Source.StreamState(ctx, p.Stream)
	if err != nil {
		return 0, err
	}
	low, high := at.First, at.Last+1
	for low < high {
		middle := low + (high-low)/2
		m, there, err := r.Source.Next(ctx, p.Stream, ">", middle)
		switch {
		case err != nil:
			return 0, err
		case !there || !m.Time.Before(p.Since):
			high = middle
		default:
			low = m.Sequence + 1
		}
	}
	return low, nil
}

// Follow reads a stream in order and goes on for ever, as [bus.Reader] does.
//
// Errors: those of the source and of handle; the stream was made anew ([bus.ErrOvertaken]); the server forbids to
// hear what is published. The end of the context is no error.
func (r *Reader) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	ear, err := r.listen(ctx, stream)
	if err != nil {
		return fmt.Errorf("follow %s: %w", stream, err)
	}
	defer ear.stop()
	var before bus.State
	var refused error // by the handler
	for next := max(from, 1); ; {
		shaken := r.MayHaveMissed()
		now, err := r.Source.StreamState(ctx, stream)
		if err == nil && !before.Created.IsZero() && (!now.Created.Equal(before.Created) || now.Last < before.Last) {
			err = fmt.Errorf("it was made anew, or has lost its end: %w", bus.ErrOvertaken)
		}
		some := err == nil && now.Last >= next
		if some {
			err = r.Read(ctx, bus.Passage{Stream: stream, From: next, To: now.Last}, func(batch []events.Message) error {
				next = batch[len(batch)-1].Sequence + 1
				refused = handle(batch)
				return refused
			})
			next = max(next, now.Last+1)
		}
		if ctx.Err() != nil {
			return nil
		}
		if refused != nil {
			return refused
		}
		if err == nil {
			ear.found(int(now.Last - before.Last))
			before = now
			err = ear.wait(ctx, shaken, some)
		}
		if err != nil {
			return fmt.Errorf("follow %s: %w", stream, err)
		}
	}
}
