package versions

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/watcher/translate"
)

// TestBoundsTakeMemoryForBusyObjectsOnly, and the bytes of the waiting versions are bounded.
func TestBoundsTakeMemoryForBusyObjectsOnly(t *testing.T) {
	t.Parallel()
	b, now := Bounds{Bound: Bound{Burst: 1 << 20, PerSecond: 1 << 20}}, time.Unix(1e9, 0)
	version := func(i, bytes int) events.Delta {
		return events.Delta{UID: types.UID(fmt.Sprint(i)), Op: events.Is, Body: make([]byte, bytes)}
	}
	most := 0
	for i := range 20_000 { // each is busy for a millisecond
		now = now.Add(time.Millisecond)
		if admitted, _ := b.Admits(version(i, 1<<10), translate.Writers{}, false, now); !admitted {
			t.Fatal("a small version waits")
		}
		most = max(most, len(b.objects))
	}
	if most > 2*fewBusy {
		t.Errorf("%d objects are kept account of, where one is busy at a time", most)
	}
	if b.DropIdle(now.Add(time.Second)); len(b.objects) != 0 {
		t.Errorf("%d are at rest and kept account of", len(b.objects))
	}
	for i := range 200 {
		b.Admits(version(i, 1<<20), translate.Writers{}, false, now)
		b.Admits(version(i, 1<<20), translate.Writers{}, false, now)
		due, _ := b.Due(false, now)
		for _, a := range due {
			b.clear(a)
		}
		if b.waiting > MaxWaiting {
			t.Fatalf("%d bytes wait", b.waiting)
		}
	}
	if b.waits == 0 {
		t.Error("no version waits")
	}
}

// The watcher sweeps accounts when there are twice as many as the last sweep left, and at least 64.
func TestWhenAccountsAreSwept(t *testing.T) {
	t.Parallel()
	b, now := Bounds{Bound: Bound{Burst: 1000, PerSecond: 1}}, time.Unix(1e9, 0)
	add := func(from, to int, after time.Duration) int {
		for i := from; i < to; i++ {
			b.Admits(events.Delta{UID: types.UID(fmt.Sprint(i)), Op: events.Is, Body: make([]byte, 100)}, translate.Writers{}, false, now.Add(after))
		}
		return len(b.objects)
	}
	if got := add(0, 64, 0); got != 64 {
		t.Errorf("%d accounts are kept of 64 objects", got)
	}
	if got := add(64, 65, 99*time.Second); got != 65 || b.sweepAt != 128 {
		t.Errorf("%d accounts are kept of 65 busy objects, swept at %d", got, b.sweepAt)
	}
	if got := add(65, 128, 101*time.Second); got != 128 {
		t.Errorf("%d accounts are kept of 128 objects, most of which are at rest", got)
	}
	if got := add(128, 129, 101*time.Second); got != 65 {
		t.Errorf("%d accounts are kept of 65 busy objects and 64 at rest", got)
	}
}

// The next account is the one that has room first, however long others have waited. Versions that
// exactly fill the memory wait.
func TestWhenTheNextVersionIsDue(t *testing.T) {
	t.Parallel()
	b, now := Bounds{Bound: Bound{Burst: 100, PerSecond: 100}}, time.Now()
	for i, c := range []struct {
		uid   types.UID
		bytes int
	}{{"a", 90}, {"b", 20}, {"c", 50}} {
		b.Admits(events.Delta{UID: c.uid, Body: make([]byte, 100)}, translate.Writers{}, false, now)
		b.Admits(events.Delta{UID: c.uid, Body: make([]byte, c.bytes)}, translate.Writers{}, false, now.Add(time.Duration(i)))
	}
	if due, next := b.Due(false, now); len(due) != 0 || !next.Equal(now.Add(200*time.Millisecond)) {
		t.Errorf("%d are due, the next in %v, want it in 200 ms", len(due), next.Sub(now))
	}
	for over, want := range map[int]int{-1: 0, 0: 0, 1: 1, 90: 1, 91: 2, 160: 3} {
		b.waiting = MaxWaiting + over
		if due, _ := b.Due(false, now); len(due) != want {
			t.Errorf("with %d bytes too many %d are due, want %d", over, len(due), want)
		}
	}
}

