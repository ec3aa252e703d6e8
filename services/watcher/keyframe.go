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
	// keyframeSoon (the pause) and keyframeBatch (objects) spread keyframes over time.
	keyframeSoon  = 30 * time.Second
	keyframeBatch = 500
	// keyframeUrgent is the pause when objects are about to fall out of the log, or have: an
	// operator may lower the log's limits at any time.
	keyframeUrgent = time.Second
	// keyframeLate is the pause when no object is due.
	keyframeLate = 10 * time.Minute
	// reachLeast, or reachTimes as many messages as there are objects, is how many messages may
	// follow an object's last delta before the watcher records the object again.
	reachLeast, reachTimes = 20_000, 5
)

// reach bounds how far back a reader must read that asks which objects existed at a moment, in a
// kind of which few objects change all the time and most never do. It costs at most a fifth more
// messages. Where the log is bounded by size, reach is at most half of what the log holds, so that
// the watcher records an unchanged object again before it falls out; but at least twice the number
// of objects, or the log would hold nothing but keyframes.
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

// aboutToExpire tells whether the log is about to lose an object to its size limit, or because its age
// limit was lowered.
func (k *kindWatch) aboutToExpire() bool {
	if k.ageLowered {
		k.ageLowered = false
		return true
	}
	since := k.window.Since()
	return k.room > 0 && since > 0 && k.appender.Last() > since+k.reach()
}

// noteLimits takes in the log's limits, which an operator may change at any time.
func (k *kindWatch) noteLimits(ctx context.Context, log bus.State) {
	age := cmp.Or(log.Keeps.Age, defaultLogAge)
	k.age, k.ageLowered, k.room = age, k.ageLowered || age < k.age, 0
	if limit := uint64(log.Keeps.Bytes); limit > 0 && log.Bytes >= limit/4 {
		k.room = max(1, uint64(float64(limit)/float64(log.Bytes)*float64(log.Messages)))
	}
	objects := k.tally.Census().Objects
	narrow := k.room > 0 && k.counted && k.room < 4*objects
	if narrow && !k.overfull {
		klog.FromContext(ctx).Info("The log is too small for what is there: objects that do not change fall out of it, and are in the state alone. Keep more (--retention)",
			"kind", k.kind.Name, "bytes", log.Keeps.Bytes, "messages", k.room, "objects", objects)
	}
	k.overfull = narrow
}

// minKeyframeWait is the shortest wait before the next keyframes.
func (k *kindWatch) minKeyframeWait() time.Duration { return min(keyframeSoon, k.age/8) }

// keyframes records the oldest objects again before the log forgets them: those that are older than
// half of the log's age. It also does so when so many tombstones follow them that a reader would
// spend its start on those (translate.Window), or so many messages that a reader of the past would
// have to go back far ([kindWatch.reach]). It returns how long to wait before the next check. The
// state stream is in the order of age.
//
// Errors: events.ErrDamaged, when the state has an object that does not exist.
func (k *kindWatch) keyframes(ctx context.Context) (again time.Duration, err error) {
	if err := k.flush(ctx); err != nil {
		return 0, err
	}
	if time.Since(k.marked) > min(keyframeLate/2, k.age/4) {
		// Not every server sends bookmarks, and old marks expire.
		if err := k.mark(ctx); err != nil {
			return 0, err
		}
	}
	at, err := k.bus.StreamState(ctx, subject.StateStream(k.kind.Name))
	if err != nil {
		return 0, fmt.Errorf("look at the state of %s: %w", k.kind.Name, err)
	}
	if at.Last < k.appender.Last() {
		return k.minKeyframeWait(), nil // the state lags, and may hold outdated deltas
	}
	due, window, again, err := k.oldest(ctx, at)
	if err != nil {
		return 0, err
	}
	moved := window.Since() != k.window.Since()
	for _, d := range due {
		if err := k.append(ctx, translate.Again(translate.Hidden(k.kind, d, k.redact), k.stamp(true))); err != nil {
			return 0, err
		}
	}
	if !moved {
		return again, nil
	}
	// Only now, after these have been recorded: no object may exist before the window.
	k.window = window
	return again, k.mark(ctx)
}

// oldest returns the objects to record again, the window that remains afterwards, and how long to
// wait before the next check.
//
// It does not return a message that the tally contradicts, since that would count from then on:
// NATS knows only from its index that an older message of an object was removed, and when it loses
// the index after the object's tombstone has expired, the message is back.
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
			if again = k.minKeyframeWait(); time.Since(m.Time) > k.age/4*3 {
				again = min(again, keyframeUrgent)
			}
			return errEnough
		}
		behind := at.Last - m.Sequence
		if left := time.Until(m.Time.Add(k.age / 2)); left > 0 && !k.crowded(&w) && behind <= k.reach() {
			if k.room > 0 {
				w.Begin(m.Sequence) // pressed compares with it
			}
			if again = max(k.minKeyframeWait(), min(left, again)); behind > k.reach()/2 {
				again = k.minKeyframeWait()
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
