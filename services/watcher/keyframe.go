package watcher

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

const (
	// keyframeSoon and keyframeBatch spread keyframes over time.
	keyframeSoon  = 30 * time.Second
	keyframeBatch = 500
	// keyframeLate is when to look again although nothing is due.
	keyframeLate = 10 * time.Minute
	// reachLeast, and so many times the objects that are there, is how many messages
	// may be stored after the last word of an object before it is said again.
	reachLeast, reachTimes = 20_000, 5
)

// reach bounds how far back somebody has to read who asks what was there at a
// moment, in a kind of which few objects change all the time and most never do. It
// costs a fifth more messages at the most.
func (k *kindWatch) reach() uint64 {
	if !k.counted {
		return math.MaxUint64
	}
	return max(reachLeast, reachTimes*k.tally.Census().Objects)
}

// soon is when to look for objects that have to be said again, at the earliest.
func (k *kindWatch) soon() time.Duration { return min(keyframeSoon, k.age/8) }

// keyframes says the oldest objects again before the log forgets them: what is
// older than half of the log's age; and when so much has ended since they were said
// that a reader would spend its start on that (translate.Window), or so much has been
// stored that a reader of the past would have to go back far ([kindWatch.reach]). It
// gives when to look again. The state stream is in the order of age.
//
// Errors: events.ErrDamaged, when the state has an object that is not there.
func (k *kindWatch) keyframes(ctx context.Context) (again time.Duration, err error) {
	if err := k.flush(ctx); err != nil {
		return 0, err
	}
	if time.Since(k.marked) > min(keyframeLate/2, k.age/4) {
		// Not every server sends bookmarks, and old marks are forgotten.
		if err := k.mark(ctx); err != nil {
			return 0, err
		}
	}
	at, err := k.bus.StreamState(ctx, subject.StateStream(k.kind.Name))
	if err != nil {
		return 0, fmt.Errorf("look at the state of %s: %w", k.kind.Name, err)
	}
	if at.Last < k.appender.Last() {
		return k.soon(), nil // it lags, and what it holds may be out of date
	}
	due, window, again, err := k.oldest(ctx, at)
	if err != nil {
		return 0, err
	}
	moved := window.Since() != k.window.Since()
	for _, d := range due {
		if err := k.append(ctx, translate.Again(d, k.stamp(true))); err != nil {
			return 0, err
		}
	}
	if !moved {
		return again, nil
	}
	// Not before they have been said: nothing is there before the window.
	k.window = window
	return again, k.mark(ctx)
}

// oldest are the objects that are to be said again, the window that is left when
// they have been, and when to look again.
//
// What was counted otherwise is not said again, or it would count from then on: the
// bus knows from its index alone that an older message of an object is no more,
// and when it loses that after the object's end has expired, the message is back.
func (k *kindWatch) oldest(ctx context.Context, at bus.State) (due []events.Delta, w translate.Window, again time.Duration, err error) {
	w, again = k.window, min(keyframeLate, k.age/8)
	err = replay(ctx, k.bus, k.kind.Name, w.Since(), at, func(m events.Message) error {
		d, err := decode(m)
		switch {
		case err != nil:
			return err
		case d.Op == events.Gone:
			w.Begin(m.Sequence + 1)
			return nil
		case d.Op != events.Is:
			return nil
		case len(due) == keyframeBatch:
			again = k.soon()
			return errEnough
		}
		behind := at.Last - m.Sequence
		if left := time.Until(m.Time.Add(k.age / 2)); left > 0 && !k.crowded(&w) && behind <= k.reach() {
			if again = max(k.soon(), min(left, again)); behind > k.reach()/2 {
				again = k.soon()
			}
			return errEnough
		}
		if k.counted && !k.tally.Holds(d) {
			return fmt.Errorf("%w: message %d of the state of %s tells of %v, which the log does not have so", events.ErrDamaged, m.Sequence, k.kind.Name, d.Ref)
		}
		due = append(due, d)
		w.Begin(m.Sequence + 1)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return due, w, again, err
}
