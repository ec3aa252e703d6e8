package watcher

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/versions"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// large is the size of the object that the tests write again and again.
const large = 8 << 10

// bounded sets a watcher's Bound.
func bounded(burst, perSecond int64) func(*Config) {
	return func(c *Config) { c.Bound = versions.Bound{Burst: burst, PerSecond: perSecond} }
}

// newestOf returns the newest delta of an object, and how many of its versions the log has and how
// many were left out.
func newestOf(t *testing.T, b bus.Bus, name string) (newest events.Delta, recorded, left int) {
	t.Helper()
	for _, d := range watchertest.LogOf(t, b) {
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
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	service, _ := start(t, s, b, "one", bounded(4*large, large))
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 1 }) // the mark of an empty list
	for i := range rewrites {
		s.PutPod("other", 0)
		s.PutPod("large", large+i)
	}
	watchertest.Until(t, func() bool { _, recorded, _ := newestOf(t, b, "other"); return recorded == rewrites })
	if _, recorded, _ := newestOf(t, b, "large"); recorded > 10 {
		t.Fatalf("%d versions of %d bytes are recorded at once, with a burst of four", recorded, large)
	}
	last := fmt.Sprint(1 + 2*rewrites)
	watchertest.Until(t, func() bool { d, _, _ := newestOf(t, b, "large"); return d.ResourceVersion == last })
	if _, recorded, left := newestOf(t, b, "large"); recorded+left != rewrites || left < rewrites/2 {
		t.Errorf("%d versions are recorded and %d said to be left out, of %d", recorded, left, rewrites)
	}
	if got := int(metrictest.Collect(t, service.Collectors()...).Sum("millrace_watcher_left_out_versions_total", "kind=pods")); got < rewrites/2 {
		t.Errorf("the metric says that %d were left out", got)
	}
	watchertest.Until(t, func() bool { log := watchertest.LogOf(t, b); return log[len(log)-1].Op == events.Mark })
	inOrder(t, watchertest.LogOf(t, b))
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
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	start(t, s, b, "one", bounded(1, 1)) // a version each two hours
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 1 })
	for range 2 {
		s.PutPod("large", large)
		for range 5 {
			s.PutPod("large", large)
		}
		s.RemovePod("large")
	}
	watchertest.Eventually(t, b, "is large", "gone large", "is large", "gone large")
	for _, d := range watchertest.LogOf(t, b) {
		if d.Op == events.Gone && d.Left.Versions != 5 {
			t.Errorf("the end says that %d versions were left out, want 5", d.Left.Versions)
		}
	}
}

// TestWhatWaitsIsRecordedWhenTheWatchEnds, so that the next watcher can resume from there.
func TestWhatWaitsIsRecordedWhenTheWatchEnds(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one", bounded(1, 1))
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 1 }) // the mark of an empty list
	s.PutPod("large", large)
	watchertest.Eventually(t, b, "is large")
	s.PutPod("large", large)
	s.PutPod("other", 0)
	watchertest.Eventually(t, b, "is large", "is other")
	stop()
	watchertest.Eventually(t, b, "is large", "is other", "is large")
	start(t, s, b, "two", bounded(1, 1))
	s.PutPod("more", 0)
	watchertest.Eventually(t, b, "is large", "is other", "is large", "is more")
}

// TestWhatWaitedIsFoundAfterACrash: the log has newer versions of other objects, and its newest
// delta says that a watch cannot resume from it.
func TestWhatWaitedIsFoundAfterACrash(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	first := bustest.Wrap(b)
	_, stop := start(t, s, first, "one", bounded(1, 1))
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 1 }) // the mark of an empty list
	s.PutPod("large", large)
	watchertest.Eventually(t, b, "is large")
	s.PutPod("large", large) // waits
	s.PutPod("other", 0)
	watchertest.Eventually(t, b, "is large", "is other")
	first.Fail(bustest.AppendMessage, errors.New("cut off"))
	stop()
	start(t, s, b, "two", bounded(1, 1))
	watchertest.Eventually(t, b, "is large", "is other", "is large", "gap")
	log := watchertest.LogOf(t, b)
	if gap := log[len(log)-2]; gap.Op != events.Gap || !strings.Contains(string(gap.Body), "waited") {
		t.Errorf("the gap does not say why: %s", gap.Body)
	}
}
