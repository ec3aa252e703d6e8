package watcher

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/translate"
)

// large is the size of the object that the tests write again and again.
const large = 8 << 10

// bounded sets a watcher's Bound.
func bounded(burst, perSecond int64) func(*Config) {
	return func(c *Config) { c.Bound = Bound{Burst: burst, PerSecond: perSecond} }
}

// newestOf returns the newest delta of an object, and how many of its versions the log has and how
// many were left out.
func newestOf(t *testing.T, b bus.Bus, name string) (newest events.Delta, recorded, left int) {
	t.Helper()
	for _, d := range logOf(t, b) {
		if d.Ref.Name == name && (newest.ResourceVersion != d.ResourceVersion || newest.Op != d.Op) {
			newest, recorded, left = d, recorded+1, left+int(d.Left.Versions)
		}
	}
	return newest, recorded, left
}

// TestAnObjectIsRecordedNoFasterThanItsBound: the watcher leaves versions out, counts them, and
// records the newest in the end. The deltas of other objects are the same as without a bound.
func TestAnObjectIsRecordedNoFasterThanItsBound(t *testing.T) {
	t.Parallel()
	const rewrites = 60
	s, b := serve(t), memory.New(memory.Options{})
	service, _ := start(t, s, b, "one", bounded(4*large, large))
	until(t, func() bool { return len(logOf(t, b)) == 1 }) // the mark of an empty list
	for i := range rewrites {
		s.change("MODIFIED", "other", 0)
		s.change("MODIFIED", "large", large+i)
	}
	until(t, func() bool { _, recorded, _ := newestOf(t, b, "other"); return recorded == rewrites })
	if _, recorded, _ := newestOf(t, b, "large"); recorded > 10 {
		t.Fatalf("%d versions of %d bytes are recorded at once, with a burst of four", recorded, large)
	}
	last := fmt.Sprint(1 + 2*rewrites)
	until(t, func() bool { d, _, _ := newestOf(t, b, "large"); return d.ResourceVersion == last })
	if _, recorded, left := newestOf(t, b, "large"); recorded+left != rewrites || left < rewrites/2 {
		t.Errorf("%d versions are recorded and %d said to be left out, of %d", recorded, left, rewrites)
	}
	if got := int(testutil.ToFloat64(service.metrics.leftOut.WithLabelValues("pods"))); got < rewrites/2 {
		t.Errorf("the metric says that %d were left out", got)
	}
	until(t, func() bool { log := logOf(t, b); return log[len(log)-1].Op == events.Mark })
	inOrder(t, logOf(t, b))
}

// inOrder checks that versions without Sync come in order, and that no version waits at a mark.
func inOrder(t *testing.T, log []events.Delta) {
	t.Helper()
	at, waits := 0, false
	for _, d := range log {
		version, _ := strconv.Atoi(d.ResourceVersion)
		if !d.Sync && version < at {
			t.Errorf("%s %v at %d comes behind %d", d.Op, d.Ref, version, at)
		}
		at, waits = max(at, version), waits || d.Waits > 0
		if d.Op == events.Mark && d.Waits > 0 {
			t.Errorf("a mark says that everything up to %s was seen, and %d wait", d.ResourceVersion, d.Waits)
		}
	}
	if !waits {
		t.Error("no delta says that a version waits")
	}
}

// TestBeginningsAndEndsDoNotWait: the first version and the end of an object do not wait, even when
// it is over its bound.
func TestBeginningsAndEndsDoNotWait(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	start(t, s, b, "one", bounded(1, 1)) // a version each two hours
	until(t, func() bool { return len(logOf(t, b)) == 1 })
	for range 2 {
		s.change("ADDED", "large", large)
		for range 5 {
			s.change("MODIFIED", "large", large)
		}
		s.change("DELETED", "large", large)
	}
	eventually(t, b, "is large", "gone large", "is large", "gone large")
	for _, d := range logOf(t, b) {
		if d.Op == events.Gone && d.Left.Versions != 5 {
			t.Errorf("the end says that %d versions were left out, want 5", d.Left.Versions)
		}
	}
}

