package watcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/translate"
)

func TestOldObjectsAreSaidAgainAndYoungOnesAreNot(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 1 }) // the mark of an empty list
	s.change("ADDED", "a", 0)
	s.change("ADDED", "b", 0)
	s.change("DELETED", "b", 0)
	until(t, func() bool { log := logOf(t, b); return len(log) > 0 && log[len(log)-1].Op == events.Gone })
	stop()
	before := len(logOf(t, b))
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	k := &kindWatch{
		kind: kinds.Pods.Kind, bus: b, metrics: newMetrics(), appender: appender,
		age: time.Hour, cursor: translate.Cursor{Version: "9"}, marked: time.Now(),
	}
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(logOf(t, b)); got != before {
		t.Errorf("%d keyframes of young objects", got-before)
	}
	k.age, k.marked = time.Nanosecond, time.Now().Add(time.Hour)
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := logOf(t, b)[before:]
	if got := fmt.Sprint(ops(again)); got != "[is a mark]" || !again[0].Sync {
		t.Errorf("keyframes %s", got)
	}
}

// TestWhatWasCountedAsGoneIsNotSaidAgain: a bus that has lost its index after the
// end of an object expired has an older message of it again.
func TestWhatWasCountedAsGoneIsNotSaidAgain(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	s.change("ADDED", "a", 0)
	s.change("ADDED", "ghost", 0)
	until(t, func() bool { return len(logOf(t, b)) == 3 })
	stop()
	before := logOf(t, b)
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	k := &kindWatch{
		kind: kinds.Pods.Kind, bus: b, metrics: newMetrics(), appender: appender,
		age: time.Nanosecond, cursor: translate.Cursor{Version: "9"}, marked: time.Now().Add(time.Hour),
	}
	for _, d := range before {
		if d.Ref.Name != "ghost" {
			k.tally.Fold(d)
		}
	}
	k.counted = true
	if _, err := k.keyframes(t.Context()); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("said again: %v", err)
	}
	if got := len(logOf(t, b)); got != len(before) {
		t.Errorf("%d more messages in the log", got-len(before))
	}
}

// past has a bus hold objects that are there, and behind them more that came and
// went; it gives the watch that counts them.
func past(t *testing.T, b bus.Bus, there, gone int) *kindWatch {
	t.Helper()
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	k := &kindWatch{
		kind: kinds.Pods.Kind, bus: b, metrics: newMetrics(), appender: appender,
		age: time.Hour, cursor: translate.Cursor{Version: "9"}, marked: time.Now(),
	}
	k.counted = true
	for i := range there + gone {
		d := events.Delta{
			Kind: "pods", Op: events.Is, UID: types.UID(fmt.Sprint("u", i)), ResourceVersion: "7", At: time.Now(),
			Ref: events.Ref{Kind: "pods", Namespace: "default", Name: fmt.Sprint("p", i)},
		}
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if i < there {
			continue
		}
		d.Op = events.Gone
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// TestEndsDoNotPileUpBeforeReaders: when more has ended than is there, the oldest
// objects are said again, and who begins to read passes over the ends.
func TestEndsDoNotPileUpBeforeReaders(t *testing.T) {
	t.Parallel()
	const there, ends = 3, 6000
	k := past(t, memory.New(memory.Options{}), there, ends)
	census := k.tally.Census()
	if since := k.window.Since(); since != 1 || !k.crowded(&k.window) {
		t.Fatalf("everything is there since %d, crowded %t", since, k.crowded(&k.window))
	}
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := logOf(t, k.bus)
	last := log[len(log)-1]
	if got := fmt.Sprint(ops(log[there+2*ends+1:])); got != "[is p0 is p1 is p2 mark]" {
		t.Fatalf("it was said %s", got)
	}
	if k.crowded(&k.window) {
		t.Error("it is crowded still")
	}
	h, err := readState(t.Context(), k.bus, "pods", last.Since, uint64(len(log)))
	if err != nil || !h.agrees(census) {
		t.Errorf("since %d there are %v (%v), want %v", last.Since, h.tally.Census(), err, census)
	}
	if all, err := readState(t.Context(), k.bus, "pods", 1, uint64(len(log))); err != nil || all.window.Since() < last.Since {
		t.Errorf("all of it says that everything is there since %d, and the mark %d (%v)", all.window.Since(), last.Since, err)
	}
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if more := len(logOf(t, k.bus)) - len(log); more != 0 {
		t.Errorf("%d messages more when there was no need", more)
	}
}

// begun is a bus that notes where the reading of states begins.
type begun struct {
	bus.Bus
	at []uint64
}

func (b *begun) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	b.at = append(b.at, from)
	return b.Bus.Follow(ctx, stream, from, handle)
}

// TestCountingBeginsWhereEverythingIsThere, and with the first message where that
// does not prove true.
func TestCountingBeginsWhereEverythingIsThere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		since uint64
		lost  bool // an object of those that were counted
		want  []uint64
		whole bool
	}{
		"from the first object on":  {1, false, []uint64{1}, true},
		"nobody knows":              {0, false, []uint64{1}, true},
		"something is there before": {2, false, []uint64{2, 1}, true},
		"something is lost":         {2, true, []uint64{2, 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := past(t, memory.New(memory.Options{}), 3, 1)
			newest := events.Delta{Census: k.tally.Census()}
			if tc.lost {
				newest.Census.Objects++
			}
			b := &begun{Bus: k.bus}
			k.bus, k.ledger = b, ledger{}
			whole, err := k.count(t.Context(), newest, tc.since)
			if err != nil || whole != tc.whole || !slices.Equal(b.at, tc.want) {
				t.Errorf("read from %v, whole %t (%v), want %v and %t", b.at, whole, err, tc.want, tc.whole)
			}
			if since := k.window.Since(); since != 1 {
				t.Errorf("everything is there since %d", since)
			}
			if b.at = nil; !tc.whole {
				return
			}
			if _, err := k.count(t.Context(), newest, tc.since); err != nil || (len(b.at) == 0) != (tc.since >= 1) {
				t.Errorf("who has counted read from %v (%v)", b.at, err)
			}
		})
	}
}

