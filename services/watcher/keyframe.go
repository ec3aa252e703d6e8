package watcher

import (
	"context"
	"errors"
	"fmt"
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
	// keyframeLate is when to look again although nothing is due.
	keyframeLate = 10 * time.Minute
	// endAge is how long the state keeps the end of an object: far longer than the
	// memories of readers do, and far less than the log, so that what was there in a
	// day does not have to be read to learn what is there now. A reader that was
	// stopped for longer finds out by the census.
	endAge = time.Hour
	// pruneBatch is how many ends are taken out between two looks.
	pruneBatch = 2000
)

// soon is when to look for objects that have to be said again, at the earliest.
func (k *kindWatch) soon() time.Duration { return min(keyframeSoon, k.age/8) }

// keyframes says the oldest objects again before the log forgets them: what is
// older than half of the log's age. It has the ends of objects pruned, and gives
// when to look again. The state stream is in the order of age.
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
	found, err := k.old(ctx, at)
	if err != nil {
		return 0, err
	}
	k.prune(ctx, found.ended)
	due, next := found.due, found.next
	for _, d := range due {
		if err := k.append(ctx, translate.Again(d, k.stamp(true))); err != nil {
			return 0, err
		}
	}
	if len(due) == 0 {
		return next, nil
	}
	return next, k.mark(ctx)
}

// old is what has to be done about what a state stream has held for long.
type old struct {
	due   []events.Delta // to be said again
	ended []end          // to be pruned
	next  time.Duration  // when to look again
}

// end is where a state stream holds the end of an object.
type end struct {
	subject  string
	sequence uint64
}

// old looks through a state stream from its oldest message on.
func (k *kindWatch) old(ctx context.Context, at bus.State) (found old, err error) {
	found.next = min(keyframeLate, k.age/8)
	young, settled := k.age/2, min(endAge, k.age/2)
	first := true // of those that are not due yet
	err = replay(ctx, k.bus, k.kind.Name, at, func(m events.Message) error {
		age := time.Since(m.Time)
		if len(found.due) == keyframeBatch || len(found.ended) == pruneBatch {
			found.next = k.soon()
			return errEnough
		}
		if age < young && first {
			first, found.next = false, max(k.soon(), min(young-age, found.next))
		}
		if age < settled {
			return errEnough
		}
		d, err := decode(m)
		switch {
		case err != nil:
			return err
		case d.Op == events.Gone:
			found.ended = append(found.ended, end{m.Subject, m.Sequence})
		case d.Op == events.Is && age >= young:
			found.due = append(found.due, d)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return found, err
}

// prune takes ends out of the state stream, where nobody waits for them any more,
// beside the watch. They stay in the log. A bus that refuses keeps them as long as
// the log does.
func (k *kindWatch) prune(ctx context.Context, ended []end) {
	if len(ended) == 0 || !k.pruning.CompareAndSwap(false, true) {
		return
	}
	b, kind := k.bus, k.kind.Name
	go func() {
		defer k.pruning.Store(false)
		for _, e := range ended {
			if err := b.Prune(ctx, kind, e.subject, e.sequence); err != nil {
				klog.FromContext(ctx).V(2).Info("Leaving the ends of objects in the state", "kind", kind, "because", err)
				return
			}
		}
	}()
}
