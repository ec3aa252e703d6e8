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
	// mirrorPoll is how often a state stream is asked whether it has caught up.
	mirrorPoll = 50 * time.Millisecond
	// mirrorPatience is how long it may stand still before that is an error.
	mirrorPatience = 20 * time.Second
)

// errEnough ends the reading of a stream.
var errEnough = errors.New("enough")

// silence is for how long nothing has come, as far as this process was there to hear it: what
// came while it was stopped, or waited for a bus that is away, has still to come here.
type silence struct {
	lasts time.Duration
	heard time.Time // until when this process was there
}

// mostHeard is how long a process can have listened since it last looked, which it does with
// every [mirrorPoll].
const mostHeard = time.Second

// goesOn gives how long it has lasted by now.
func (s *silence) goesOn(now time.Time) time.Duration {
	s.lasts, s.heard = s.lasts+min(now.Sub(s.heard), mostHeard), now
	return s.lasts
}

// caughtUp waits until the state stream holds the log up to a sequence.
func caughtUp(ctx context.Context, b bus.Bus, kind kinds.Name, sequence uint64) (state bus.State, err error) {
	still, at := silence{heard: time.Now()}, uint64(0)
	for {
		if state, err = b.StreamState(ctx, subject.StateStream(kind)); err != nil {
			return state, fmt.Errorf("look at the state of %s: %w", kind, err)
		}
		switch {
		case state.Last >= sequence:
			return state, nil
		case state.Last != at:
			still, at = silence{heard: time.Now()}, state.Last
		case still.goesOn(time.Now()) > mirrorPatience:
			return state, fmt.Errorf("%w: the state of %s has stood still at message %d of %d for %v", events.ErrDamaged, kind, at, sequence, mirrorPatience)
		}
		pause(ctx, mirrorPoll)
		if err := ctx.Err(); err != nil {
			return state, err
		}
	}
}

// holding is what a state stream holds of a kind.
type holding struct {
	state  *translate.State
	tally  events.Tally
	places places
	window translate.Window
	broken []events.Delta // of damaged messages: what they are about, as far as one can tell
	anew   bool           // it holds nothing, since it has just been made
}

// agrees tells whether a census certainly says the same.
func (h *holding) agrees(census events.Census) bool {
	return !h.anew && len(h.broken) == 0 && h.tally.Census() == census
}

// readState folds the state stream from a message on, which has to hold the log up
// to a sequence. Messages that are damaged are left out and listed.
//
// Errors: events.ErrDamaged, when the stream as a whole is of no use.
func readState(ctx context.Context, b bus.Bus, kind kinds.Name, from, sequence uint64) (h holding, err error) {
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

// holds reads the state stream from a message on, and makes it anew where it is of
// no use: the relist says everything again.
func (k *kindWatch) holds(ctx context.Context, from uint64) (holding, error) {
	if !k.renew {
		h, err := readState(ctx, k.bus, k.kind.Name, from, k.appender.Last())
		if !errors.Is(err, events.ErrDamaged) {
			k.places = h.places
			return h, err
		}
		k.distrust(klog.FromContext(ctx).WithValues("kind", k.kind.Name), events.Hole{Reason: err.Error()})
	}
	past, err := k.past(ctx)
	if err != nil {
		return holding{}, err
	}
	if err := k.flush(ctx); err != nil {
		return holding{}, err
	}
	if err := k.bus.Renew(ctx, k.kind); err != nil {
		return holding{}, err
	}
	made, err := k.bus.StreamState(ctx, subject.StateStream(k.kind.Name))
	if err != nil {
		return holding{}, fmt.Errorf("look at the state of %s: %w", k.kind.Name, err)
	}
	k.state, k.renew, k.renewed = made.Created, false, time.Now()
	k.places = nil // the log may have told of objects that are to be said again
	h := holding{state: translate.NewState(), anew: true}
	h.state.Fold(events.Delta{Kind: k.kind.Name, Op: events.Mark, ResourceVersion: past.Version, Epoch: past.Epoch}, 0)
	return h, nil
}

// past is how far the kind has been watched, as far as is known without its state.
func (k *kindWatch) past(ctx context.Context) (translate.Cursor, error) {
	if k.cursor.Version != "" {
		return k.cursor, nil
	}
	last := k.appender.Last()
	for at := last; at > 0 && last-at < recallDepth; at-- {
		d, there, err := stored(ctx, k.bus, subject.LogStream(k.kind.Name), at)
		if err != nil && !errors.Is(err, events.ErrDamaged) {
			return k.cursor, err
		}
		if there && d.ResourceVersion != "" && !d.Sync {
			return translate.Cursor{Version: d.ResourceVersion, Epoch: d.Epoch}, nil
		}
	}
	return k.cursor, nil
}

// replay hands over what a stream of a kind held from a message on when it was looked
// at. What expires meanwhile, tombstones and marks, never comes: the stream itself
// is asked again whether there is something to wait for.
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
	still, read := silence{heard: time.Now()}, max(from, 1)-1
	for got := uint64(0); got < at.Messages && read < at.Last; {
		select {
		case batch := <-batches:
			still = silence{heard: time.Now()}
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
			if still.goesOn(time.Now()) > mirrorPatience && got < at.Messages && read < at.Last {
				return fmt.Errorf("%w: of %s nothing came for %v behind message %d of %d", events.ErrDamaged, stream, mirrorPatience, read, at.Last)
			}
		case err := <-failed:
			return fmt.Errorf("read %s: interrupted: %w", stream, cmp.Or(err, ctx.Err(), errEnough))
		}
	}
	return nil
}

// left looks how much a stream still holds; and where that ends, for a reader
// that reads from some message on, up to one by now, and cannot go by the number.
func left(ctx context.Context, b bus.Bus, stream string, from, read uint64, at *bus.State) error {
	now, err := b.StreamState(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at %s: %w", stream, err)
	}
	at.Messages = min(at.Messages, now.Messages)
	for range recallDepth {
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

// stored is the delta at a sequence of a stream.
func stored(ctx context.Context, b bus.Bus, stream string, sequence uint64) (events.Delta, bool, error) {
	m, there, err := b.At(ctx, stream, sequence)
	if err != nil || !there {
		return events.Delta{}, false, err
	}
	d, err := decode(m)
	return d, err == nil, err
}