// TestGhostsBeforeTheWindow: what lies before the message since which everything is
// there is read as well, later, and nothing there may live.
func TestGhostsBeforeTheWindow(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{}), 2, 10)
	if ghost, err := k.searchBefore(t.Context(), "pods", 3); err != nil || ghost == nil || ghost.End < 23 {
		t.Errorf("found %+v (%v), want the object of message 1", ghost, err)
	}
	if ghost, err := k.searchBefore(t.Context(), "pods", 1); err != nil || ghost != nil {
		t.Errorf("found %+v (%v) where there is nothing", ghost, err)
	}
	k.window.Begin(3)
	k.suspectPast()
	if k.before != 3 {
		t.Error("the past is not suspected")
	}
	k.before = 0
	if k.suspectPast(); k.before != 0 {
		t.Error("it is suspected again, although nothing happened")
	}
}

// TestWhatNeverChangesIsSaidAgainAmongMuchThatDoes: who asks for a moment reads back
// from it until everything that was there has been met.
func TestWhatNeverChangesIsSaidAgainAmongMuchThatDoes(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	k := past(t, b, 10, 0)
	busy := events.Delta{Kind: "pods", Op: events.Is, UID: "busy", Ref: events.Ref{Kind: "pods", Namespace: "default", Name: "busy"}, At: time.Now()}
	change := func(times int) {
		t.Helper()
		for i := range times {
			busy.ResourceVersion = fmt.Sprint(10 + i)
			if err := k.append(t.Context(), busy); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, step := range []struct {
		changes, said int
		again         time.Duration
	}{{reachLeast / 4, 0, keyframeLate}, {reachLeast / 2, 0, keyframeSoon}, {reachLeast / 2, 10, keyframeLate}, {reachLeast / 4, 0, keyframeLate}} {
		change(step.changes)
		before := len(logOf(t, b))
		again, err := k.keyframes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		said := 0
		for _, d := range logOf(t, b)[before:] {
			if d.Op == events.Is && d.Sync && d.Ref.Name != "busy" {
				said++
			}
		}
		if said != step.said || again > step.again || again < keyframeSoon || step.again > keyframeSoon && again == keyframeSoon {
			t.Errorf("after %d changes %d objects are said again, and looked at in %v; want %d in %v", step.changes, said, again, step.said, step.again)
		}
	}
}