// TestWhatWaitsIsRecordedWhenTheWatchEnds, so that the next watcher can resume from there.
func TestWhatWaitsIsRecordedWhenTheWatchEnds(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one", bounded(1, 1))
	until(t, func() bool { return len(logOf(t, b)) == 1 }) // the mark of an empty list
	s.change("ADDED", "large", large)
	eventually(t, b, "is large")
	s.change("MODIFIED", "large", large)
	s.change("ADDED", "other", 0)
	eventually(t, b, "is large", "is other")
	stop()
	eventually(t, b, "is large", "is other", "is large")
	start(t, s, b, "two", bounded(1, 1))
	s.change("ADDED", "more", 0)
	eventually(t, b, "is large", "is other", "is large", "is more")
}

// severed is a bus that stores nothing once it is cut.
type severed struct {
	bus.Bus
	cut atomic.Bool
}

type severedAppender struct {
	bus.Appender
	from *severed
}

var errCut = errors.New("cut off")

func (s *severed) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	a, err := s.Bus.Append(ctx, kind)
	return &severedAppender{a, s}, err
}

func (a *severedAppender) Append(ctx context.Context, m events.Message) error {
	if a.from.cut.Load() {
		return errCut
	}
	return a.Appender.Append(ctx, m)
}

// TestWhatWaitedIsFoundAfterACrash: the log has newer versions of other objects, and its newest
// delta says that a watch cannot resume from it.
func TestWhatWaitedIsFoundAfterACrash(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	first := &severed{Bus: b}
	_, stop := start(t, s, first, "one", bounded(1, 1))
	until(t, func() bool { return len(logOf(t, b)) == 1 }) // the mark of an empty list
	s.change("ADDED", "large", large)
	eventually(t, b, "is large")
	s.change("MODIFIED", "large", large) // waits
	s.change("ADDED", "other", 0)
	eventually(t, b, "is large", "is other")
	first.cut.Store(true)
	stop()
	start(t, s, b, "two", bounded(1, 1))
	eventually(t, b, "is large", "is other", "is large", "gap")
	log := logOf(t, b)
	if gap := log[len(log)-2]; gap.Op != events.Gap || !strings.Contains(string(gap.Body), "waited") {
		t.Errorf("the gap does not say why: %s", gap.Body)
	}
}

// TestBoundsTakeMemoryForBusyObjectsOnly, and the bytes of the waiting versions are bounded.
func TestBoundsTakeMemoryForBusyObjectsOnly(t *testing.T) {
	t.Parallel()
	b, now := bounds{Bound: Bound{Burst: 1 << 20, PerSecond: 1 << 20}}, time.Unix(1e9, 0)
	version := func(i, bytes int) events.Delta {
		return events.Delta{UID: types.UID(fmt.Sprint(i)), Op: events.Is, Body: make([]byte, bytes)}
	}
	most := 0
	for i := range 20_000 { // each is busy for a millisecond
		now = now.Add(time.Millisecond)
		if admitted, _ := b.admits(version(i, 1<<10), translate.Writers{}, false, now); !admitted {
			t.Fatal("a small version waits")
		}
		most = max(most, len(b.objects))
	}
	if most > 2*fewBusy {
		t.Errorf("%d objects are kept account of, where one is busy at a time", most)
	}
	if b.dropIdle(now.Add(time.Second)); len(b.objects) != 0 {
		t.Errorf("%d are at rest and kept account of", len(b.objects))
	}
	for i := range 200 {
		b.admits(version(i, 1<<20), translate.Writers{}, false, now)
		b.admits(version(i, 1<<20), translate.Writers{}, false, now)
		due, _ := b.due(false, now)
		for _, a := range due {
			b.clear(a)
		}
		if b.waiting > maxWaiting {
			t.Fatalf("%d bytes wait", b.waiting)
		}
	}
	if b.waits == 0 {
		t.Error("nothing waits")
	}
}

