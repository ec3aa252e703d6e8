package reflector

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// TestAQuietObjectStaysThoughTheLogIsSmall: other objects change so often that the log, which is
// bounded by size, is replaced many times within a fraction of its age.
func TestAQuietObjectStaysThoughTheLogIsSmall(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{LogBytes: 20_000})
	k := past(t, b, 3, 0)
	quiet := subject.Delta(events.Ref{Kind: "pods", Namespace: "default", Name: "p0"})
	turnedOver := 0
	for i := 0; turnedOver < 5; i++ {
		log := watchertest.Standing(t, b, subject.LogStream("pods"))
		k.noteLimits(t.Context(), log)
		if k.aboutToExpire() {
			if _, err := k.keyframes(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		d := events.Delta{
			Kind: "pods", Op: events.Is, UID: "u2", ResourceVersion: fmt.Sprint(10 + i), At: time.Now(),
			Ref: events.Ref{Kind: "pods", Namespace: "default", Name: "p2"}, Body: []byte(strings.Repeat("x", 200)),
		}
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if _, there, err := b.Last(t.Context(), subject.LogStream("pods"), quiet); err != nil || !there {
			t.Fatalf("after %d messages the log of %d to %d has the quiet object: %t, %v; want it", i, log.First, log.Last, there, err)
		}
		turnedOver = int(log.First) / max(1, int(log.Messages))
	}
	if again := k.appender.Last(); again < 100 {
		t.Errorf("only %d messages were stored", again)
	}
}

// TestALogThatIsTooSmallIsNotFilledWithWhatIsThere: otherwise it would hold nothing but keyframes.
func TestALogThatIsTooSmallIsNotFilledWithWhatIsThere(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{LogBytes: 2_000}), 200, 0)
	log := watchertest.Standing(t, k.bus, subject.LogStream("pods"))
	if k.noteLimits(t.Context(), log); !k.overfull {
		t.Errorf("%d bytes are enough for 200 objects", log.Keeps.Bytes)
	}
	if k.aboutToExpire() {
		t.Errorf("a log of %d messages is to have 200 objects", log.Messages)
	}
}

// TestAShorterAgeIsNoticed: the age limit becomes lower while the watcher runs, and it records
// older objects again at once.
func TestAShorterAgeIsNoticed(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{}), 3, 0)
	log := watchertest.Standing(t, k.bus, subject.LogStream("pods"))
	k.noteLimits(t.Context(), log)
	k.ageLowered = false
	if k.noteLimits(t.Context(), log); k.aboutToExpire() {
		t.Fatal("the log is about to expire though nothing has changed")
	}
	log.Keeps.Age /= 2
	if k.noteLimits(t.Context(), log); k.age != log.Keeps.Age || !k.aboutToExpire() || k.aboutToExpire() {
		t.Errorf("an age of %v is not noticed once", k.age)
	}
}

// reach follows from the number of objects and from the log's room.
func TestHowFarTheLogReaches(t *testing.T) {
	t.Parallel()
	with := func(objects, room uint64, counted bool) *Reflector {
		k := &Reflector{room: room}
		k.counted = counted
		for i := range objects {
			k.tally.Fold(events.Delta{Op: events.Is, Ref: events.Ref{Kind: "pods", Name: fmt.Sprint(i)}, UID: "u", ResourceVersion: "1"})
		}
		return k
	}
	for what, c := range map[string]struct {
		k    *Reflector
		want uint64
	}{
		"not counted": {with(3, 0, false), math.MaxUint64}, "few": {with(3, 0, true), reachLeast}, "many": {with(5000, 0, true), 15_000},
		"little room": {with(3, 100, true), 50}, "less than is there": {with(300, 100, true), 600}, "room for all": {with(3, 1_000_000, true), reachLeast},
	} {
		if got := c.k.reach(); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
	k := with(100, 0, true)
	for what, c := range map[string]struct {
		log    bus.State
		age    time.Duration
		room   uint64
		narrow bool
	}{
		"no bound":        {bus.State{Bytes: 1000, Messages: 10}, defaultLogAge, 0, false},
		"an age":          {bus.State{Keeps: bus.Retention{Age: time.Hour}}, time.Hour, 0, false},
		"far from a size": {bus.State{Keeps: bus.Retention{Bytes: 4004}, Bytes: 1000, Messages: 100}, defaultLogAge, 0, false},
		"near a size":     {bus.State{Keeps: bus.Retention{Bytes: 4000}, Bytes: 1000, Messages: 100}, defaultLogAge, 400, false},
		"a small size":    {bus.State{Keeps: bus.Retention{Bytes: 3990}, Bytes: 1000, Messages: 100}, defaultLogAge, 399, true},
		"hardly a size":   {bus.State{Keeps: bus.Retention{Bytes: 4}, Bytes: 1000, Messages: 1}, defaultLogAge, 1, true},
	} {
		if k.noteLimits(t.Context(), c.log); k.age != c.age || k.room != c.room || k.overfull != c.narrow {
			t.Errorf("%s: the log keeps %v, with room for %d, too small: %t; want %v, %d, %t", what, k.age, k.room, k.overfull, c.age, c.room, c.narrow)
		}
	}
	k = with(1, 0, true)
	k.age = time.Hour
	if k.noteLimits(t.Context(), bus.State{Keeps: bus.Retention{Age: time.Hour}}); k.ageLowered {
		t.Error("the same age is shorter")
	}
	if k.noteLimits(t.Context(), bus.State{Keeps: bus.Retention{Age: time.Minute}}); !k.ageLowered || k.minKeyframeWait() != time.Minute/8 {
		t.Errorf("a shorter age is not noticed, or the next look is in %v", k.minKeyframeWait())
	}
	k.age = 24 * time.Hour
	if k.minKeyframeWait() != keyframeSoon {
		t.Errorf("of a long age the next look is in %v, want soon", k.minKeyframeWait())
	}
}
