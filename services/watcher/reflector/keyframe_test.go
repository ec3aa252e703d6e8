package reflector

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// TestWhatWasCountedAsGoneIsNotSaidAgain: the tally counts, and not a message that says otherwise.
func TestWhatWasCountedAsGoneIsNotSaidAgain(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{}), 2, 0)
	k.age, k.marked = time.Nanosecond, time.Now().Add(time.Hour)
	d := watchertest.ADelta("p0", 7)
	d.UID, d.Op = "u0", events.Gone
	k.tally.Fold(d)
	before := len(watchertest.LogOf(t, k.bus))
	if _, err := k.keyframes(t.Context()); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("keyframes of an object that is gone by the count: %v, want ErrDamaged", err)
	}
	if got := len(watchertest.LogOf(t, k.bus)); got != before {
		t.Errorf("%d more messages in the log", got-before)
	}
}

// TestEndsDoNotPileUpBeforeReaders: when many messages follow the oldest objects, the watcher records
// these again, and a new reader skips what lies before them.
func TestEndsDoNotPileUpBeforeReaders(t *testing.T) {
	t.Parallel()
	const there, ends = 3, 4000
	k := past(t, memory.New(memory.Options{}), there, ends)
	census := k.tally.Census()
	if k.since != 1 || !k.tooFarBack() {
		t.Fatalf("everything is there since %d, too far back: %t", k.since, k.tooFarBack())
	}
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := watchertest.LogOf(t, k.bus)
	last := log[len(log)-1]
	if got := fmt.Sprint(watchertest.Ops(log[there+2*ends+1:])); got != "[is p0 is p1 is p2 mark]" {
		t.Fatalf("the keyframes are %s, want all three objects and a mark", got)
	}
	if last.Since != there+2*ends+2 || k.since != last.Since || k.tooFarBack() {
		t.Errorf("everything is there since %d, the mark says %d, too far back: %t", k.since, last.Since, k.tooFarBack())
	}
	at := watchertest.Standing(t, k.bus, logPods)
	for what, from := range map[string]uint64{"from where the mark says": last.Since, "from the first": 1} {
		if c, err := kindlog.ReadFrom(t.Context(), k.bus, "pods", from, at); err != nil || !c.Matches(census) || c.Places.Oldest() != last.Since {
			t.Errorf("%s the log tells of %v since %d (%v), want %v since %d", what, c.Tally.Census(), c.Places.Oldest(), err, census, last.Since)
		}
	}
	if c, err := kindlog.ReadFrom(t.Context(), k.bus, "pods", last.Since+1, at); err != nil || c.Matches(census) {
		t.Errorf("a reader that begins later knows everything, too (%v)", err)
	}
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if more := len(watchertest.LogOf(t, k.bus)) - len(log); more != 0 {
		t.Errorf("%d messages more when there was no need", more)
	}
}

// The watcher records an object again as its last message says it, in the order of these messages.
func TestKeyframesAreOfLastMessages(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{}), 0, 0)
	tells(t, k, 0, 1, 2, 0, 3)
	newer := watchertest.ADelta("p2", 8)
	newer.UID = "u2"
	end := watchertest.ADelta("p3", 9)
	end.UID, end.Op = "u3", events.Gone
	for _, d := range []events.Delta{newer, end} {
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := k.appender.Last()
	k.age, k.marked = time.Nanosecond, time.Now().Add(time.Hour)
	if said, _ := repeats(t, k); said != "is p1 is p0 is p2 mark" {
		t.Errorf("the keyframes are %q, want \"is p1 is p0 is p2 mark\"", said)
	}
	for _, d := range toldSince(t, k.bus, before) {
		if d.Op == events.Is && (!d.Sync || d.Ref.Name == "p2" && d.ResourceVersion != "8") {
			t.Errorf("a keyframe is %+v, want a sync with the newest version", d)
		}
	}
}

// Every mark names the oldest last message of the objects that exist, or itself where none does.
func TestSinceWhenAMarkSaysThatEverythingIsRecorded(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{}), 0, 0)
	ends := func(pod int) {
		t.Helper()
		d := watchertest.ADelta(fmt.Sprint("p", pod), 2)
		d.UID, d.Op = types.UID(fmt.Sprint("u", pod)), events.Gone
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		want uint64
	}{
		{"where nothing exists", func() {}, 2},
		{"of two objects", func() { tells(t, k, 0, 1) }, 3},
		{"when the oldest has changed", func() { tells(t, k, 0) }, 4},
		{"when the other one has gone", func() { ends(1) }, 6},
		{"when all have gone", func() { ends(0) }, 11},
		{"what is not counted is not known", func() { tells(t, k, 0); k.counted = false }, 0},
	} {
		step.do()
		if err := k.mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		mark := watchertest.LastOf(t, k.bus, "pods")
		if mark.Since != step.want {
			t.Errorf("%s: the mark %d says %d, want %d", step.what, k.appender.Last(), mark.Since, step.want)
		}
		if step.want == 0 {
			continue
		}
		if c, err := kindlog.ReadFrom(t.Context(), k.bus, "pods", mark.Since, watchertest.Standing(t, k.bus, logPods)); err != nil || !c.Matches(mark.Census) {
			t.Errorf("%s: from there the log tells of %v (%v), want %v", step.what, c.Tally.Census(), err, mark.Census)
		}
	}
}