// BenchmarkBounds measures the cost of a version that is within its bound.
func BenchmarkBounds(b *testing.B) {
	all := Bounds{Bound: DefaultBound}
	d, now := events.Delta{UID: "b0c5f7a2-3f4e-4d6b-9c55-3f1c8a1f5a10", Op: events.Is, Body: make([]byte, 4<<10)}, time.Now()
	for b.Loop() {
		now = now.Add(time.Second)
		all.Admits(d, translate.Writers{}, false, now)
	}
}

// An object gains room as time pays for its bytes.
func TestTheRoomOfAnObject(t *testing.T) {
	t.Parallel()
	b := Bounds{Bound: Bound{Burst: 1000, PerSecond: 100}}
	now := time.Now()
	a := &Account{}
	if at := b.room(a, 1000); at.After(now) {
		t.Errorf("an object of which nothing is recorded waits until %v", at)
	}
	b.charge(a, events.Delta{Body: make([]byte, 1000)}, now)
	for bytes, want := range map[int]time.Duration{1: 10 * time.Millisecond, 500: 5 * time.Second, 1000: 10 * time.Second, 5000: 10 * time.Second} {
		if at := b.room(a, bytes).Sub(now); at != want {
			t.Errorf("%d bytes wait %v, want %v", bytes, at, want)
		}
	}
	b.charge(a, events.Delta{Body: make([]byte, 100), Deleting: true}, now.Add(time.Second))
	if at := b.room(a, 1000).Sub(now); at != 11*time.Second || !a.deleting {
		t.Errorf("after 100 bytes more a version waits until %v, want 11s", at)
	}
	b.charge(a, events.Delta{Body: make([]byte, 100)}, now.Add(time.Hour))
	if at := b.room(a, 1000).Sub(now.Add(time.Hour)); at != time.Second || a.deleting {
		t.Errorf("after an hour at rest a version waits %v, want 1s", at)
	}
	for bound, off := range map[Bound]bool{{}: true, {1, 1}: false, {1, 0}: true, {0, 1}: true, {-1, 1}: true, {1, -1}: true} {
		if b := (Bounds{Bound: bound}); b.Off() != off {
			t.Errorf("%+v is off: %t, want the opposite", bound, b.Off())
		}
	}
	if got := (Bound{Burst: 3}).Or(Bound{Burst: 5, PerSecond: 7}); got != (Bound{3, 7}) {
		t.Errorf("a bound that is given in part is %+v, want the rest from the default", got)
	}
}

