package versions

import (
	"cmp"
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
	// MaxWaiting bounds the bytes of a kind's waiting versions. Beyond it the watcher records the
	// version that has waited longest.
	MaxWaiting = 32 << 20
	// fewBusy is the least number of accounts at which the watcher sweeps out those that are not
	// busy.
	fewBusy = 64
)

// Or returns the bound with the values of another one where it has none (0).
func (b Bound) Or(other Bound) Bound {
	return Bound{cmp.Or(b.Burst, other.Burst), cmp.Or(b.PerSecond, other.PerSecond)}
}

// Bounds are the accounts of a kind's busy objects, by a hash of their uid. An object is busy until
// PerSecond has paid for the bytes that it has added. The zero value has no bound.
type Bounds struct {
	Bound
	// LeftOut is called for each version that is left out; may be nil.
	LeftOut func(bytes int)

	objects map[uint64]*Account
	waiting int // bytes of the waiting versions
	waits   int // how many versions wait
	sweepAt int // the number of accounts at which the next sweep is due
}

// Account is what one object has added.
type Account struct {
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

// Off reports whether there is no bound.
func (b *Bounds) Off() bool { return b.Burst <= 0 || b.PerSecond <= 0 }

// cost is how long that many bytes keep an object busy.
func (b *Bounds) cost(bytes int) time.Duration {
	return time.Duration(float64(bytes) / float64(b.PerSecond) * float64(time.Second))
}

// room is when the watcher may record a version of that many bytes.
func (b *Bounds) room(a *Account, bytes int) time.Time {
	return a.idle.Add(min(0, b.cost(bytes)-b.cost(int(b.Burst))))
}

// Left counts the versions of an object that were left out since its last recorded one.
func (b *Bounds) Left(uid types.UID) events.Left {
	if a := b.objects[hashOf(uid)]; a != nil {
		return a.left
	}
	return events.Left{}
}

// Admits reports whether the watcher may record the next version of an object now. If not, it keeps
// the version in place of the one that waited; at is when there is room for it.
func (b *Bounds) Admits(d events.Delta, wrote translate.Writers, first bool, now time.Time) (admitted bool, at time.Time) {
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
func (b *Bounds) account(uid types.UID, now time.Time) *Account {
	key := hashOf(uid)
	a := b.objects[key]
	if a == nil {
		if len(b.objects) >= max(b.sweepAt, fewBusy) {
			b.DropIdle(now)
		}
		if b.objects == nil {
			b.objects = map[uint64]*Account{}
		}
		a = &Account{}
		b.objects[key] = a
	}
	return a
}

// charge counts a version that is recorded.
func (b *Bounds) charge(a *Account, d events.Delta, now time.Time) {
	if a.idle.Before(now) {
		a.idle = now
	}
	a.idle, a.deleting = a.idle.Add(b.cost(len(d.Body))), d.Deleting
}

// drop leaves out the version that waits.
func (b *Bounds) drop(a *Account) {
	if a.waits == nil {
		return
	}
	a.left.Versions++
	a.left.Bytes += uint64(len(a.waits.delta.Body))
	if b.LeftOut != nil {
		b.LeftOut(len(a.waits.delta.Body))
	}
	b.clear(a)
}

// clear empties the waiting place of an account.
func (b *Bounds) clear(a *Account) {
	b.waiting -= len(a.waits.delta.Body)
	b.waits--
	a.waits = nil
}

// Full reports whether more bytes wait than may: then [Bounds.Due] does not ask for room.
func (b *Bounds) Full() bool { return b.waiting > MaxWaiting }

// Waits is how many versions wait.
func (b *Bounds) Waits() int { return b.waits }

// NoteRecorded notes that the log has the newest version of an object, or its end.
func (b *Bounds) NoteRecorded(d events.Delta) {
	a := b.objects[hashOf(d.UID)]
	if a == nil {
		return
	}
	if a.left = (events.Left{}); d.Op == events.Gone {
		delete(b.objects, hashOf(d.UID))
	}
}

// DropAtEnd leaves out the waiting version of an object whose end is about to be recorded.
func (b *Bounds) DropAtEnd(uid types.UID) {
	if a := b.objects[hashOf(uid)]; a != nil {
		b.drop(a)
	}
}

// DropIdle forgets the accounts of objects that are not busy.
func (b *Bounds) DropIdle(now time.Time) {
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

// DropAll forgets the waiting versions, because the session that begins meets them again. A session
// that resumes starts before the left-out versions and meets these again, too; then their counts
// are cleared.
func (b *Bounds) DropAll(resumed bool) {
	for _, a := range b.objects {
		if a.waits != nil {
			b.clear(a)
		}
		if resumed {
			a.left = events.Left{}
		}
	}
}

// Due returns the accounts whose waiting version is to be recorded now, longest waiting first: all
// of them, or those that have room. While more than MaxWaiting bytes wait, the oldest count as
// having room. next is when another account has room.
func (b *Bounds) Due(all bool, now time.Time) (due []*Account, next time.Time) {
	if b.waits == 0 {
		return nil, next
	}
	var waits []*Account
	for _, a := range b.objects {
		if a.waits != nil {
			waits = append(waits, a)
		}
	}
	slices.SortFunc(waits, func(x, y *Account) int {
		return cmp.Or(x.waits.since.Compare(y.waits.since), cmp.Compare(x.waits.delta.UID, y.waits.delta.UID))
	})
	over := b.waiting - MaxWaiting
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

// Take takes out the waiting version of an account, which is recorded at now. The log already has
// newer versions of other objects, so the delta is marked as Sync, like a relist's.
func (b *Bounds) Take(a *Account, now time.Time) (d events.Delta, wrote translate.Writers) {
	w := *a.waits
	b.clear(a)
	w.delta.Sync, w.delta.At, w.delta.Left = true, now, a.left
	b.charge(a, w.delta, now)
	return w.delta, w.wrote
}