// TestWhatNeverChangesIsSaidAgainAmongMuchThatDoes: a reader that starts reads what follows the
// oldest last message of an object.
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
		before := len(watchertest.LogOf(t, b))
		again, err := k.keyframes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		said := 0
		for _, d := range watchertest.LogOf(t, b)[before:] {
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
func onceTold(t *testing.T, pods int) *Reflector {
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

// repeats records keyframes, and returns these and the wait until the next check.
func repeats(t *testing.T, k *Reflector) (said string, again time.Duration) {
	t.Helper()
	before := k.appender.Last()
	again, err := k.keyframes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(watchertest.Ops(toldSince(t, k.bus, before)), " "), again
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
		if last := toldSince(t, k.bus, k.appender.Last()-1)[0]; last.Since != k.since || last.Since <= 4 {
			t.Errorf("the mark says that everything is there since %d, and the watch %d", last.Since, k.since)
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
				t.Errorf("after %v %d keyframes are stored and the next look is in %v, want 500 in %v", wait, got, again, want)
			}
			if said, again := repeats(t, k); strings.Count(said, "is p") != 1 || again != keyframeLate {
				t.Errorf("after that the keyframes are %q, and the next look is in %v", said, again)
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
				t.Errorf("of a log that keeps %v the keyframes are %q, and the next look is in %v", age, said, again)
			}
			time.Sleep(1)
			if said, _ := repeats(t, k); said != "mark" {
				t.Errorf("of a log that keeps %v the keyframes are %q a moment later, want a mark", age, said)
			}
		}
	})
}

// What a log refuses has not been recorded again.
func TestKeyframesThatALogRefuses(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 3, 0)
	k.age = time.Nanosecond
	k.marked = time.Now().Add(time.Hour)
	k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
	if _, err := k.keyframes(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("keyframes in a log that refuses: %v, want ErrOvertaken", err)
	}
	if since := k.recordedSince(); since != 1 {
		t.Errorf("everything is there since %d, which was not recorded", since)
	}
	k.marked = time.Time{}
	if _, err := k.keyframes(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("keyframes in a log that refuses a mark: %v, want ErrOvertaken", err)
	}
}

// Before a log that is bounded by size loses an object, or one whose age limit was lowered does,
// the watcher records the object again.
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
		"nothing is there":      {100, 0, 1000, false},
		"as far from the begin": {100, 50, 100, false},
		"farther":               {100, 50, 101, true},
		"room for one message":  {1, 1, 100, true},
	} {
		k := &Reflector{room: c.room, appender: watchertest.Opened(nil, c.last)}
		k.counted, k.since = true, c.since
		if got := k.aboutToExpire(); got != c.pressed {
			t.Errorf("%s: the log is about to expire: %t, want %t", what, got, c.pressed)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		k := onceTold(t, 2)
		tells(t, k, 0)
		if k.room = 1000; k.since != 0 {
			t.Fatalf("before the first look everything is there since %d, want 0", k.since)
		}
		if said, _ := repeats(t, k); said != "" || k.since != 3 {
			t.Errorf("the keyframes are %q, and everything is there since %d; want none, and the object recorded longest ago", said, k.since)
		}
	})
}

// A reader that starts has too far to read when half as many messages more than the reach follow the
// oldest object.
func TestHowFarBackIsTooFar(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		since, last uint64
		counted     bool
		want        bool
	}{
		"at the reach":        {1, 1 + reachLeast, true, false},
		"at one and a half":   {1, 1 + reachLeast/2*3, true, false},
		"one message farther": {1, 2 + reachLeast/2*3, true, true},
		"nothing is there":    {0, 10 * reachLeast, true, false},
		"it is not counted":   {1, 10 * reachLeast, false, false},
	} {
		k := &Reflector{appender: watchertest.Opened(nil, c.last)}
		k.counted, k.since = c.counted, c.since
		if got := k.tooFarBack(); got != c.want {
			t.Errorf("%s: a reader begins too far back: %t, want %t", what, got, c.want)
		}
	}
}

