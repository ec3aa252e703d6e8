package kindlog

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// ReadFrom folds a log without its damaged messages. An object whose last message is damaged does
// not count, and is kept apart.
func TestWhatALogTells(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	tells(t, k, 0) // message 5, behind the mark 4
	log := watchertest.StateOf(t, a.Bus, logPods)
	for what, c := range map[string]struct {
		damaged   uint64
		objects   uint64
		broken    string
		p0, since uint64
	}{
		"nothing is damaged":       {0, 3, "", 5, 2},
		"a mark":                   {4, 3, "", 5, 2},
		"an earlier message of p0": {1, 3, "", 5, 2},
		"the last message of p0":   {5, 2, "p0", 0, 2},
		"the last message of p1":   {2, 2, "p1", 5, 3},
	} {
		h, err := ReadFrom(t.Context(), watchertest.Worn(a, logPods, []uint64{c.damaged}), "pods", 1, log)
		if err != nil || h.Unreadable || h.Tally.Census().Objects != c.objects || h.Places.Oldest() != c.since || h.Places.Of(subject.Delta(watchertest.APod("p0"))) != c.p0 {
			t.Errorf("%s: the log has %d objects since %d, p0 at %v, %v", what, h.Tally.Census().Objects, h.Places.Oldest(), h.Places, err)
		}
		if missing := h.State.Compare("", 0).Missing(); uint64(len(missing)) != c.objects {
			t.Errorf("%s: of nothing that is listed, messages %v are missing", what, missing)
		}
		d, broken := h.Broken[watchertest.APod(c.broken)]
		if broken != (c.broken != "") || broken != (len(h.Broken) == 1) || broken && (d.Op != events.Is || d.UID != types.UID("u"+c.broken[1:]) || d.Kind != "pods") {
			t.Errorf("%s: broken are %+v", what, h.Broken)
		}
	}
	end := watchertest.ADelta("p0", 20)
	end.UID, end.Op = "u0", events.Gone
	if err := k.append(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	h, err := ReadFrom(t.Context(), watchertest.Worn(a, logPods, []uint64{6}), "pods", 1, watchertest.StateOf(t, a.Bus, logPods))
	if err != nil || len(h.Broken) != 1 || h.Broken[watchertest.APod("p0")].Op != events.Is {
		t.Errorf("of a log with a damaged end these are broken: %+v, %v; want p0", h.Broken, err)
	}
}

// A part of the log that the bus cannot deliver is missing in the contents, as is what follows it.
func TestALogThatCannotBeReadToItsEnd(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	census := k.tally.Census()
	for what, c := range map[string]struct {
		b       bus.Bus
		objects uint64
		reads   bool
	}{"it can": {a, 3, true}, "nothing can": {bustest.Wrap(a).Fail(bustest.Follow, events.ErrDamaged), 0, false}, "two messages can": {watchertest.Cut(a, 2), 2, false}} {
		h, end, err := Read(t.Context(), c.b, "pods")
		if err != nil || h.Unreadable == c.reads || h.Tally.Census().Objects != c.objects || h.Matches(census) != c.reads || end.Op != events.Mark {
			t.Errorf("%s be read: it tells of %d objects, unreadable %t, %v, and its end is %+v", what, h.Tally.Census().Objects, h.Unreadable, err, end)
		}
	}
}

// TestReadingBeginsWhereEverythingIsThere, and at the first message where the census then does not
// fit.
func TestReadingBeginsWhereEverythingIsThere(t *testing.T) {
	t.Parallel()
	marks := func(since, more uint64) func(*testing.T, *written) {
		return func(t *testing.T, k *written) {
			t.Helper()
			d := translate.Mark("pods", "9", translate.Stamp{At: time.Now()})
			d.Since, d.Census = since, k.tally.Census()
			d.Census.Objects += more
			k.counted = false
			if err := k.append(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*testing.T, *written)
		want   []uint64
		whole  bool
	}{
		"from the first object on":  {marks(1, 0), []uint64{1}, true},
		"no mark says it":           {marks(0, 0), []uint64{1}, true},
		"from a later one on":       {func(t *testing.T, k *written) { tells(t, k, 0, 1, 2); marks(7, 0)(t, k) }, []uint64{7}, true},
		"something is there before": {marks(2, 0), []uint64{2, 1}, true},
		"something is lost":         {marks(2, 1), []uint64{2, 1}, false},
		"something is lost from 1":  {marks(1, 1), []uint64{1}, false},
		"the last has no census": {func(t *testing.T, k *written) {
			tells(t, k, 0, 1, 2)
			marks(7, 0)(t, k)
			tells(t, k, 0) // not counted
		}, []uint64{7, 1}, true},
		"the last is damaged": {func(t *testing.T, k *written) {
			tells(t, k, 0, 1, 2)
			marks(7, 0)(t, k)
			tells(t, k, 0)
			k.bus = watchertest.Worn(k.bus, logPods, []uint64{11})
		}, []uint64{7, 1}, false},
		"what lies before is damaged, and said again": {func(t *testing.T, k *written) {
			tells(t, k, 0, 1, 2)
			marks(7, 0)(t, k)
			k.bus = watchertest.Worn(k.bus, logPods, []uint64{2})
		}, []uint64{7}, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := past(t, memory.New(memory.Options{}), 3, 1)
			tc.change(t, k)
			var begun []uint64 // where each read of a stream begins
			b := bustest.Wrap(k.bus)
			b.OnFollow = func(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
				begun = append(begun, from)
				return k.bus.Follow(ctx, stream, from, handle)
			}
			c, end, err := Read(t.Context(), b, "pods")
			want := end.Census
			if !want.Known {
				want = k.tally.Census()
			}
			if whole := c.Matches(want); err != nil || whole != tc.whole || !slices.Equal(begun, tc.want) {
				t.Errorf("read from %v, whole %t (%v), want %v and %t", begun, whole, err, tc.want, tc.whole)
			}
		})
	}
}
