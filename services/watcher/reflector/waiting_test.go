package reflector

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/versions"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// waitingFor is a watch of pods with some pods on record and this bound.
func waitingFor(t *testing.T, bound versions.Bound) *Reflector {
	t.Helper()
	k, _ := recorded(t, 3, 0)
	k.wake, k.bounds.Bound = make(chan struct{}, 1), bound
	return k
}

// A version that waits wakes the watch when there is room, or at once when too many bytes wait.
func TestWhatIsKeptBackWakesTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := waitingFor(t, versions.Bound{Burst: -1})
		if k.holdBack(pod(8, 1<<20), translate.Writers{}, false) || !reflect.DeepEqual(k.bounds, versions.Bounds{Bound: k.bounds.Bound}) {
			t.Errorf("without a bound a version is held back, or counted: %+v", k.bounds)
		}
		k.bounds.Bound = versions.Bound{Burst: 100, PerSecond: 100}
		if k.holdBack(pod(8, 100), translate.Writers{}, false) || !k.waking.IsZero() {
			t.Errorf("a version within the bound is held back, or wakes the watch at %v", k.waking)
		}
		if !k.holdBack(pod(9, 50), translate.Writers{}, false) {
			t.Error("a version beyond the bound is not held back")
		}
		time.Sleep(499 * time.Millisecond) // virtual
		if watchertest.Rings(k.wake) {
			t.Error("the watch wakes before there is room")
		}
		if time.Sleep(time.Millisecond); !watchertest.Rings(k.wake) {
			t.Error("the watch does not wake when there is room")
		}
		k.bounds.Bound = versions.Bound{Burst: 100, PerSecond: 1}
		if k.holdBack(pod(10, versions.MaxWaiting), translate.Writers{}, false); watchertest.Rings(k.wake) {
			t.Error("the watch wakes although no more waits than may")
		}
		if k.holdBack(pod(11, versions.MaxWaiting+1), translate.Writers{}, false); !watchertest.Rings(k.wake) {
			t.Error("the watch does not wake at once although more waits than may")
		}
	})
}

// A watch wakes at the earliest of several wake-up times.
func TestAWatchWakesOnceForWhatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Reflector{wake: make(chan struct{}, 1)}
		began := time.Now()
		var rung []time.Duration
		to := func(at time.Duration) {
			for time.Since(began) < at {
				if time.Sleep(time.Second); watchertest.Rings(k.wake) {
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
		watchertest.InTime(t, "it wakes", rung, 10*time.Second, 18*time.Second, 25*time.Second, 45*time.Second)
	})
}

// The watcher records a waiting version with Sync, like a relist's, and with the count of the
// versions left out before it. When no version waits any more, it appends a mark.
func TestWhatWaitsIsRecordedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := waitingFor(t, versions.Bound{Burst: 100, PerSecond: 100})
		said := func(what string, want ...string) (log []events.Delta) {
			t.Helper()
			log = watchertest.LogOf(t, k.bus)[4:]
			if got := watchertest.Ops(log); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: the log has %v, want %v", what, got, want)
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
		if time.Sleep(500 * time.Millisecond); !watchertest.Rings(k.wake) { // virtual
			t.Error("the watch does not wake for the first version")
		}
		if err := k.recordWaiting(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		log := said("with room for one", "is p0")
		if d := log[0]; !d.Sync || d.ResourceVersion != "10" || d.Left != (events.Left{Versions: 1, Bytes: 40}) || d.Waits != 1 || !d.At.Equal(time.Now()) {
			t.Errorf("the late version is recorded as %+v", d)
		}
		if k.bounds.Left("u0") != (events.Left{}) {
			t.Errorf("%+v is left out of what is recorded, want none", k.bounds.Left("u0"))
		}
		if time.Sleep(300 * time.Millisecond); !watchertest.Rings(k.wake) {
			t.Error("the watch does not wake for the other version")
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
			t.Error("a version that is recorded late does not count towards the bound")
		}
		k.holdBack(pod(12, 100), translate.Writers{}, false)
		if err := k.recordWaiting(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		said("of all, without a mark", "is p0", "is p1", "mark", "is p0")
		k.holdBack(pod(13, 100), translate.Writers{}, false)
		k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
		if err := k.recordWaiting(t.Context(), true); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("versions that the log refuses: %v, want ErrOvertaken", err)
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
		k := waitingFor(t, versions.Bound{Burst: 100, PerSecond: 100})
		k.holdBack(pod(8, 100), translate.Writers{}, false)
		if c.waits {
			k.holdBack(pod(9, 100), translate.Writers{}, false)
		}
		k.unsure = c.torn
		if err := k.catchUp(ended); err != nil {
			t.Errorf("%s: catch up: %v", what, err)
		}
		if got := fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, k.bus)[4:])); got != c.want {
			t.Errorf("%s: the log has %s, want %s", what, got, c.want)
		}
	}
}

// pod is a version of the first pod on record.
func pod(version, bytes int) events.Delta {
	return events.Delta{
		Kind: "pods", Op: events.Is, UID: "u0", ResourceVersion: fmt.Sprint(version), At: time.Now(), Body: make([]byte, bytes),
		Ref: events.Ref{Kind: "pods", Namespace: "default", Name: "p0"},
	}
}