// An object is due by the messages that follow its last one, or by the age of that.
func TestWhenAnObjectIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		for what, c := range map[string]struct {
			age, old time.Duration
			behind   uint64
			wait     time.Duration
			due      bool
		}{
			"just said":                     {day, 0, 0, 12 * time.Hour, false},
			"an hour ago":                   {day, time.Hour, 10, 11 * time.Hour, false},
			"due in ten seconds":            {day, 12*time.Hour - 10*time.Second, 0, keyframeSoon, false},
			"due in a moment":               {day, 12*time.Hour - 1, 0, keyframeSoon, false},
			"at half of the age":            {day, 12 * time.Hour, 0, keyframeSoon, true},
			"at three quarters":             {day, 18 * time.Hour, 0, keyframeSoon, true},
			"later":                         {day, 18*time.Hour + 1, 0, keyframeUrgent, true},
			"at half of the reach":          {day, 0, reachLeast / 2, 12 * time.Hour, false},
			"behind half of the reach":      {day, 0, reachLeast/2 + 1, keyframeSoon, false},
			"at the reach":                  {day, 0, reachLeast, keyframeSoon, false},
			"behind the reach":              {day, 0, reachLeast + 1, keyframeSoon, true},
			"at one and a half":             {day, 0, reachLeast / 2 * 3, keyframeSoon, true},
			"far behind":                    {day, 0, reachLeast/2*3 + 1, keyframeUrgent, true},
			"far behind, of a short age":    {4 * time.Second, 0, reachLeast/2*3 + 1, time.Second / 2, true},
			"at half of a short age":        {4 * time.Second, 2 * time.Second, 0, time.Second / 2, true},
			"both, the messages in a hurry": {day, 12 * time.Hour, reachLeast * 2, keyframeUrgent, true},
			"both, the age in a hurry":      {day, 19 * time.Hour, reachLeast + 1, keyframeUrgent, true},
		} {
			k := &Reflector{age: c.age}
			k.counted = true
			if wait, due := k.untilDue(events.Message{Time: time.Now().Add(-c.old)}, c.behind); wait != c.wait || due != c.due {
				t.Errorf("%s: the keyframe is due: %t, in %v; want %t, in %v", what, due, wait, c.due, c.wait)
			}
		}
	})
}

// A damaged message, or one about an object that the log does not have so, makes no keyframe.
func TestWhatIsDamagedIsNotSaidAgain(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	k.age = time.Nanosecond
	k.marked = time.Now().Add(time.Hour)
	k.bus = watchertest.Worn(a, logPods, []uint64{2})
	if _, err := k.keyframes(t.Context()); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("keyframes with a damaged message: %v, want ErrDamaged", err)
	}
	k.bus = a
	k.tally = events.Tally{}
	if _, err := k.keyframes(t.Context()); !errors.Is(err, events.ErrDamaged) || !strings.Contains(err.Error(), "message 1 of the log of pods") {
		t.Errorf("keyframes with another count: %v, want ErrDamaged with message 1", err)
	}
}

// The watcher logs once that a log is too small for its objects.
func TestThatALogIsTooSmallIsToldOnce(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{}), 100, 0)
	ctx, log := watchertest.Logged(t)
	small, large := bus.State{Keeps: bus.Retention{Bytes: 3990}, Bytes: 1000, Messages: 100}, bus.State{Keeps: bus.Retention{Bytes: 40000}, Bytes: 40000, Messages: 4000}
	k.noteLimits(ctx, large)
	if log() != "" || k.overfull {
		t.Errorf("about a log that is large enough the watcher logs\n%s", log())
	}
	k.noteLimits(ctx, small)
	k.noteLimits(ctx, small)
	if got := strings.Count(log(), "The log is too small"); got != 1 {
		t.Errorf("about a log that is too small the watcher logs %d times, want once", got)
	}
	k.counted = false
	if k.noteLimits(ctx, small); k.overfull {
		t.Error("a log that is not counted is too small")
	}
	k.counted = true
	if k.noteLimits(ctx, small); strings.Count(log(), "The log is too small") != 2 {
		t.Error("the watcher does not log again that the log is too small")
	}
}

func TestOldObjectsAreSaidAgainAndYoungOnesAreNot(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	_, stop := runs(t, s.Source(t), b)
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 1 }) // the mark of an empty list
	s.PutPod("a", 0)
	s.PutPod("b", 0)
	s.RemovePod("b")
	watchertest.Until(t, func() bool { log := watchertest.LogOf(t, b); return len(log) > 0 && log[len(log)-1].Op == events.Gone })
	stop()
	before := len(watchertest.LogOf(t, b))
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	k := &Reflector{
		kind: kinds.Pods.Kind, bus: b, metrics: NewMetrics(), appender: appender,
		age: time.Hour, cursor: translate.Cursor{Version: "9"}, marked: time.Now(),
	}
	counts(t, k)
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(watchertest.LogOf(t, b)); got != before {
		t.Errorf("%d keyframes of young objects", got-before)
	}
	k.age, k.marked = time.Nanosecond, time.Now().Add(time.Hour)
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := watchertest.LogOf(t, b)[before:]
	if got := fmt.Sprint(watchertest.Ops(again)); got != "[is a mark]" || !again[0].Sync {
		t.Errorf("keyframes %s", got)
	}
}
