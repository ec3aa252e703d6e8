package watcher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/watcher/translate"
)

// Bound limits the bytes that the versions of one object may add to the log of its kind. Beyond it
// only the newest version waits, until there is room again. The watcher leaves out the versions
// between, and the next delta of the object says how many. Three versions never wait: the first one
// of an object, the one that begins its deletion, and its end. See docs/adr/0034.
type Bound struct {
	// Burst is how many bytes the watcher records at once, and PerSecond how many in each second
	// after that. A version that is larger than Burst waits until all earlier ones are paid for. 0:
	// [DefaultBound]'s value; less than 0: there is no bound.
	Burst, PerSecond int64
}

// DefaultBound allows each object eight versions of the largest size at once, and one in ten
// seconds from then on. A status that is written each second is far below it.
var DefaultBound = Bound{Burst: 8 << 20, PerSecond: 100 << 10}

const (
	// maxWaiting bounds the bytes of a kind's waiting versions. Beyond it the watcher records the
	// version that has waited longest.
	maxWaiting = 32 << 20
	// fewBusy is the least number of accounts at which the watcher sweeps out those that are not
	// busy.
	fewBusy = 64
)

func (b Bound) or(other Bound) Bound {
	return Bound{cmp.Or(b.Burst, other.Burst), cmp.Or(b.PerSecond, other.PerSecond)}
}

// bounds are the accounts of a kind's busy objects, by a hash of their uid. An object is busy until
// PerSecond has paid for the bytes that it has added.
type bounds struct {
	Bound
	objects map[uint64]*account
	waiting int // bytes of the waiting versions
	waits   int // how many versions wait
	sweepAt int // the number of accounts at which the next sweep is due
	// leftOut is called for each version that is left out; may be nil.
	leftOut func(bytes int)
}

// account is what one object has added.
type account struct {
	idle     time.Time // when PerSecond has paid for all that the object added
	deleting bool      // its newest recorded version has a deletion timestamp
	left     events.Left
	waits    *waiting // nil: no version waits
}

// waiting is the newest version of an object, which is not recorded yet.
type waiting struct {
	delta events.Delta
	wrote translate.Writers
	since time.Time // when the first version that it replaced began to wait
}

// off reports whether there is no bound.
func (b *bounds) off() bool { return b.Burst <= 0 || b.PerSecond <= 0 }

// cost is how long that many bytes keep an object busy.
func (b *bounds) cost(bytes int) time.Duration {
	return time.Duration(float64(bytes) / float64(b.PerSecond) * float64(time.Second))
}

// room is when the watcher may record a version of that many bytes.
func (b *bounds) room(a *account, bytes int) time.Time {
	return a.idle.Add(min(0, b.cost(bytes)-b.cost(int(b.Burst))))
}

// left counts the versions of an object that were left out since its last recorded one.
func (b *bounds) left(uid types.UID) events.Left {
	if a := b.objects[hashOf(string(uid))]; a != nil {
		return a.left
	}
	return events.Left{}
}

// admits reports whether the watcher may record the next version of an object now. If not, it keeps
// the version in place of the one that waited; at is when there is room for it.
func (b *bounds) admits(d events.Delta, wrote translate.Writers, first bool, now time.Time) (admitted bool, at time.Time) {
	a, since := b.account(d.UID, now), now
	if a.waits != nil {
		since = a.waits.since
	}
	b.drop(a)
	at = b.room(a, len(d.Body))
	if first || d.Deleting && !a.deleting || !now.Before(at) {
		b.charge(a, d, now)
		return true, at
	}
	a.waits = &waiting{delta: d, wrote: wrote, since: since}
	b.waits++
	b.waiting += len(d.Body)
	return false, at
}

// account returns the account of an object, and makes one where there is none.
func (b *bounds) account(uid types.UID, now time.Time) *account {
	key := hashOf(string(uid))
	a := b.objects[key]
	if a == nil {
		if len(b.objects) >= max(b.sweepAt, fewBusy) {
			b.dropIdle(now)
		}
		if b.objects == nil {
			b.objects = map[uint64]*account{}
		}
		a = &account{}
		b.objects[key] = a
	}
	return a
}

// charge counts a version that is recorded.
func (b *bounds) charge(a *account, d events.Delta, now time.Time) {
	if a.idle.Before(now) {
		a.idle = now
	}
	a.idle, a.deleting = a.idle.Add(b.cost(len(d.Body))), d.Deleting
}