// The watcher sweeps accounts when there are twice as many as the last sweep left, and at least 64.
func TestWhenAccountsAreSwept(t *testing.T) {
	t.Parallel()
	b, now := bounds{Bound: Bound{Burst: 1000, PerSecond: 1}}, time.Unix(1e9, 0)
	add := func(from, to int, after time.Duration) int {
		for i := from; i < to; i++ {
			b.admits(events.Delta{UID: types.UID(fmt.Sprint(i)), Op: events.Is, Body: make([]byte, 100)}, translate.Writers{}, false, now.Add(after))
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
	b, now := bounds{Bound: Bound{Burst: 100, PerSecond: 100}}, time.Now()
	for i, c := range []struct {
		uid   types.UID
		bytes int
	}{{"a", 90}, {"b", 20}, {"c", 50}} {
		b.admits(events.Delta{UID: c.uid, Body: make([]byte, 100)}, translate.Writers{}, false, now)
		b.admits(events.Delta{UID: c.uid, Body: make([]byte, c.bytes)}, translate.Writers{}, false, now.Add(time.Duration(i)))
	}
	if due, next := b.due(false, now); len(due) != 0 || !next.Equal(now.Add(200*time.Millisecond)) {
		t.Errorf("%d are due, the next in %v, want it in 200 ms", len(due), next.Sub(now))
	}
	for over, want := range map[int]int{-1: 0, 0: 0, 1: 1, 90: 1, 91: 2, 160: 3} {
		b.waiting = maxWaiting + over
		if due, _ := b.due(false, now); len(due) != want {
			t.Errorf("with %d bytes too many %d are due, want %d", over, len(due), want)
		}
	}
}

// waitingFor is a watch of pods with some pods on record and this bound.
func waitingFor(t *testing.T, bound Bound) *kindWatch {
	t.Helper()
	k, _ := recorded(t, 3, 0)
	k.wake, k.bounds.Bound = make(chan struct{}, 1), bound
	return k
}

// pod is a version of the first pod on record.
func pod(version, bytes int) events.Delta {
	return events.Delta{
		Kind: "pods", Op: events.Is, UID: "u0", ResourceVersion: fmt.Sprint(version), At: time.Now(), Body: make([]byte, bytes),
		Ref: events.Ref{Kind: "pods", Namespace: "default", Name: "p0"},
	}
}

// rings reports whether a wake has rung, and takes its token.
func rings(wake chan struct{}) bool {
	synctest.Wait()
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// A version that waits wakes the watch when there is room, or at once when too many bytes wait.
func TestWhatIsKeptBackWakesTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := waitingFor(t, Bound{Burst: -1})
		if k.holdBack(pod(8, 1<<20), translate.Writers{}, false) || len(k.bounds.objects) != 0 {
			t.Errorf("without a bound something is kept back, or %d accounts", len(k.bounds.objects))
		}
		k.bounds.Bound = Bound{Burst: 100, PerSecond: 100}
		if k.holdBack(pod(8, 100), translate.Writers{}, false) || !k.waking.IsZero() {
			t.Errorf("what is within the bound is kept back, and wakes the watch at %v", k.waking)
		}
		if !k.holdBack(pod(9, 50), translate.Writers{}, false) {
			t.Error("what is beyond the bound is not kept back")
		}
		time.Sleep(499 * time.Millisecond) // virtual
		if rings(k.wake) {
			t.Error("it wakes before there is room")
		}
		if time.Sleep(time.Millisecond); !rings(k.wake) {
			t.Error("it does not wake when there is room")
		}
		k.bounds.Bound = Bound{Burst: 100, PerSecond: 1}
		if k.holdBack(pod(10, maxWaiting), translate.Writers{}, false); rings(k.wake) {
			t.Error("it wakes although no more waits than may")
		}
		if k.holdBack(pod(11, maxWaiting+1), translate.Writers{}, false); !rings(k.wake) {
			t.Error("it does not wake at once although more waits than may")
		}
	})
}

// A watch wakes at the earliest of several wake-up times.
func TestAWatchWakesOnceForWhatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kindWatch{tracing: newTracing(nil)}
		began := time.Now()
		var rung []time.Duration
		to := func(at time.Duration) {
			for time.Since(began) < at {
				if time.Sleep(time.Second); rings(k.wake) {
					rung = append(rung, time.Since(began))
				}
			}
		}
		wake := func(after time.Duration) { k.wakeAt(began.Add(after)) }
		wake(10 * time.Second)
		wake(20 * time.Second) // it looks before that
		wake(10 * time.Second)
		to(15 * time.Second)
		wake(25 * time.Second)
		wake(18 * time.Second) // and again at 25 s, its first wake-up time
		to(40 * time.Second)
		wake(45 * time.Second)
		to(50 * time.Second)
		inTime(t, "it wakes", rung, 10*time.Second, 18*time.Second, 25*time.Second, 45*time.Second)
	})
}

