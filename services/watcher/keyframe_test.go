package watcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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

// TestWhatWasCountedAsGoneIsNotSaidAgain: a bus that has lost its index after the tombstone of an
// object expired has an older message of the object again.
func TestWhatWasCountedAsGoneIsNotSaidAgain(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	s.change("ADDED", "a", 0)
	s.change("ADDED", "stale", 0)
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
		if d.Ref.Name != "stale" {
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

// past stores existing objects, and behind them objects that were created and deleted. It returns
// the watch that counted them.
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

// TestEndsDoNotPileUpBeforeReaders: when there are more tombstones than objects, the watcher
// records the oldest objects again, and a new reader skips the tombstones.
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
	if err != nil || !h.matches(census) {
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

// begun is a bus that notes where each read of a state begins.
type begun struct {
	bus.Bus
	at []uint64
}

func (b *begun) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	b.at = append(b.at, from)
	return b.Bus.Follow(ctx, stream, from, handle)
}

// TestCountingBeginsWhereEverythingIsThere, and at the first message where the census then does not
// fit.
func TestCountingBeginsWhereEverythingIsThere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		since uint64
		lost  bool // an object of those that were counted
		want  []uint64
		whole bool
	}{
		"from the first object on":  {1, false, []uint64{1}, true},
		"that is not known":         {0, false, []uint64{1}, true},
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
			k.bus, k.logState = b, logState{}
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

// TestGhostsBeforeTheWindow: the watcher later also reads what lies before the window, and no
// message there may say that an object exists.
func TestGhostsBeforeTheWindow(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{}), 2, 10)
	if stale, err := k.searchStaleBefore(t.Context(), "pods", 3); err != nil || stale == nil || stale.End < 23 {
		t.Errorf("found %+v (%v), want the object of message 1", stale, err)
	}
	if stale, err := k.searchStaleBefore(t.Context(), "pods", 1); err != nil || stale != nil {
		t.Errorf("found %+v (%v) where there is nothing", stale, err)
	}
	k.window.Begin(3)
	k.suspectStale()
	if k.staleBefore != 3 {
		t.Error("the past is not suspected")
	}
	k.staleBefore = 0
	if k.suspectStale(); k.staleBefore != 0 {
		t.Error("it is suspected again, although nothing happened")
	}
}

// TestWhatNeverChangesIsSaidAgainAmongMuchThatDoes: a reader that asks about a moment reads back
// from it until it has met every object that existed.
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

// onceTold is a watch of a log that keeps a day; it recorded one pod each hour, the first that many
// hours ago.
func onceTold(t *testing.T, pods int) *kindWatch {
	t.Helper()
	k := past(t, memory.New(memory.Options{}), 0, 0)
	k.age = 24 * time.Hour
	for i := range pods {
		tells(t, k, i)
		time.Sleep(time.Hour) // virtual
	}
	k.marked = time.Now()
	return k
}

