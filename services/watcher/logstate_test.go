package watcher

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

func TestEveryDeltaSaysWhereItsObjectWasSaidBefore(t *testing.T) {
	t.Parallel()
	l := &logState{places: places{}, gap: events.Place{Known: true}}
	a, b := events.Ref{Kind: "pods", Namespace: "x", Name: "a"}, events.Ref{Kind: "pods", Namespace: "x", Name: "b"}
	for i, step := range []struct {
		op     events.Op
		ref    events.Ref
		before uint64
	}{
		{events.Mark, events.Ref{}, 0}, {events.Is, a, 0}, {events.Is, b, 0}, {events.Is, a, 2}, {events.Gap, events.Ref{}, 0},
		{events.Is, b, 3}, {events.Mark, events.Ref{}, 5}, {events.Gone, a, 4}, {events.Is, a, 0}, {events.Gap, events.Ref{}, 5}, {events.Is, a, 9},
	} {
		d := events.Delta{Kind: "pods", Ref: step.ref, Op: step.op, UID: "u", ResourceVersion: "1"}
		l.completeDelta(&d)
		if want := (events.Place{Known: true, Sequence: step.before}); d.Before != want {
			t.Errorf("message %d: before it is %+v, want %+v", i+1, d.Before, want)
		}
		m := events.Message{Subject: subject.Mark("pods")}
		if step.ref.Name != "" {
			m.Subject = subject.Delta(step.ref)
		}
		l.noteAppended(step.op, m, uint64(i+1))
	}
	l.places = nil
	d := events.Delta{Kind: "pods", Ref: a, Op: events.Is, Before: events.Place{Known: true, Sequence: 7}}
	if l.completeDelta(&d); d.Before.Known {
		t.Errorf("who does not know the places says %+v", d.Before)
	}
	for unreadable, known := range map[bool]bool{true: false, false: true} {
		l.countFrom(contents{places: places{hashOf(subject.Delta(a)): 9, hashOf(subject.Delta(b)): 6}, unreadable: unreadable})
		if l.completeDelta(&d); d.Before.Known != known || l.since != 6 || !l.counted {
			t.Errorf("where a part of the log cannot be read (%t), before it is %+v, and everything is there since %d", unreadable, d.Before, l.since)
		}
	}
}

func TestLeasesSayForHowLongTheyHaveBeenWatched(t *testing.T) {
	t.Parallel()
	before := time.Now().Add(-time.Hour)
	old := events.Sight{Since: before, Until: time.Now().Add(-events.SightTimeout / 2)}
	told := func(kind kinds.Kind, sight events.Sight) events.Sight {
		k := &kindWatch{kind: kind}
		k.noteEnd(events.Delta{Op: events.Is, Sight: sight}, 7)
		k.extendSight()
		d := events.Delta{Kind: kind.Name, Op: events.Mark}
		k.completeDelta(&d)
		return d.Sight
	}
	if got := told(kinds.Leases.Kind, old); !got.Since.Equal(before) || time.Since(got.Until) > time.Minute {
		t.Errorf("a watcher that was away for a moment says %v", got)
	}
	old.Until = time.Now().Add(-2 * events.SightTimeout)
	if got := told(kinds.Leases.Kind, old); time.Since(got.Since) > time.Minute {
		t.Errorf("a watcher that was away for long says %v", got)
	}
	if got := told(kinds.Pods.Kind, old); got != (events.Sight{}) {
		t.Errorf("of a kind without heartbeats it says %v", got)
	}
}

// TestAGapSaysSinceWhenItMayBe: the watcher is down until the API server has forgotten the changes
// of that time.
func TestAGapSaysSinceWhenItMayBe(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 1 })
	s.change("ADDED", "a", 0)
	until(t, func() bool { return len(logOf(t, b)) == 2 })
	stop()
	last := logOf(t, b)[1].At
	s.change("MODIFIED", "a", 0)
	s.change("ADDED", "b", 0)
	s.forget()
	_, stop = start(t, s, b, "two")
	defer stop()
	until(t, func() bool { log := logOf(t, b); return len(log) > 2 && log[len(log)-1].Op == events.Mark })
	log := logOf(t, b)
	gap, mark := log[len(log)-2], log[len(log)-1]
	if h := hole(t, gap); !h.Since.Equal(last) {
		t.Errorf("changes may be missing since %v, and the last one told was at %v", h.Since, last)
	}
	if want := (events.Place{Known: true}); gap.Before != want {
		t.Errorf("before the first gap there is one at %+v", gap.Before)
	}
	if want := (events.Place{Known: true, Sequence: uint64(len(log) - 1)}); mark.Before != want {
		t.Errorf("the mark says that the gap is at %+v, want %+v", mark.Before, want)
	}
}
