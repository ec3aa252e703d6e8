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

// Bound is how many bytes the versions of one object may add to the log of its kind. What
// is beyond that waits, the newest version alone, until there is room again: the versions
// between are left out, and the next delta of the object says how many. The first version
// of an object, the one that begins its deletion and its end never wait. See
// docs/adr/0034.
type Bound struct {
	// Burst is how many bytes are recorded at once, and PerSecond how many in each second
	// that follows. A version that is larger than Burst is recorded when nothing else of
	// the object was for long enough. 0: [DefaultBound]'s; less: there is no bound.
	Burst, PerSecond int64
}

// DefaultBound lets each object have eight of the largest versions at once, and one in ten
// seconds from then on. A status that is written each second is far below it.
var DefaultBound = Bound{Burst: 8 << 20, PerSecond: 100 << 10}

const (
	// maxWaiting bounds the bytes of the versions that wait, of one kind. Beyond it the
	// one that waits longest is recorded.
	maxWaiting = 32 << 20
	// fewBusy objects are kept account of before it is looked whether all of them are busy.
	fewBusy = 64
)

func (b Bound) or(other Bound) Bound {
	return Bound{cmp.Or(b.Burst, other.Burst), cmp.Or(b.PerSecond, other.PerSecond)}
}

// bounds are the accounts of the objects of a kind that are busy, by a hash of their uid.
// An object is busy until what it has added would have come in at PerSecond.
type bounds struct {
	Bound
	objects map[uint64]*account
	waiting int // bytes of the versions that wait
	waits   int // how many those are
	sweepAt int // objects
	// leftOut is told of each version that is left out; may be nil.
	leftOut func(bytes int)
}

// account is what one object has added.
type account struct {
	idle     time.Time // when nothing of it counts any more
	deleting bool      // what was recorded of it says so
	left     events.Left
	waits    *waiting // nil: the newest version is recorded
}

// waiting is the newest version of an object, which is not recorded yet.
type waiting struct {
	delta events.Delta
	wrote translate.Writers
	since time.Time // when the first that was left out for it began to wait
}

// off tells whether there is no bound.
func (b *bounds) off() bool { return b.Burst <= 0 || b.PerSecond <= 0 }

// cost is for how long an object is busy after so many bytes.
func (b *bounds) cost(bytes int) time.Duration {
	return time.Duration(float64(bytes) / float64(b.PerSecond) * float64(time.Second))
}

// room is when a version of so many bytes may be recorded.
func (b *bounds) room(a *account, bytes int) time.Time {
	return a.idle.Add(min(0, b.cost(bytes)-b.cost(int(b.Burst))))
}

// left is what was left out of an object since it was recorded last.
func (b *bounds) left(uid types.UID) events.Left {
	if a := b.objects[hashOf(string(uid))]; a != nil {
		return a.left
	}
	return events.Left{}
}

// admits tells whether the next version of an object may be recorded now, and keeps it
// otherwise, in the place of the one that waited; at is when there is room for it.
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

// account is that of an object, which is made where there is none.
func (b *bounds) account(uid types.UID, now time.Time) *account {
	key := hashOf(string(uid))
	a := b.objects[key]
	if a == nil {
		if len(b.objects) >= max(b.sweepAt, fewBusy) {
			b.sweep(now)
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
	b.free(a)
}

// free has no version of an object wait.
func (b *bounds) free(a *account) {
	b.waiting -= len(a.waits.delta.Body)
	b.waits--
	a.waits = nil
}

// recorded notes that the log has an object as it is, or its end.
func (b *bounds) recorded(d events.Delta) {
	a := b.objects[hashOf(string(d.UID))]
	if a == nil {
		return
	}
	if a.left = (events.Left{}); d.Op == events.Gone {
		delete(b.objects, hashOf(string(d.UID)))
	}
}

// ends notes that an object is to be said to be gone.
func (b *bounds) ends(uid types.UID) {
	if a := b.objects[hashOf(string(uid))]; a != nil {
		b.drop(a)
	}
}

// sweep forgets objects that are not busy.
func (b *bounds) sweep(now time.Time) {
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

// abandon forgets the versions that wait, since a session begins that meets them again:
// those that were left out as well, where it resumes from what was recorded before them.
func (b *bounds) abandon(resumed bool) {
	for _, a := range b.objects {
		if a.waits != nil {
			b.free(a)
		}
		if resumed {
			a.left = events.Left{}
		}
	}
}

// due are the accounts with a version that is to be recorded now, those first that have
// waited longest: all of them, or those for which there is room. Where too much waits the
// oldest have room. next is when another one has.
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

// withhold keeps a version that is beyond the bound of its object, and tells whether it is.
func (k *kindWatch) withhold(d events.Delta, wrote translate.Writers, first bool) bool {
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

// wakeAt has the watch look at what waits, at a moment.
func (k *kindWatch) wakeAt(at time.Time) {
	if !k.waking.IsZero() && !at.Before(k.waking) && time.Now().Before(k.waking) {
		return // it looks before that
	}
	k.waking = at
	bell := k.bell
	time.AfterFunc(time.Until(at), func() { knock(bell) })
}

// recordWaiting appends the versions for which there is room by now, or all that wait. They
// come behind versions of other objects that are newer, so they are said as what a relist
// finds. When none waits any more a mark says that everything has been said.
func (k *kindWatch) recordWaiting(ctx context.Context, all bool) error {
	due, next := k.bounds.due(all, time.Now())
	for _, a := range due {
		w := *a.waits
		k.bounds.free(a)
		w.delta.Sync, w.delta.At, w.delta.Left = true, time.Now(), a.left
		k.bounds.charge(a, w.delta, w.delta.At)
		if err := k.append(ctx, w.delta); err != nil {
			return err
		}
		k.bounds.recorded(w.delta)
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

// catchUp records what waits when a watch ends, so that the next one can go on from there.
func (k *kindWatch) catchUp(ctx context.Context) error {
	if k.bounds.waits == 0 || k.torn {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	return k.mark(ctx)
}