// tells records pods, by their numbers.
func tells(t *testing.T, k *kindWatch, pods ...int) {
	t.Helper()
	for _, i := range pods {
		d := aDelta(fmt.Sprint("p", i), 1)
		d.UID = types.UID(fmt.Sprint("u", i))
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// repeats records keyframes, and returns these and the wait until the next check.
func repeats(t *testing.T, k *kindWatch) (said string, again time.Duration) {
	t.Helper()
	before := k.appender.Last()
	again, err := k.keyframes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(ops(toldSince(t, k.bus, before)), " "), again
}

// toldSince returns the deltas of pods behind a message, without expired ones.
func toldSince(t *testing.T, b bus.Bus, sequence uint64) (log []events.Delta) {
	t.Helper()
	for sequence++; sequence <= standing(t, b, logPods).Last; sequence++ {
		d, there, err := stored(t.Context(), b, logPods, sequence)
		if err != nil {
			t.Fatal(err)
		}
		if there {
			log = append(log, d)
		}
	}
	return log
}

// The watcher records an object again when half of the log's age has passed. It checks again when
// the next object is due: in ten minutes at the latest.
func TestWhenAnObjectIsSaidAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := onceTold(t, 3)
		for _, step := range []struct {
			wait  time.Duration
			said  string
			again time.Duration
		}{
			{0, "", keyframeLate},
			{9*time.Hour - 5*time.Minute, "", 5 * time.Minute},
			{5*time.Minute - 10*time.Second, "", keyframeSoon}, // ten seconds before it is due
			{10*time.Second - 1, "", keyframeSoon},
			{1, "is p0 mark", keyframeLate},
			{time.Hour, "is p1 mark", keyframeLate},
			{time.Hour - time.Minute, "", time.Minute},
			{time.Minute, "is p2 mark", keyframeLate},
		} {
			time.Sleep(step.wait)
			k.marked = time.Now()
			if said, again := repeats(t, k); said != step.said || again != step.again {
				t.Errorf("%v later it says %q, and looks again in %v; want %q in %v", step.wait, said, again, step.said, step.again)
			}
		}
		if last := toldSince(t, k.bus, k.appender.Last()-1)[0]; last.Since != k.window.Since() || last.Since <= 4 {
			t.Errorf("the mark says that everything is there since %d, and the window %d", last.Since, k.window.Since())
		}
	})
}

// The watcher records keyframeBatch objects at a time, and the rest half a minute later, or a
// second later where the log is about to lose them.
func TestKeyframesAreSpreadOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for wait, want := range map[time.Duration]time.Duration{12 * time.Hour: keyframeSoon, 18 * time.Hour: keyframeSoon, 18*time.Hour + 1: keyframeUrgent} {
			k := onceTold(t, 0)
			for i := range keyframeBatch + 1 {
				tells(t, k, i)
			}
			time.Sleep(wait) // virtual
			k.marked = time.Now()
			said, again := repeats(t, k)
			if got := strings.Count(said, "is p"); got != 500 || again != want || !strings.HasSuffix(said, "mark") {
				t.Errorf("after %v %d are said, and it looks again in %v, want 500 in %v", wait, got, again, want)
			}
			if said, again := repeats(t, k); strings.Count(said, "is p") != 1 || again != keyframeLate {
				t.Errorf("after that it says %q, and looks again in %v", said, again)
			}
			if said, again := repeats(t, k); said != "" || again != keyframeLate {
				t.Errorf("at last it says %q, and looks again in %v", said, again)
			}
		}
	})
}

// The watcher replaces an old mark although nothing else is due: after five minutes, or a quarter
// of the log's age.
func TestOldMarksAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for age, every := range map[time.Duration]time.Duration{24 * time.Hour: 5 * time.Minute, 4 * time.Minute: time.Minute} {
			k := onceTold(t, 0)
			k.age = age
			time.Sleep(every) // virtual
			if said, again := repeats(t, k); said != "" || again != min(keyframeLate, age/8) {
				t.Errorf("of a log that keeps %v it says %q, and looks again in %v", age, said, again)
			}
			time.Sleep(1)
			if said, _ := repeats(t, k); said != "mark" {
				t.Errorf("of a log that keeps %v it says %q a moment later", age, said)
			}
		}
	})
}

// The watcher soon checks a lagging state again, and records nothing while the state is
// unreachable.
func TestKeyframesOfAStateThatLags(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	k.age = time.Nanosecond
	k.marked = time.Now().Add(time.Hour)
	state := a.stands(t, statePod)
	state.Last--
	a.states[statePod] = state
	k.age = time.Hour
	if said, again := repeats(t, k); said != "" || again != k.minKeyframeWait() {
		t.Errorf("of a state that lags it says %q, and looks again in %v", said, again)
	}
	clear(a.states)
	k.age = time.Nanosecond
	k.appender = &refusing{k.appender, bus.ErrOvertaken}
	if _, err := k.keyframes(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("of a log that refuses: %v", err)
	}
	if since := k.window.Since(); since != 1 {
		t.Errorf("everything is there since %d, and was not said", since)
	}
	k.marked = time.Time{}
	if _, err := k.keyframes(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("of a log that refuses a mark: %v", err)
	}
}

