package watcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

const (
	// mirrorPoll is how often a state stream is asked whether it has caught up.
	mirrorPoll = 50 * time.Millisecond
	// mirrorPatience is how long it may stand still before that is an error.
	mirrorPatience = 20 * time.Second
)

// errEnough ends the reading of a stream.
var errEnough = errors.New("enough")

// caughtUp waits until the state stream holds the log up to a sequence.
func caughtUp(ctx context.Context, b bus.Bus, kind kinds.Name, sequence uint64) (state bus.State, err error) {
	moved, at := time.Now(), uint64(0)
	for {
		if state, err = b.StreamState(ctx, subject.StateStream(kind)); err != nil {
			return state, fmt.Errorf("look at the state of %s: %w", kind, err)
		}
		switch {
		case state.Last >= sequence:
			return state, nil
		case state.Last != at:
			moved, at = time.Now(), state.Last
		case time.Since(moved) > mirrorPatience:
			return state, fmt.Errorf("the state of %s has stood still at message %d of %d for %v", kind, at, sequence, mirrorPatience)
		}
		pause(ctx, mirrorPoll)
		if err := ctx.Err(); err != nil {
			return state, err
		}
	}
}

// readState folds the state stream, which has to hold the log up to a sequence.
func readState(ctx context.Context, b bus.Bus, kind kinds.Name, sequence uint64) (*translate.State, error) {
	state := translate.NewState()
	stream, err := caughtUp(ctx, b, kind, sequence)
	if err != nil {
		return nil, err
	}
	err = replay(ctx, b, kind, stream, func(d events.Delta, m events.Message) error {
		state.Fold(d, m.Sequence)
		return nil
	})
	return state, err
}

// replay hands over what a state stream held when it was looked at. What
// expires meanwhile, tombstones and marks, never comes: the stream itself is
// asked again whether there is something to wait for.
func replay(ctx context.Context, b bus.Bus, kind kinds.Name, at bus.State, handle func(events.Delta, events.Message) error) error {
	if at.Messages == 0 {
		return nil
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	batches, failed := make(chan []events.Message), make(chan error, 1)
	go func() {
		failed <- b.Follow(reading, subject.StateStream(kind), 1, func(batch []events.Message) error {
			select {
			case batches <- batch:
				return nil
			case <-reading.Done():
				return errEnough
			}
		})
	}()
	poll := time.NewTicker(mirrorPoll)
	defer poll.Stop()
	moved := time.Now()
	for got := uint64(0); got < at.Messages; {
		select {
		case batch := <-batches:
			moved = time.Now()
			for _, m := range batch {
				if m.Sequence > at.Last {
					return nil
				}
				d, err := decode(m)
				if err == nil {
					err = handle(d, m)
				}
				if err != nil {
					return err
				}
				if got++; m.Sequence == at.Last {
					return nil
				}
			}
		case <-poll.C:
			now, err := b.StreamState(ctx, subject.StateStream(kind))
			if err != nil {
				return fmt.Errorf("look at the state of %s: %w", kind, err)
			}
			at.Messages = min(at.Messages, now.Messages)
			if time.Since(moved) > mirrorPatience && got < at.Messages {
				return fmt.Errorf("read the state of %s: nothing came for %v after %d of %d messages", kind, mirrorPatience, got, at.Messages)
			}
		case err := <-failed:
			return errors.Join(fmt.Errorf("read the state of %s: interrupted", kind), err)
		}
	}
	return nil
}

func decode(m events.Message) (events.Delta, error) {
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return events.Delta{}, err
	}
	return events.DecodeDelta(ref, m)
}

// stored is the delta at a sequence of the state stream.
func stored(ctx context.Context, b bus.Bus, stream string, sequence uint64) (events.Delta, bool, error) {
	m, there, err := b.At(ctx, stream, sequence)
	if err != nil || !there {
		return events.Delta{}, false, err
	}
	d, err := decode(m)
	return d, err == nil, err
}
