package stream

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

// maxGuestGets is how many messages a guest requests at a time.
const maxGuestGets = 128

// guestRead is [Bus.Read] of a guest. It returns bodies even with HeadersOnly.
func (b *Bus) guestRead(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	from := max(p.From, 1)
	if p.From == 0 && !p.Since.IsZero() {
		var err error
		if from, err = b.firstSince(ctx, p); err != nil {
			return err
		}
	}
	filter := p.Subject
	if filter == "" {
		filter = ">"
	}
	for from <= p.To {
		m, there, err := b.Next(ctx, p.Stream, filter, from)
		if err != nil || !there || m.Sequence > p.To {
			return err
		}
		batch := []events.Message{m}
		if p.Subject == "" {
			if batch, err = b.readRun(ctx, batch, p.To); err != nil {
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
func (b *Bus) readRun(ctx context.Context, batch []events.Message, to uint64) ([]events.Message, error) {
	first := batch[0]
	n := min(maxGuestGets, to-first.Sequence)
	found, there, errs := make([]events.Message, n), make([]bool, n), make([]error, n)
	var asking sync.WaitGroup
	for i := range n {
		asking.Go(func() { found[i], there[i], errs[i] = b.At(ctx, first.Stream, first.Sequence+1+i) })
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
func (b *Bus) firstSince(ctx context.Context, p bus.Passage) (uint64, error) {
	at, err := b.StreamState(ctx, p.Stream)
	if err != nil {
		return 0, err
	}
	low, high := at.First, at.Last+1
	for low < high {
		middle := low + (high-low)/2
		m, there, err := b.Next(ctx, p.Stream, ">", middle)
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

// guestFollow is [Bus.Follow] of a guest.
func (b *Bus) guestFollow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	ear, err := b.listen(ctx, stream)
	if err != nil {
		return fmt.Errorf("follow %s: %w", stream, err)
	}
	defer ear.close()
	var before bus.State
	for next := max(from, 1); ; {
		shaken := b.onMayHaveMissed()
		now, err := b.StreamState(ctx, stream)
		if err == nil && !before.Created.IsZero() && (!now.Created.Equal(before.Created) || now.Last < before.Last) {
			err = fmt.Errorf("it was made anew, or has lost its end: %w", bus.ErrOvertaken)
		}
		some := err == nil && now.Last >= next
		if some {
			err = b.guestRead(ctx, bus.Passage{Stream: stream, From: next, To: now.Last}, func(batch []events.Message) error {
				next = batch[len(batch)-1].Sequence + 1
				if err := handle(batch); err != nil {
					return &handlerError{err}
				}
				return nil
			})
			next = max(next, now.Last+1)
		}
		if ctx.Err() != nil {
			return nil
		}
		if own, ok := err.(*handlerError); ok {
			return own.err
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