// drop leaves out the version that waits.
func (b *bounds) drop(a *account) {
	if a.waits == nil {
		return
	}
	a.left.Versions++
	a.left.Bytes += uint64(len(a.waits.delta.Body))
	if b.leftOut != nil {
		b.leftOut(len(a.waits.delta.Body))
	}
	b.clear(a)
}

// clear empties the waiting place of an account.
func (b *bounds) clear(a *account) {
	b.waiting -= len(a.waits.delta.Body)
	b.waits--
	a.waits = nil
}

// noteRecorded notes that the log has the newest version of an object, or its end.
func (b *bounds) noteRecorded(d events.Delta) {
	a := b.objects[hashOf(string(d.UID))]
	if a == nil {
		return
	}
	if a.left = (events.Left{}); d.Op == events.Gone {
		delete(b.objects, hashOf(string(d.UID)))
	}
}

// dropAtEnd leaves out the waiting version of an object whose end is about to be recorded.
func (b *bounds) dropAtEnd(uid types.UID) {
	if a := b.objects[hashOf(string(uid))]; a != nil {
		b.drop(a)
	}
}

// dropIdle forgets the accounts of objects that are not busy.
func (b *bounds) dropIdle(now time.Time) {
	for key, a := range b.objects {
		if a.waits == nil && !now.Before(a.idle) {
			delete(b.objects, key)
		}
	}
	if len(b.objects) == 0 {
		b.objects = nil
	}
	b.sweepAt = 2 * len(b.objects)
}

// dropAll forgets the waiting versions, because the session that begins meets them again. A session
// that resumes starts before the left-out versions and meets these again, too; then their counts
// are cleared.
func (b *bounds) dropAll(resumed bool) {
	for _, a := range b.objects {
		if a.waits != nil {
			b.clear(a)
		}
		if resumed {
			a.left = events.Left{}
		}
	}
}

// due returns the accounts whose waiting version is to be recorded now, longest waiting first: all
// of them, or those that have room. While more than maxWaiting bytes wait, the oldest count as
// having room. next is when another account has room.
func (b *bounds) due(all bool, now time.Time) (due []*account, next time.Time) {
	if b.waits == 0 {
		return nil, next
	}
	var waits []*account
	for _, a := range b.objects {
		if a.waits != nil {
			waits = append(waits, a)
		}
	}
	slices.SortFunc(waits, func(x, y *account) int {
		return cmp.Or(x.waits.since.Compare(y.waits.since), cmp.Compare(x.waits.delta.UID, y.waits.delta.UID))
	})
	over := b.waiting - maxWaiting
	for _, a := range waits {
		size := len(a.waits.delta.Body)
		switch at := b.room(a, size); {
		case all, over > 0, !now.Before(at):
			due = append(due, a)
			over -= size
		case next.IsZero(), at.Before(next):
			next = at
		}
	}
	return due, next
}

// holdBack keeps a version that exceeds the bound of its object, and reports whether it did.
func (k *kindWatch) holdBack(d events.Delta, wrote translate.Writers, first bool) bool {
	if k.bounds.off() {
		return false
	}
	admitted, at := k.bounds.admits(d, wrote, first, time.Now())
	if admitted {
		return false
	}
	if k.bounds.waiting > maxWaiting {
		at = time.Now()
	}
	k.wakeAt(at)
	return true
}

// wakeAt signals the watch at a moment, so that it checks the waiting versions.
func (k *kindWatch) wakeAt(at time.Time) {
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
func (k *kindWatch) recordWaiting(ctx context.Context, all bool) error {
	due, next := k.bounds.due(all, time.Now())
	for _, a := range due {
		w := *a.waits
		k.bounds.clear(a)
		w.delta.Sync, w.delta.At, w.delta.Left = true, time.Now(), a.left
		k.bounds.charge(a, w.delta, w.delta.At)
		if err := k.append(ctx, w.delta); err != nil {
			return err
		}
		k.bounds.noteRecorded(w.delta)
		k.writers.note(k.kind.Name, events.Is, w.delta.UID, w.wrote)
	}
	if !next.IsZero() {
		k.wakeAt(next)
	}
	if all || len(due) == 0 || k.bounds.waits > 0 {
		return nil
	}
	return k.mark(ctx)
}

// catchUp records the waiting versions when a watch ends, so that the next session can resume.
func (k *kindWatch) catchUp(ctx context.Context) error {
	if k.bounds.waits == 0 || k.unsure {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	return k.mark(ctx)
}
