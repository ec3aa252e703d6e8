package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

const (
	// keyframeSoon and keyframeBatch spread keyframes over time.
	keyframeSoon  = 30 * time.Second
	keyframeBatch = 500
	// keyframeUrgent is the pace when objects are about to fall out of the log, or
	// have: it may be told to keep less at any time.
	keyframeUrgent = time.Second
	// keyframeLate is when to look again although nothing is due.
	keyframeLate = 10 * time.Minute
	// reachLeast, and so many times the objects that are there, is how many messages
	// may be stored after the last word of an object before it is said again.
	reachLeast, reachTimes = 20_000, 5
)

// reach bounds how far back a reader has to read that asks what was there at a
// moment, in a kind of which few objects change all the time and most never do. It
// costs a fifth more messages at the most. Where the log is bounded by size it is no
// more than half of what that holds, so that what does not change is said again before
// it falls out; but not less than twice what is there, or nothing else would be said.
func (k *kindWatch) reach() uint64 {
	if !k.counted {
		return math.MaxUint64
	}
	objects := k.tally.Census().Objects
	reach := max(reachLeast, reachTimes*objects)
	if k.room > 0 {
		reach = min(reach, max(k.room/2, 2*objects))
	}
	return reach
}

// pressed tells whether the log is about to lose an object to its size, or because
// it is kept for less time than before.
func (k *kindWatch) pressed() bool {
	if k.shorter {
		k.shorter = false
		return true
	}
	since := k.window.Since()
	return k.room > 0 && since > 0 && k.appender.Last() > since+k.reach()
}

// hold takes in how much the log keeps, which may be changed while it is in use.
func (k *kindWatch) hold(ctx context.Context, log bus.State) {
	age := cmp.Or(log.Keeps.Age, defaultLogAge)
	k.age, k.shorter, k.room = age, k.shorter || age < k.age, 0
	if limit := uint64(log.Keeps.Bytes); limit > 0 && log.Bytes >= limit/4 {
		k.room = max(1, uint64(float64(limit)/float64(log.Bytes)*float64(log.Messages)))
	}
	objects := k.tally.Census().Objects
	narrow := k.room > 0 && k.counted && k.room < 4*objects
	if narrow && !k.narrow {
		klog.FromContext(ctx).Info("The log is too small for what is there: objects that do not change fall out of it, and are in the state alone. Keep more (--retention)",
			"kind", k.kind.Name, "bytes", log.Keeps.Bytes, "messages", k.room, "objects", objects)
	}
	k.narrow = narrow
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
		if err := k.append(ctx, translate.Again(translate.Hidden(k.kind, d, k.hide), k.stamp(true))); err != nil {
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
// bus knows from its index alone that an older message of an object is gone,
// and when it loses that after the object's end has expired, the message is back.
func (k *kindWatch) oldest(ctx context.Context, at bus.State) (due []events.Delta, w translate.Window, again time.Duration, err error) {
	w, again = k.window, min(keyframeLate, k.age/8)
	err = replay(ctx, k.bus, subject.StateStream(k.kind.Name), w.Since(), at, func(m events.Message) error {
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
			if again = k.soon(); time.Since(m.Time) > k.age/4*3 {
				again = min(again, keyframeUrgent)
			}
			return errEnough
		}
		behind := at.Last - m.Sequence
		if left := time.Until(m.Time.Add(k.age / 2)); left > 0 && !k.crowded(&w) && behind <= k.reach() {
			if k.room > 0 {
				w.Begin(m.Sequence) // pressed goes by it
			}
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
