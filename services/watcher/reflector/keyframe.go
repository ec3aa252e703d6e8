package reflector

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
	"github.com/millrace/millrace/services/watcher/kindlog"
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
	// defaultLogAge is assumed for a log whose settings have no age.
	defaultLogAge = 24 * time.Hour
	// reachLeast, or reachTimes as many messages as there are objects, is how many messages may
	// follow an object's last delta before the watcher records the object again.
	reachLeast, reachTimes = 2_000, 3
)

// reach bounds how many messages a reader that starts has to read: in a kind of which few objects
// change all the time and most never do, the watcher records the others again. It costs at most a
// third more messages. Where the log is bounded by size, reach is at most half of what the log holds,
// so that an unchanged object is recorded again before it falls out; but at least twice the number of
// objects, or the log would hold nothing but keyframes.
func (k *Reflector) reach() uint64 {
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

// aboutToExpire reports whether the log is about to lose an object to its size limit, or because its age
// limit was lowered.
func (k *Reflector) aboutToExpire() bool {
	if k.ageLowered {
		k.ageLowered = false
		return true
	}
	return k.room > 0 && k.since > 0 && k.appender.Last() > k.since+k.reach()
}

// tooFarBack reports whether a reader that starts has to read far more than it should. In a kind that
// changes fast, that may happen long before the keyframes' timer fires.
func (k *Reflector) tooFarBack() bool {
	reach := k.reach()
	return k.counted && k.since > 0 && k.appender.Last() > k.since+reach+reach/2
}

// noteLimits takes in the log's limits, which an operator may change at any time.
func (k *Reflector) noteLimits(ctx context.Context, log bus.State) {
	age := cmp.Or(log.Keeps.Age, defaultLogAge)
	k.age, k.ageLowered, k.room = age, k.ageLowered || age < k.age, 0
	if limit := uint64(log.Keeps.Bytes); limit > 0 && log.Bytes >= limit/4 {
		k.room = max(1, uint64(float64(limit)/float64(log.Bytes)*float64(log.Messages)))
	}
	objects := k.tally.Census().Objects
	narrow := k.room > 0 && k.counted && k.room < 4*objects
	if narrow && !k.overfull {
		klog.FromContext(ctx).Info("The log is too small for its objects: unchanged objects expire and are recorded again all the time. Raise --retention",
			"kind", k.kind.Name, "bytes", log.Keeps.Bytes, "messages", k.room, "objects", objects)
	}
	k.overfull = narrow
}

// minKeyframeWait is the shortest wait before the next keyframes.
func (k *Reflector) minKeyframeWait() time.Duration { return min(keyframeSoon, k.age/8) }

// recordedSince is the message since which every existing object has been recorded, for the next mark;
// 0 where that is not known.
func (k *Reflector) recordedSince() uint64 {
	if !k.counted {
		return 0
	}
	if k.since = k.places.Oldest(); k.since == 0 {
		return k.appender.Last() + 1 // nothing exists: the mark itself
	}
	return k.since
}

// keyframes records the oldest objects again before the log forgets them: those that are older than
// half of the log's age, and those that more messages follow than a reader should have to read
// ([Reflector.reach]). It returns how long to wait before the next check.
//
// Errors: events.ErrDamaged, when the log has an object that does not exist.
func (k *Reflector) keyframes(ctx context.Context) (again time.Duration, err error) {
	if err := k.flush(ctx); err != nil {
		return 0, err
	}
	if time.Since(k.marked) > min(keyframeLate/2, k.age/4) {
		// Not every server sends bookmarks, and old marks expire.
		if err := k.mark(ctx); err != nil {
			return 0, err
		}
	}
	if k.recordedSince(); k.since == 0 {
		return min(keyframeLate, k.age/8), nil
	}
	due, again, err := k.oldest(ctx)
	if err != nil || len(due) == 0 {
		return again, err
	}
	for _, d := range due {
		if err := k.append(ctx, translate.Again(translate.Hidden(k.kind, d, k.redact), k.stamp(true))); err != nil {
			return 0, err
		}
	}
	return again, k.mark(ctx)
}

// errEnough stops the reading of the log.
var errEnough = errors.New("enough")

// oldest returns the objects to record again, and how long to wait before the next check.
//
// It does not return a message that the tally contradicts, since that would count from then on.
func (k *Reflector) oldest(ctx context.Context) (due []events.Delta, again time.Duration, err error) {
	log := bus.State{Last: k.appender.Last(), Messages: k.appender.Last()}
	again = min(keyframeLate, k.age/8)
	err = kindlog.Replay(ctx, k.bus, k.kind.Name, k.since, log, func(m events.Message) error {
		if k.places.Of(m.Subject) != m.Sequence {
			return nil // a later delta of the object follows, or it is no object
		}
		wait, isDue := k.untilDue(m, log.Last-m.Sequence)
		if !isDue || len(due) == keyframeBatch {
			again = min(again, wait)
			return errEnough
		}
		d, err := kindlog.Decode(m)
		if err != nil {
			return err
		}
		if !k.tally.Holds(d) {
			return fmt.Errorf("%w: message %d of the log of %s tells of %v, which the log does not have so", events.ErrDamaged, m.Sequence, k.kind.Name, d.Ref)
		}
		due = append(due, d)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return due, again, err
}

// untilDue reports whether the object of a message that so many messages follow is to be recorded again,
// and otherwise when to look next; for one that is due, how long it can wait.
func (k *Reflector) untilDue(m events.Message, behind uint64) (wait time.Duration, due bool) {
	left, reach := time.Until(m.Time.Add(k.age/2)), k.reach()
	switch {
	case behind > reach+reach/2, left < -k.age/4:
		return min(k.minKeyframeWait(), keyframeUrgent), true
	case behind > reach, left <= 0:
		return k.minKeyframeWait(), true
	case behind > reach/2:
		return k.minKeyframeWait(), false
	}
	return max(k.minKeyframeWait(), left), false
}
