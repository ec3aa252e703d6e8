package reflector

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/kindlog"
)

func TestEveryDeltaSaysWhereItsObjectWasSaidBefore(t *testing.T) {
	t.Parallel()
	l := &logState{places: kindlog.Places{}, gap: events.Place{Known: true}}
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
		t.Errorf("without the places the delta has %+v, want no place before", d.Before)
	}
	for unreadable, known := range map[bool]bool{true: false, false: true} {
		p := kindlog.Places{}
		p.Note(events.Is, subject.Delta(a), 9)
		p.Note(events.Is, subject.Delta(b), 6)
		l.countFrom(kindlog.Contents{Places: p, Unreadable: unreadable})
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
		k := &Reflector{kind: kind}
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
		t.Errorf("a watcher that was away for long has the sight %v, want since a minute ago", got)
	}
	if got := told(kinds.Pods.Kind, old); got != (events.Sight{}) {
		t.Errorf("a kind without heartbeats has the sight %v, want none", got)
	}
}

// A ledger counts objects, and links each delta to the last message that is not a mark.
func TestALedgerTellsWhatIsBefore(t *testing.T) {
	t.Parallel()
	l := &logState{}
	d := events.Delta{Kind: "pods", Op: events.Is, Ref: events.Ref{Kind: "pods", Name: "a"}, UID: "u", ResourceVersion: "1"}
	l.completeDelta(&d)
	if d.Census.Known || !l.unsure || d.Before.Known {
		t.Errorf("without a count the delta has %+v, %+v, unsure: %t; want neither, and unsure", d.Census, d.Before, l.unsure)
	}
	m := events.Seal(events.EncodeDelta(d))
	if l.noteAppended(events.Is, m, 7); l.unsure || l.after.Sequence != 7 || l.after.Sum != m.Get(events.HeaderSum) {
		t.Errorf("after the delta the link is %+v, unsure: %t", l.after, l.unsure)
	}
	l.counted = true
	mark := events.Delta{Kind: "pods", Op: events.Mark}
	if l.completeDelta(&mark); !mark.Census.Known || mark.Census.Objects != 1 || mark.After.Sequence != 7 {
		t.Errorf("the mark has the census %+v and the link %+v", mark.Census, mark.After)
	}
	if l.noteAppended(events.Mark, m, 8); l.after.Sequence != 7 {
		t.Errorf("after a mark the link is %+v, want message 7 still", l.after)
	}
	var none kindlog.Places
	none.Note(events.Is, "x", 3)
	some := kindlog.Places{}
	some.Note(events.Is, "x", 3)
	if some.Note(events.Gone, "x", 4); len(none)+len(some) != 0 {
		t.Error("an object that is gone has a place")
	}
	c := kindlog.Contents{}
	census := c.Tally.Census()
	if !c.Matches(census) || (kindlog.Contents{Unreadable: true}).Matches(census) || (kindlog.Contents{Broken: map[events.Ref]events.Delta{{}: {}}}).Matches(census) {
		t.Error("contents that lack something agree")
	}
}