// The watcher records a waiting version with Sync, like a relist's, and with the count of the
// versions left out before it. When no version waits any more, it appends a mark.
func TestWhatWaitsIsRecordedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := waitingFor(t, Bound{Burst: 100, PerSecond: 100})
		said := func(what string, want ...string) (log []events.Delta) {
			t.Helper()
			log = logOf(t, k.bus)[4:]
			if got := ops(log); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: it says %v, want %v", what, got, want)
			}
			return log
		}
		other := pod(8, 100)
		other.UID, other.Ref.Name = "u1", "p1"
		k.holdBack(pod(8, 100), translate.Writers{}, false)
		k.holdBack(pod(9, 40), translate.Writers{}, false)
		k.holdBack(pod(10, 50), translate.Writers{}, false)
		k.holdBack(other, translate.Writers{}, false)
		other.Body = make([]byte, 80)
		k.holdBack(other, translate.Writers{}, false)
		if err := k.recordWaiting(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		said("before there is room")
		if time.Sleep(500 * time.Millisecond); !rings(k.wake) { // virtual
			t.Error("it does not wake for the first one")
		}
		if err := k.recordWaiting(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		log := said("with room for one", "is p0")
		if d := log[0]; !d.Sync || d.ResourceVersion != "10" || d.Left != (events.Left{Versions: 1, Bytes: 40}) || d.Waits != 1 || !d.At.Equal(time.Now()) {
			t.Errorf("it says %+v", d)
		}
		if k.bounds.left("u0") != (events.Left{}) {
			t.Errorf("%+v is left out of what is recorded", k.bounds.left("u0"))
		}
		if time.Sleep(300 * time.Millisecond); !rings(k.wake) {
			t.Error("it does not wake for the other one")
		}
		if err := k.recordWaiting(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		log = said("with room for all", "is p0", "is p1", "mark")
		if mark := log[2]; mark.Waits != 0 {
			t.Errorf("the mark says that %d wait", mark.Waits)
		}
		if err := k.recordWaiting(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		said("when nothing waits", "is p0", "is p1", "mark")
		if !k.holdBack(pod(11, 40), translate.Writers{}, false) {
			t.Error("what is recorded late does not count")
		}
		k.holdBack(pod(12, 100), translate.Writers{}, false)
		if err := k.recordWaiting(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		said("of all, without a mark", "is p0", "is p1", "mark", "is p0")
		k.holdBack(pod(13, 100), translate.Writers{}, false)
		k.appender = &refusing{k.appender, bus.ErrOvertaken}
		if err := k.recordWaiting(t.Context(), true); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("of what the log refuses: %v", err)
		}
	})
}

// At the end of a watch the watcher records the waiting versions, although the context has ended.
// It records nothing where no version waits, and where the log may lack a delta that was counted.
func TestTheEndOfAWatchCatchesUp(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, c := range map[string]struct {
		waits, torn bool
		want        string
	}{
		"something waits": {true, false, "[is p0 mark]"}, "nothing waits": {false, false, "[]"}, "the log is torn": {true, true, "[]"},
	} {
		k := waitingFor(t, Bound{Burst: 100, PerSecond: 100})
		k.holdBack(pod(8, 100), translate.Writers{}, false)
		if c.waits {
			k.holdBack(pod(9, 100), translate.Writers{}, false)
		}
		k.unsure = c.torn
		if err := k.catchUp(ended); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := fmt.Sprint(ops(logOf(t, k.bus)[4:])); got != c.want {
			t.Errorf("%s: it says %s, want %s", what, got, c.want)
		}
	}
}

// BenchmarkBounds measures the cost of a version that is within its bound.
func BenchmarkBounds(b *testing.B) {
	all := bounds{Bound: DefaultBound}
	d, now := events.Delta{UID: "b0c5f7a2-3f4e-4d6b-9c55-3f1c8a1f5a10", Op: events.Is, Body: make([]byte, 4<<10)}, time.Now()
	for b.Loop() {
		now = now.Add(time.Second)
		all.admits(d, translate.Writers{}, false, now)
	}
}