// Before a log that is bounded by size loses an object, or one whose age limit was lowered does,
// the watcher records the object again; by then the window begins with it.
func TestWhenALogIsPressed(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		room    uint64
		since   uint64
		last    uint64
		pressed bool
	}{
		"no bound":              {0, 1, 1000, false},
		"far from it":           {100, 1, 51, false},
		"beyond half of it":     {100, 1, 52, true},
		"no window":             {100, 0, 1000, false},
		"as far from the begin": {100, 50, 100, false},
		"farther":               {100, 50, 101, true},
		"room for one message":  {1, 1, 100, true},
	} {
		k := &kindWatch{room: c.room, appender: &opened{nil, c.last}}
		k.counted = true
		if c.since > 0 {
			k.window.Begin(c.since)
		}
		if got := k.aboutToExpire(); got != c.pressed {
			t.Errorf("%s: it is pressed: %t", what, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		k := onceTold(t, 2)
		if _, _ = repeats(t, k); k.window.Since() != 2 {
			t.Errorf("without a bound the window begins with %d", k.window.Since())
		}
		k.window = translate.Window{}
		tells(t, k, 0)
		if k.room = 1000; k.window.Since() == 0 {
			t.Fatal("there is no window")
		}
		k.window.Begin(1)
		_, w, _, err := k.oldest(t.Context(), standing(t, k.bus, statePod))
		if err != nil || w.Since() != 3 {
			t.Errorf("with a bound it begins with %d (%v), want the object that was told longest ago", w.Since(), err)
		}
	})
}

// A damaged message, or one about an object that the log does not have so, makes no keyframe.
func TestWhatIsDamagedIsNotSaidAgain(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	k.age = time.Nanosecond
	k.marked = time.Now().Add(time.Hour)
	k.bus = &worn{Bus: a, damaged: map[string]bool{at(statePod, 2): true}}
	if _, err := k.keyframes(t.Context()); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("of a damaged message: %v", err)
	}
	k.bus = a
	k.tally = events.Tally{}
	if _, err := k.keyframes(t.Context()); !errors.Is(err, events.ErrDamaged) || !strings.Contains(err.Error(), "message 1 of the state of pods") {
		t.Errorf("of what was counted otherwise: %v", err)
	}
	k.counted = false
	if said, _ := repeats(t, k); !strings.HasPrefix(said, "is p0 is p1 is p2") {
		t.Errorf("where it is not counted it says %q", said)
	}
}

// The watcher logs once that a log is too small for its objects.
func TestThatALogIsTooSmallIsToldOnce(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{}), 100, 0)
	ctx, log := logged(t)
	small, large := bus.State{Keeps: bus.Retention{Bytes: 3990}, Bytes: 1000, Messages: 100}, bus.State{Keeps: bus.Retention{Bytes: 40000}, Bytes: 40000, Messages: 4000}
	k.noteLimits(ctx, large)
	if log() != "" || k.overfull {
		t.Errorf("of a log that is large enough it tells\n%s", log())
	}
	k.noteLimits(ctx, small)
	k.noteLimits(ctx, small)
	if got := strings.Count(log(), "The log is too small"); got != 1 {
		t.Errorf("of a log that is too small it tells %d times", got)
	}
	k.counted = false
	if k.noteLimits(ctx, small); k.overfull {
		t.Error("of what is not counted the log is too small")
	}
	k.counted = true
	if k.noteLimits(ctx, small); strings.Count(log(), "The log is too small") != 2 {
		t.Error("it is not told again")
	}
}
