package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

const (
	// mirrorPoll is the interval at which the watcher asks whether a state stream has caught up.
	mirrorPoll = 50 * time.Millisecond
	// mirrorPatience is how long a state stream may stand still before that is an error.
	mirrorPatience = 20 * time.Second
)

// errEnough stops the read of a stream.
var errEnough = errors.New("enough")

// quietTime is how long nothing has arrived while this process was able to receive: what was sent
// while the process was stopped, or while the bus was unreachable, is still to arrive.
type quietTime struct {
	total   time.Duration
	lastRan time.Time // the last moment at which this process ran
}

// maxElapsed bounds the time that one call of elapsed adds; calls come every [mirrorPoll].
const maxElapsed = time.Second

// elapsed returns how long the silence has lasted by now.
func (s *quietTime) elapsed(now time.Time) time.Duration {
	s.total, s.lastRan = s.total+min(now.Sub(s.lastRan), maxElapsed), now
	return s.total
}

// caughtUp waits until the state stream holds the log up to a sequence.
func caughtUp(ctx context.Context, b bus.Bus, kind kinds.Name, sequence uint64) (state bus.State, err error) {
	still, at := quietTime{lastRan: time.Now()}, uint64(0)
	for {
		if state, err = b.StreamState(ctx, subject.StateStream(kind)); err != nil {
			return state, fmt.Errorf("look at the state of %s: %w", kind, err)
		}
		switch {
		case state.Last >= sequence:
			return state, nil
		case state.Last != at:
			still, at = quietTime{lastRan: time.Now()}, state.Last
		case still.elapsed(time.Now()) > mirrorPatience:
			return state, fmt.Errorf("%w: the state of %s has stood still at message %d of %d for %v", events.ErrDamaged, kind, at, sequence, mirrorPatience)
		}
		pause(ctx, mirrorPoll)
		if err := ctx.Err(); err != nil {
			return state, err
		}
	}
}

// stateContents is what a state stream holds of a kind.
type stateContents struct {
	state  *translate.State
	tally  events.Tally
	places places
	window translate.Window
	broken []events.Delta // the objects of damaged messages, as far as their subjects tell
	fresh  bool           // it holds nothing, because the stream was just created
}

// matches tells whether the contents certainly has a census.
func (h *stateContents) matches(census events.Census) bool {
	return !h.fresh && len(h.broken) == 0 && h.tally.Census() == census
}

// readState folds the state stream from a message on, once the stream holds the log up to a
// sequence. It leaves out damaged messages and lists their objects in broken.
//
// Errors: events.ErrDamaged, when the stream as a whole cannot be read.
func readState(ctx context.Context, b bus.Bus, kind kinds.Name, from, sequence uint64) (h stateContents, err error) {
	h.state, h.places = translate.NewState(), places{}
	stream, err := caughtUp(ctx, b, kind, sequence)
	if err != nil {
		return h, err
	}
	err = replay(ctx, b, subject.StateStream(kind), from, stream, func(m events.Message) error {
		d, err := decode(m)
		if err == nil || errors.Is(err, events.ErrDamaged) {
			h.window.Fold(d.Op, m.Sequence, m.Time)
		}
		if errors.Is(err, events.ErrDamaged) {
			if ref, err := subject.ParseDelta(m.Subject); err == nil && ref.Name != "" {
				uid := cmp.Or(m.Get(events.HeaderUID), "unknown")
				h.broken = append(h.broken, events.Delta{Kind: kind, Ref: ref, Op: events.Is, UID: types.UID(uid)})
			}
			return nil
		}
		if err != nil {
			return err
		}
		h.state.Fold(d, m.Sequence)
		h.tally.Fold(d)
		h.places.note(d.Op, m.Subject, m.Sequence)
		return nil
	})
	if h.window.Since() == 0 {
		h.window.Begin(stream.Last + 1)
	}
	return h, err
}

// readContents reads the state stream from a message on. It recreates a stream that cannot be read; the
// relist then records everything again.
func (k *kindWatch) readContents(ctx context.Context, from uint64) (stateContents, error) {
	if !k.recreateState {
		h, err := readState(ctx, k.bus, k.kind.Name, from, k.appender.Last())
		if !errors.Is(err, events.ErrDamaged) {
			k.places = h.places
			return h, err
		}
		k.markDamaged(klog.FromContext(ctx).WithValues("kind", k.kind.Name), events.Hole{Reason: err.Error()})
	}
	if err := k.flush(ctx); err != nil {
		return stateContents{}, err
	}
	if err := k.bus.RecreateState(ctx, k.kind); err != nil {
		return stateContents{}, err
	}
	made, err := k.bus.StreamState(ctx, subject.StateStream(k.kind.Name))
	if err != nil {
		return stateContents{}, fmt.Errorf("look at the state of %s: %w", k.kind.Name, err)
	}
	k.state, k.recreateState, k.stateRecreatedAt = made.Created, false, time.Now()
	k.places = nil // the log may have deltas of objects that are to be recorded again
	return stateContents{state: translate.NewState(), fresh: true}, nil
}

// knownPosition returns how far the kind has been watched, as far as that is known without its state: by this
// process, or by the end of the log. Of an epoch in which the log has nothing but what a relist recorded
// the version is unknown.
func (k *kindWatch) knownPosition(ctx context.Context) (translate.Cursor, error) {
	if k.cursor.Version != "" {
		return k.cursor, nil
	}
	past, last := k.cursor, k.appender.Last()
	for at := last; at > 0 && last-at < latestDepth; at-- {
		d, there, err := stored(ctx, k.bus, subject.LogStream(k.kind.Name), at)
		if err != nil && !errors.Is(err, events.ErrDamaged) {
			return past, err
		}
		if !there || err != nil {
			continue
		}
		past.Epoch = max(past.Epoch, d.Epoch)
		if d.ResourceVersion != "" && !d.Sync {
			if d.Epoch == past.Epoch {
				past.Version = d.ResourceVersion
			}
			return past, nil
		}
	}
	return past, nil
}

// replay hands over the messages that a stream of a kind held, from a message on, when it was in
// state at. Tombstones and marks that expire meanwhile never arrive, so replay asks the stream
// again and again whether there is still a message to wait for.
func replay(ctx context.Context, b bus.Bus, stream string, from uint64, at bus.State, handle func(events.Message) error) error {
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
	poll := time.NewTicker(mirrorPoll)
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
			if still.elapsed(time.Now()) > mirrorPatience && got < at.Messages && read < at.Last {
				return fmt.Errorf("%w: of %s nothing came for %v behind message %d of %d", events.ErrDamaged, stream, mirrorPatience, read, at.Last)
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
	for range latestDepth {
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

func decode(m events.Message) (events.Delta, error) {
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return events.Delta{}, err
	}
	return events.DecodeDelta(ref, m)
}

// stored returns the delta at a sequence of a stream.
func stored(ctx context.Context, b bus.Bus, stream string, sequence uint64) (events.Delta, bool, error) {
	m, there, err := b.At(ctx, stream, sequence)
	if err != nil || !there {
		return events.Delta{}, false, err
	}
	d, err := decode(m)
	return d, err == nil, err
}
