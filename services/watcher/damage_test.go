package watcher

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// TestWhatADiskDidIsMended: each time the first watcher records three pods and stops, the disk does
// something, and the second watcher starts. (F13)
func TestWhatADiskDidIsMended(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		damaged, lost []uint64
		said          []string // by the second watcher
		from          uint64
		why           string
	}{
		"nothing":                        {nil, nil, nil, 0, ""},
		"the end is damaged":             {[]uint64{4}, nil, []string{"gap", "mark"}, 4, "the end of the log is damaged"},
		"the end is lost":                {nil, []uint64{4}, []string{"gap", "mark"}, 0, "not there any more"},
		"what lies before it is damaged": {[]uint64{3}, nil, []string{"is", "gap", "mark"}, 3, "lost or damaged"},
		"what lies before it is lost":    {nil, []uint64{3}, []string{"is", "gap", "mark"}, 3, "lost or damaged"},
		"an object is damaged":           {[]uint64{2}, nil, []string{"is", "gap", "mark"}, 0, "3 objects, 1 of them damaged, where its last message says 3"},
		"an object is lost":              {nil, []uint64{1}, []string{"is", "gap", "mark"}, 0, "2 objects, 0 of them damaged, where its last message says 3"},
		"two objects are damaged":        {[]uint64{1, 2}, nil, []string{"is", "is", "gap", "mark"}, 0, "2 of them damaged"},
		"everything is damaged":          {[]uint64{1, 2, 3, 4}, nil, []string{"is", "is", "is", "gap", "mark"}, 4, "the end of the log is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := watchertest.Serve(t), memory.New(memory.Options{})
			for _, pod := range []string{"a", "b", "c"} {
				s.PutPod(pod, 0)
			}
			_, stop := start(t, s, b, "one")
			watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 4 })
			stop()
			_, stop = start(t, s, watchertest.Worn(b, logPods, tc.damaged, tc.lost...), "two")
			watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 4+len(tc.said) })
			s.PutPod("d", 0)
			watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 5+len(tc.said) })
			stop()
			said := watchertest.LogOf(t, b)[4:]
			for i, want := range append(slices.Clone(tc.said), "is") {
				if string(said[i].Op) != want {
					t.Fatalf("the second watcher said %v, want %v", watchertest.Ops(said), tc.said)
				}
			}
			if len(tc.said) > 0 {
				if h := watchertest.Hole(t, said[len(tc.said)-2]); h.From != tc.from || !strings.Contains(h.Reason, tc.why) {
					t.Errorf("the gap says %+v", h)
				}
			}
			if c := said[len(said)-1].Census; c.Objects != 4 {
				t.Errorf("the census behind the last delta is %v", c)
			}
		})
	}
}

// overtaken returns a bus on which the newest message of pods arrives when the last mark is looked up,
// and whether it has come.
func overtaken(b bus.Bus) (*bustest.Bus, *atomic.Bool) {
	l, came := bustest.Wrap(b), new(atomic.Bool)
	before := func(last uint64) uint64 { // the end as it was before that message
		if came.Load() {
			return last
		}
		return last - 1
	}
	l.OnStreamState = func(ctx context.Context, stream string) (bus.State, error) {
		state, err := b.StreamState(ctx, stream)
		if stream == logPods {
			state.Last = before(state.Last)
		}
		return state, err
	}
	l.OnAppend = func(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
		a, err := b.Append(ctx, kind)
		if err != nil || kind != "pods" || came.Load() {
			return a, err
		}
		return watchertest.Opened(a, before(a.Last())), nil
	}
	l.OnLast = func(ctx context.Context, stream, of string) (events.Message, bool, error) {
		if of == subject.Mark("pods") {
			defer came.Store(true)
		}
		return b.Last(ctx, stream, of)
	}
	return l, came
}

// TestALogThatGoesOnIsNoDamage: another watcher appends while this one finds out what exists, so the
// log refuses what this one appends. It then opens the log anew, and records nothing again.
func TestALogThatGoesOnIsNoDamage(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	s.PutPod("b", 0)
	_, stop := start(t, s, b, "one")
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 3 })
	s.PutPod("a", 0)
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 4 })
	stop()
	l, came := overtaken(b)
	start(t, s, l, "two")
	watchertest.Until(t, came.Load)
	s.PutPod("c", 0)
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) >= 5 })
	told := watchertest.Ops(watchertest.LogOf(t, b))
	slices.Sort(told[:2]) // a list has no order
	if got := fmt.Sprint(told); got != "[is a is b mark is a is c]" {
		t.Errorf("the log tells %s", got)
	}
}

// TestAGhostIsBuried: an object was deleted while no watcher ran, and the log's message about it is
// damaged.
func TestAGhostIsBuried(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	s.PutPod("stale", 0)
	_, stop := start(t, s, b, "one")
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 3 })
	stop()
	var of uint64
	for i, d := range watchertest.LogOf(t, b) {
		if d.Ref.Name == "stale" {
			of = uint64(i + 1)
		}
	}
	s.RemovePod("stale")
	s.Compact()
	start(t, s, watchertest.Worn(b, logPods, []uint64{of}), "two")
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 6 })
	if got := fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, b)[3:])); got != "[gone stale gap mark]" {
		t.Errorf("the relist told %s", got)
	}
	if c := watchertest.LogOf(t, b)[5].Census; c.Objects != 1 {
		t.Errorf("the census is %v, want one object", c)
	}
}

// TestReadersAreHeard: the watcher acts on a reader's report once, however often the reader repeats
// it. When the damage returns at once, the watcher records every object again.
func TestReadersAreHeard(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	start(t, s, b, "one")
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 2 })
	told := func(end uint64, reason string) {
		data, err := json.Marshal(report.Damage{Kind: "pods", Hole: events.Hole{Reason: reason}, End: end})
		if err != nil {
			t.Fatal(err)
		}
		watchertest.Until(t, func() bool {
			if err := b.Broadcast(report.DamageTopic, data); err != nil {
				t.Fatal(err)
			}
			log := watchertest.LogOf(t, b)
			if len(log) < 4 || log[len(log)-2].Op != events.Gap {
				return false // the watcher has not recorded everything yet
			}
			return strings.Contains(watchertest.Hole(t, log[len(log)-2]).Reason, reason)
		})
	}
	told(2, "it lacks an object")
	if got := fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, b))); got != "[is a mark gap mark]" {
		t.Errorf("the log is %s: of one damage there is one gap", got)
	}
	told(4, "it still does")
	log := watchertest.LogOf(t, b)
	if got := fmt.Sprint(watchertest.Ops(log)); got != "[is a mark gap mark is a gap mark]" {
		t.Fatalf("the log is %s, want everything recorded again where readers begin", got)
	}
	if !log[4].Sync || log[6].Since != 5 || log[6].Census.Objects != 1 {
		t.Errorf("recorded again is %+v, and readers begin with %d; want a sync, and 5", log[4], log[6].Since)
	}
}
