package kindlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// readPoll is the interval at which a reader of the log asks whether there is more to read.
	readPoll = 50 * time.Millisecond
	// readPatience is how long nothing may come before that is an error.
	readPatience = 20 * time.Second
)

// errEnough stops the read of a stream.
var errEnough = errors.New("enough")

// quietTime is how long nothing has arrived while this process was able to receive: what was sent
// while the process was stopped, or while the bus was unreachable, is still to arrive.
type quietTime struct {
	total   time.Duration
	lastRan time.Time // the last moment at which this process ran
}

// maxElapsed bounds the time that one call of elapsed adds; calls come every [readPoll].
const maxElapsed = time.Second

// elapsed returns how long the silence has lasted by now.
func (s *quietTime) elapsed(now time.Time) time.Duration {
	s.total, s.lastRan = s.total+min(now.Sub(s.lastRan), maxElapsed), now
	return s.total
}

// Replay hands over the messages that the log of a kind held, from a message on, when it was in
// state at. Marks that expire meanwhile never arrive, so Replay asks the stream again and again whether
// there is still a message to wait for.
//
// Errors: that of handle; events.ErrDamaged, when nothing comes although there is more.
func Replay(ctx context.Context, b bus.Bus, kind kinds.Name, from uint64, at bus.State, handle func(events.Message) error) error {
	stream := subject.LogStream(kind)
	if at.Messages == 0 || at.Last < from {
		return nil
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	batches, failed := make(chan []events.Message), make(chan error, 1)
	go func() {
		failed <- b.Follow(reading, stream, max(from, 1), func(batch []events.Message) error {
			select {
			case batches <- batch:
				return nil
			case <-reading.Done():
				return errEnough
			}
		})
	}()
	poll := time.NewTicker(readPoll)
	defer poll.Stop()
	still, read := quietTime{lastRan: time.Now()}, max(from, 1)-1
	for got := uint64(0); got < at.Messages && read < at.Last; {
		select {
		case batch := <-batches:
			still = quietTime{lastRan: time.Now()}
			for _, m := range batch {
				if m.Sequence > at.Last {
					return nil
				}
				if err := handle(m); err != nil {
					return err
				}
				got, read = got+1, m.Sequence
			}
		case <-poll.C:
			if err := left(ctx, b, stream, from, read, &at); err != nil {
				return err
			}
			if still.elapsed(time.Now()) > readPatience && got < at.Messages && read < at.Last {
				return fmt.Errorf("%w: of %s nothing came for %v behind message %d of %d", events.ErrDamaged, stream, readPatience, read, at.Last)
			}
		case err := <-failed:
			return fmt.Errorf("read %s: interrupted: %w", stream, cmp.Or(err, ctx.Err(), errEnough))
		}
	}
	return nil
}

// left updates how many messages the stream still holds. A reader that begins at a later message
// than the first cannot go by that number; for it, left moves the end back to the last message that
// still exists.
func left(ctx context.Context, b bus.Bus, stream string, from, read uint64, at *bus.State) error {
	now, err := b.StreamState(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at %s: %w", stream, err)
	}
	at.Messages = min(at.Messages, now.Messages)
	for range Depth {
		if from <= 1 || at.Last <= read {
			return nil
		}
		if _, there, err := b.At(ctx, stream, at.Last); err != nil || there {
			return err
		}
		at.Last--
	}
	return nil
}
