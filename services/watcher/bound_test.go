package watcher

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/translate"
)

// large is the size of the object that is written again and again.
const large = 8 << 10

// bounded has a watcher record so much of each object.
func bounded(burst, perSecond int64) func(*Config) {
	return func(c *Config) { c.Bound = Bound{Burst: burst, PerSecond: perSecond} }
}

// newestOf is the newest delta of an object, and how many versions of it are recorded and
// were left out.
func newestOf(t *testing.T, b bus.Bus, name string) (newest events.Delta, recorded, left int) {
	t.Helper()
	for _, d := range logOf(t, b) {
		if d.Ref.Name == name && (newest.ResourceVersion != d.ResourceVersion || newest.Op != d.Op) {
			newest, recorded, left = d, recorded+1, left+int(d.Left.Versions)
		}
	}
	return newest, recorded, left
}

// TestAnObjectIsRecordedNoFasterThanItsBound: versions are left out and counted, the
// newest is recorded in the end, and the log of others is as it is without.
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

// inOrder checks that versions that are not said again come in order, and that nothing
// waits behind a mark.
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

// TestBeginningsAndEndsDoNotWait of objects that are over their bound.
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

// TestWhatWaitsIsRecordedWhenTheWatchEnds, so that the next watcher goes on from there.
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

// severed is a bus on which nothing can be stored any more once it is cut.
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

// TestWhatWaitedIsFoundAfterACrash: the log has newer versions of other objects, and says
// that it is no position to go on from.
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

// TestBoundsTakeMemoryForBusyObjectsOnly, and bound the bytes that wait.
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
	if b.sweep(now.Add(time.Second)); len(b.objects) != 0 {
		t.Errorf("%d are at rest and kept account of", len(b.objects))
	}
	for i := range 200 {
		b.admits(version(i, 1<<20), translate.Writers{}, false, now)
		b.admits(version(i, 1<<20), translate.Writers{}, false, now)
		due, _ := b.due(false, now)
		for _, a := range due {
			b.free(a)
		}
		if b.waiting > maxWaiting {
			t.Fatalf("%d bytes wait", b.waiting)
		}
	}
	if b.waits == 0 {
		t.Error("nothing waits")
	}
}

// BenchmarkBounds is what a version costs that is within its bound.
func BenchmarkBounds(b *testing.B) {
	all := bounds{Bound: DefaultBound}
	d, now := events.Delta{UID: "b0c5f7a2-3f4e-4d6b-9c55-3f1c8a1f5a10", Op: events.Is, Body: make([]byte, 4<<10)}, time.Now()
	for b.Loop() {
		now = now.Add(time.Second)
		all.admits(d, translate.Writers{}, false, now)
	}
}
