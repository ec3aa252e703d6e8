package reflector

import (
	"context"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/watcher/translate"
)

// settling bounds how long the end of a session may take to record what waits.
const settling = 2 * time.Second

// holdBack keeps a version that exceeds the bound of its object, and reports whether it did.
func (k *Reflector) holdBack(d events.Delta, wrote translate.Writers, first bool) bool {
	if k.bounds.Off() {
		return false
	}
	admitted, at := k.bounds.Admits(d, wrote, first, time.Now())
	if admitted {
		return false
	}
	if k.bounds.Full() {
		at = time.Now()
	}
	k.wakeAt(at)
	return true
}

// wakeAt signals the watch at a moment, so that it checks the waiting versions.
func (k *Reflector) wakeAt(at time.Time) {
	if !k.waking.IsZero() && !at.Before(k.waking) && time.Now().Before(k.waking) {
		return // an earlier wake-up is pending
	}
	k.waking = at
	wake := k.wake
	time.AfterFunc(time.Until(at), func() { signal(wake) })
}

// recordWaiting appends the waiting versions that have room by now, or all of them. The log already
// has newer versions of other objects, so these are marked as Sync, like a relist's. When no
// version waits any more, a mark says that the log is complete; with all, the caller appends that
// mark.
func (k *Reflector) recordWaiting(ctx context.Context, all bool) error {
	due, next := k.bounds.Due(all, time.Now())
	for _, a := range due {
		d, wrote := k.bounds.Take(a, time.Now())
		if err := k.append(ctx, d); err != nil {
			return err
		}
		k.bounds.NoteRecorded(d)
		k.authors.Note(k.kind.Name, events.Is, d.UID, wrote)
	}
	if !next.IsZero() {
		k.wakeAt(next)
	}
	if all || len(due) == 0 || k.bounds.Waits() > 0 {
		return nil
	}
	return k.mark(ctx)
}

// catchUp records the waiting versions when a watch ends, so that the next session can resume.
func (k *Reflector) catchUp(ctx context.Context) error {
	if k.bounds.Waits() == 0 || k.unsure {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	return k.mark(ctx)
}