// A version waits when there is no room; only the newest waits, and earlier ones are counted.
func TestVersionsThatWait(t *testing.T) {
	t.Parallel()
	b, now := Bounds{Bound: Bound{Burst: 100, PerSecond: 100}}, time.Now()
	dropped := 0
	b.LeftOut = func(bytes int) { dropped += bytes }
	is := func(uid types.UID, size int, deleting bool) events.Delta {
		return events.Delta{UID: uid, Op: events.Is, Body: make([]byte, size), Deleting: deleting}
	}
	admits := func(d events.Delta, first bool, after time.Duration) bool {
		admitted, _ := b.Admits(d, translate.Writers{}, first, now.Add(after))
		return admitted
	}
	if !admits(is("a", 100, false), false, 0) || admits(is("a", 100, false), false, 0) || b.waits != 1 || b.waiting != 100 {
		t.Fatalf("of two versions %d wait, with %d bytes; want 1, 100", b.waits, b.waiting)
	}
	if admits(is("a", 60, false), false, 0) || b.waits != 1 || b.waiting != 60 || dropped != 100 || b.Left("a") != (events.Left{Versions: 1, Bytes: 100}) {
		t.Errorf("of three versions %d wait, with %d bytes, and %d bytes were left out: %+v", b.waits, b.waiting, dropped, b.Left("a"))
	}
	if !admits(is("b", 1000, false), true, 0) || b.Left("b") != (events.Left{}) || b.Left("c") != (events.Left{}) {
		t.Error("the first version of an object waits")
	}
	if due, next := b.Due(false, now); len(due) != 0 || !next.Equal(now.Add(600*time.Millisecond)) {
		t.Errorf("at once %d versions are due, the next in %v; want none, 600ms", len(due), next.Sub(now))
	}
	if due, next := b.Due(true, now); len(due) != 1 || !next.IsZero() {
		t.Errorf("of all versions %d are due, the next at %v; want 1, none", len(due), next)
	}
	if due, next := b.Due(false, now.Add(600*time.Millisecond)); len(due) != 1 || !next.IsZero() {
		t.Errorf("in time %d are due, the next at %v", len(due), next)
	}
	if !admits(is("a", 50, true), false, 0) || b.waits != 0 || b.waiting != 0 {
		t.Error("a deletion waits")
	}
	if admits(is("a", 50, true), false, 0) {
		t.Error("a change of an object that is being deleted does not wait")
	}
	b.DropAtEnd("a")
	b.DropAtEnd("c")
	if b.waits != 0 || b.Left("a").Versions != 3 {
		t.Errorf("at its end %d wait, and %+v was left out", b.waits, b.Left("a"))
	}
	b.NoteRecorded(events.Delta{UID: "a", Op: events.Is})
	b.NoteRecorded(events.Delta{UID: "c", Op: events.Is})
	if b.Left("a") != (events.Left{}) || len(b.objects) != 2 {
		t.Errorf("once it is recorded %+v was left out, of %d objects", b.Left("a"), len(b.objects))
	}
	if b.NoteRecorded(events.Delta{UID: "a", Op: events.Gone}); len(b.objects) != 1 {
		t.Errorf("of an object that is gone %d are known, want 1", len(b.objects))
	}
	if due, next := b.Due(true, now); due != nil || !next.IsZero() {
		t.Errorf("of nothing %d versions are due", len(due))
	}
	admits(is("b", 100, false), false, 0)
	b.objects[hashOf("b")].left.Versions = 7
	if b.DropAll(false); b.waits != 0 || b.Left("b").Versions != 7 {
		t.Errorf("after a list %d versions wait, and %+v was left out; want 0 and 7", b.waits, b.Left("b"))
	}
	if b.DropAll(true); b.Left("b").Versions != 0 {
		t.Errorf("after a resume %+v was left out, want none", b.Left("b"))
	}
	if b.DropIdle(now); len(b.objects) != 1 || b.sweepAt != 2 {
		t.Errorf("with a busy object %d are known, want 1", len(b.objects))
	}
	if b.DropIdle(now.Add(time.Hour)); b.objects != nil || b.sweepAt != 0 {
		t.Errorf("with an object at rest %d are known, want none", len(b.objects))
	}
}

// The watcher records the oldest waiting version before the waiting ones exceed their memory.
func TestWhatWaitsHasABound(t *testing.T) {
	t.Parallel()
	b, now := Bounds{Bound: Bound{Burst: 1, PerSecond: 1}}, time.Now()
	for i, uid := range []types.UID{"c", "a", "b"} {
		b.Admits(events.Delta{UID: uid}, translate.Writers{}, true, now)
		b.objects[hashOf(uid)].idle = now.Add(time.Hour)
		b.Admits(events.Delta{UID: uid, Body: make([]byte, MaxWaiting/2)}, translate.Writers{}, false, now.Add(time.Duration(min(i, 1))))
	}
	due, _ := b.Due(false, now)
	if len(due) != 1 || due[0].waits.delta.UID != "c" {
		t.Errorf("%d are due, want the oldest", len(due))
	}
	if due, _ = b.Due(true, now); len(due) != 3 || due[1].waits.delta.UID != "a" || due[2].waits.delta.UID != "b" {
		t.Errorf("%d are due, want all, the oldest first", len(due))
	}
}
