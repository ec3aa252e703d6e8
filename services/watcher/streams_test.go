package watcher

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

// An object among the last messages of the log proves the history of the watched epoch.
func TestWhatProvesHistory(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	last, _, err := stored(t.Context(), k.bus, logPods, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.findLatest(t.Context(), last, 4); err != nil || k.latest.Ref.Name != "p2" || k.latest.Body != nil {
		t.Errorf("behind a mark: %+v, %v", k.latest, err)
	}
	k.latest, k.cursor.Epoch = noDelta, 3
	if err := k.findLatest(t.Context(), last, 4); err != nil || k.latest.UID != "" {
		t.Errorf("of another epoch: %+v, %v", k.latest, err)
	}
	k.cursor.Epoch = 0
	a.torn[3] = true
	if err := k.findLatest(t.Context(), last, 4); err != nil || k.latest.UID != "" {
		t.Errorf("of what is torn: %+v, %v", k.latest, err)
	}
	delete(a.torn, 3)
	a.missing[3] = true
	if err := k.findLatest(t.Context(), last, 4); err != nil || k.latest.UID != "" {
		t.Errorf("of what is not there: %+v, %v", k.latest, err)
	}
	a.at[logPods] = away
	if err := k.findLatest(t.Context(), last, 4); !errors.Is(err, away) {
		t.Errorf("of a bus that is away: %v", err)
	}
}

// replay reads a stream up to its end at the start, as long as messages arrive.
func TestAStreamIsReadToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 5, 0)
		all := a.stands(t, logPods)
		read := func(from uint64, at bus.State) (got []uint64, err error) {
			err = replay(t.Context(), k.bus, logPods, from, at, func(m events.Message) error { got = append(got, m.Sequence); return nil })
			return got, err
		}
		shorter, none := all, all
		shorter.Last, none.Messages = 4, 0
		for what, c := range map[string]struct {
			from uint64
			at   bus.State
			want string
		}{
			"from the first": {0, all, "[1 2 3 4 5 6]"}, "from the second": {2, all, "[2 3 4 5 6]"}, "to the fourth": {1, shorter, "[1 2 3 4]"},
			"the last": {6, all, "[6]"}, "behind the last": {7, all, "[]"}, "nothing": {1, none, "[]"},
		} {
			if got, err := read(c.from, c.at); err != nil || fmt.Sprint(got) != c.want {
				t.Errorf("%s: %v, %v, want %s", what, got, err, c.want)
			}
		}
		full := errors.New("full")
		if err := replay(t.Context(), k.bus, logPods, 1, all, func(events.Message) error { return full }); !errors.Is(err, full) {
			t.Errorf("of what cannot be taken: %v", err)
		}
		more := all
		more.Last, more.Messages = all.Last+5, all.Messages+5
		a.states[logPods] = more
		began := time.Now()
		if _, err := read(1, more); !errors.Is(err, events.ErrDamaged) || time.Since(began) < readPatience || time.Since(began) > 2*readPatience {
			t.Errorf("of a stream that says that it goes on: %v, after %v", err, time.Since(began))
		}
		delete(a.states, logPods)
		if got, err := read(1, more); err != nil || len(got) != 6 {
			t.Errorf("of one that has fewer by now: %v, %v", got, err)
		}
		a.state[logPods] = away
		if _, err := read(1, more); !errors.Is(err, away) {
			t.Errorf("of one that does not say: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := replay(ended, k.bus, logPods, 1, all, func(events.Message) error { return nil }); err == nil {
			t.Error("what is ended is read to its end")
		}
	})
}

// A silence lasts only while this process runs and can hear.
func TestASilenceIsHeard(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := quietTime{lastRan: now}
	for _, c := range []struct{ after, want time.Duration }{
		{300 * time.Millisecond, 300 * time.Millisecond}, {700 * time.Millisecond, time.Second}, {time.Hour, 2 * time.Second}, {time.Second, 3 * time.Second},
	} {
		now = now.Add(c.after)
		if got := s.elapsed(now); got != c.want {
			t.Errorf("after %v it has lasted %v, want %v", c.after, got, c.want)
		}
	}
}

// The watcher keeps a kind's streams where it can, and tells the operator what to do where it
// cannot.
func TestStreamsOfOtherSettings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	refused := fmt.Errorf("make: %w", bus.ErrSettings)
	k, a := recorded(t, 1, 0)
	if err := k.settleSettings(ctx, refused); !errors.Is(err, bus.ErrSettings) || !strings.Contains(err.Error(), "Start with the settings that the streams of pods have") {
		t.Errorf("of the kind as it is: %v", err)
	}
	if a.kinds = away; !errors.Is(k.settleSettings(ctx, refused), away) {
		t.Error("which kinds there are is not told, and it is settled")
	}
	if got := advise("pods", away); got != away {
		t.Errorf("what is no matter of settings is told as %v", got)
	}
	a.kinds = nil
	if _, there, err := storedKind(ctx, k.bus, "nodes"); err != nil || there {
		t.Errorf("a kind that is not stored is there: %t, %v", there, err)
	}
	if got, there, err := storedKind(ctx, k.bus, "pods"); err != nil || !there || got != k.kind {
		t.Errorf("a kind that is stored is %+v, %t, %v", got, there, err)
	}
	other := kinds.Pods.Kind
	other.Version = "v9"
	k.kind, k.served = other, func(string) bool { return false }
	a.forgotten = away
	if err := k.settleSettings(ctx, refused); !errors.Is(err, away) {
		t.Errorf("streams that cannot be removed are made anew: %v", err)
	}
	a.forgotten, a.ensure = nil, refused
	if err := k.settleSettings(ctx, refused); !errors.Is(err, bus.ErrSettings) || !strings.Contains(err.Error(), "Start with the settings") {
		t.Errorf("streams that cannot be made anew: %v", err)
	}
}

// The watcher reports a kind that it could not watch for half a minute, and since when.
func TestWhichKindsAreNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kindWatch{kind: kinds.Pods.Kind, metrics: newMetrics()}
		if synced, err := k.status(); synced || err != nil {
			t.Errorf("before anything it is synced: %t, %v", synced, err)
		}
		began := time.Now()
		if !k.note(away) || k.note(errors.New("away")) || !k.note(errors.New("refused")) {
			t.Error("what is news is not told from what is not")
		}
		if _, told := k.unwatched(began.Add(events.StallAfter - 1)); told {
			t.Error("it is told before half a minute is over")
		}
		if u, told := k.unwatched(began.Add(events.StallAfter)); !told || u.Reason != "refused" || u.Kind != "pods" || !u.Since.Equal(began) {
			t.Errorf("it is told as %+v, %t", u, told)
		}
		k.note(nil)
		if _, told := k.unwatched(began.Add(time.Hour)); told {
			t.Error("what is watched is told not to be")
		}
		if synced, err := k.status(); !synced || err != nil {
			t.Errorf("when it is watched it is synced: %t, %v", synced, err)
		}
		time.Sleep(time.Minute) // virtual
		k.note(away)
		if u, told := k.unwatched(time.Now().Add(events.StallAfter)); !told || !u.Since.Equal(time.Now()) {
			t.Errorf("it is told as %+v, %t", u, told)
		}
		if synced, err := k.status(); !synced || err == nil {
			t.Errorf("what was watched once is synced: %t, %v", synced, err)
		}
	})
}

// After a refusal the next attempt waits longer than after a missing answer, and at least as long
// as the refusal says.
func TestHowLongAnAttemptWaits(t *testing.T) {
	t.Parallel()
	answer := func(code, seconds int) error {
		return apierrors.NewGenericServerResponse(code, "watch", schema.GroupResource{}, "", "", seconds, true)
	}
	longest := func(err error) (wait time.Duration) {
		var p retryPause
		for range 30 {
			wait = max(wait, p.next(err))
		}
		return wait
	}
	for what, c := range map[string]struct {
		err         error
		least, most time.Duration
	}{
		"away": {away, 300 * time.Millisecond, 900 * time.Millisecond}, "forbidden": {answer(403, 0), 5 * time.Second, 15 * time.Second},
		"expired": {answer(410, 0), 300 * time.Millisecond, 900 * time.Millisecond}, "settings": {bus.ErrSettings, 5 * time.Second, 15 * time.Second},
		"busy": {answer(429, 60), time.Minute, time.Minute},
	} {
		if got := longest(c.err); got < c.least || got > c.most {
			t.Errorf("%s: it waits %v, want between %v and %v", what, got, c.least, c.most)
		}
	}
	var p retryPause
	if first := p.next(away); first < firstPause/2 || first > firstPause*3/2 {
		t.Errorf("at first it waits %v", first)
	}
}

// An object gains room as time pays for its bytes.
func TestTheRoomOfAnObject(t *testing.T) {
	t.Parallel()
	b := bounds{Bound: Bound{Burst: 1000, PerSecond: 100}}
	now := time.Now()
	a := &account{}
	if at := b.room(a, 1000); at.After(now) {
		t.Errorf("an object of which nothing is recorded waits until %v", at)
	}
	b.charge(a, events.Delta{Body: make([]byte, 1000)}, now)
	for bytes, want := range map[int]time.Duration{1: 10 * time.Millisecond, 500: 5 * time.Second, 1000: 10 * time.Second, 5000: 10 * time.Second} {
		if at := b.room(a, bytes).Sub(now); at != want {
			t.Errorf("%d bytes wait %v, want %v", bytes, at, want)
		}
	}
	b.charge(a, events.Delta{Body: make([]byte, 100), Deleting: true}, now.Add(time.Second))
	if at := b.room(a, 1000).Sub(now); at != 11*time.Second || !a.deleting {
		t.Errorf("after 100 bytes more it waits %v", at)
	}
	b.charge(a, events.Delta{Body: make([]byte, 100)}, now.Add(time.Hour))
	if at := b.room(a, 1000).Sub(now.Add(time.Hour)); at != time.Second || a.deleting {
		t.Errorf("after an hour at rest it waits %v", at)
	}
	for bound, off := range map[Bound]bool{{}: true, {1, 1}: false, {1, 0}: true, {0, 1}: true, {-1, 1}: true, {1, -1}: true} {
		if b := (bounds{Bound: bound}); b.off() != off {
			t.Errorf("%+v is off: %t", bound, b.off())
		}
	}
	if got := (Bound{Burst: 3}).or(Bound{Burst: 5, PerSecond: 7}); got != (Bound{3, 7}) {
		t.Errorf("what is not said is %+v", got)
	}
}

// A version waits when there is no room; only the newest waits, and earlier ones are counted.
func TestVersionsThatWait(t *testing.T) {
	t.Parallel()
	b, now := bounds{Bound: Bound{Burst: 100, PerSecond: 100}}, time.Now()
	dropped := 0
	b.leftOut = func(bytes int) { dropped += bytes }
	is := func(uid types.UID, size int, deleting bool) events.Delta {
		return events.Delta{UID: uid, Op: events.Is, Body: make([]byte, size), Deleting: deleting}
	}
	admits := func(d events.Delta, first bool, after time.Duration) bool {
		admitted, _ := b.admits(d, translate.Writers{}, first, now.Add(after))
		return admitted
	}
	if !admits(is("a", 100, false), false, 0) || admits(is("a", 100, false), false, 0) || b.waits != 1 || b.waiting != 100 {
		t.Fatalf("of two versions %d wait, with %d bytes", b.waits, b.waiting)
	}
	if admits(is("a", 60, false), false, 0) || b.waits != 1 || b.waiting != 60 || dropped != 100 || b.left("a") != (events.Left{Versions: 1, Bytes: 100}) {
		t.Errorf("of a third %d wait, with %d bytes, and %d were left out: %+v", b.waits, b.waiting, dropped, b.left("a"))
	}
	if !admits(is("b", 1000, false), true, 0) || b.left("b") != (events.Left{}) || b.left("c") != (events.Left{}) {
		t.Error("the first version of an object waits")
	}
	if due, next := b.due(false, now); len(due) != 0 || !next.Equal(now.Add(600*time.Millisecond)) {
		t.Errorf("at once %d are due, the next in %v", len(due), next.Sub(now))
	}
	if due, next := b.due(true, now); len(due) != 1 || !next.IsZero() {
		t.Errorf("of all %d are due, the next at %v", len(due), next)
	}
	if due, next := b.due(false, now.Add(600*time.Millisecond)); len(due) != 1 || !next.IsZero() {
		t.Errorf("in time %d are due, the next at %v", len(due), next)
	}
	if !admits(is("a", 50, true), false, 0) || b.waits != 0 || b.waiting != 0 {
		t.Error("a deletion waits")
	}
	if admits(is("a", 50, true), false, 0) {
		t.Error("what changes while it is being deleted does not wait")
	}
	b.dropAtEnd("a")
	b.dropAtEnd("c")
	if b.waits != 0 || b.left("a").Versions != 3 {
		t.Errorf("at its end %d wait, and %+v was left out", b.waits, b.left("a"))
	}
	b.noteRecorded(events.Delta{UID: "a", Op: events.Is})
	b.noteRecorded(events.Delta{UID: "c", Op: events.Is})
	if b.left("a") != (events.Left{}) || len(b.objects) != 2 {
		t.Errorf("once it is recorded %+v was left out, of %d objects", b.left("a"), len(b.objects))
	}
	if b.noteRecorded(events.Delta{UID: "a", Op: events.Gone}); len(b.objects) != 1 {
		t.Errorf("of what has gone %d objects are known", len(b.objects))
	}
	if due, next := b.due(true, now); due != nil || !next.IsZero() {
		t.Errorf("of nothing %d are due", len(due))
	}
	admits(is("b", 100, false), false, 0)
	b.objects[hashOf("b")].left.Versions = 7
	if b.dropAll(false); b.waits != 0 || b.left("b").Versions != 7 {
		t.Errorf("when it is listed %d wait, and %+v was left out", b.waits, b.left("b"))
	}
	if b.dropAll(true); b.left("b").Versions != 0 {
		t.Errorf("when it is resumed %+v was left out", b.left("b"))
	}
	if b.dropIdle(now); len(b.objects) != 1 || b.sweepAt != 2 {
		t.Errorf("of a busy object %d are known", len(b.objects))
	}
	if b.dropIdle(now.Add(time.Hour)); b.objects != nil || b.sweepAt != 0 {
		t.Errorf("of one at rest %d are known", len(b.objects))
	}
}

// The watcher records the oldest waiting version before the waiting ones exceed their memory.
func TestWhatWaitsHasABound(t *testing.T) {
	t.Parallel()
	b, now := bounds{Bound: Bound{Burst: 1, PerSecond: 1}}, time.Now()
	for i, uid := range []types.UID{"c", "a", "b"} {
		b.admits(events.Delta{UID: uid}, translate.Writers{}, true, now)
		b.objects[hashOf(string(uid))].idle = now.Add(time.Hour)
		b.admits(events.Delta{UID: uid, Body: make([]byte, maxWaiting/2)}, translate.Writers{}, false, now.Add(time.Duration(min(i, 1))))
	}
	due, _ := b.due(false, now)
	if len(due) != 1 || due[0].waits.delta.UID != "c" {
		t.Errorf("%d are due, want the oldest", len(due))
	}
	if due, _ = b.due(true, now); len(due) != 3 || due[1].waits.delta.UID != "a" || due[2].waits.delta.UID != "b" {
		t.Errorf("%d are due, want all, the oldest first", len(due))
	}
}

// reach follows from the number of objects and from the log's room.
func TestHowFarTheLogReaches(t *testing.T) {
	t.Parallel()
	with := func(objects, room uint64, counted bool) *kindWatch {
		k := &kindWatch{room: room}
		k.counted = counted
		for i := range objects {
			k.tally.Fold(events.Delta{Op: events.Is, Ref: events.Ref{Kind: "pods", Name: fmt.Sprint(i)}, UID: "u", ResourceVersion: "1"})
		}
		return k
	}
	for what, c := range map[string]struct {
		k    *kindWatch
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
			t.Errorf("%s: it keeps %v, room for %d, narrow %t", what, k.age, k.room, k.overfull)
		}
	}
	k = with(1, 0, true)
	k.age = time.Hour
	if k.noteLimits(t.Context(), bus.State{Keeps: bus.Retention{Age: time.Hour}}); k.ageLowered {
		t.Error("the same age is shorter")
	}
	if k.noteLimits(t.Context(), bus.State{Keeps: bus.Retention{Age: time.Minute}}); !k.ageLowered || k.minKeyframeWait() != time.Minute/8 {
		t.Errorf("an age that is less is not shorter, or it is looked in %v", k.minKeyframeWait())
	}
	k.age = 24 * time.Hour
	if k.minKeyframeWait() != keyframeSoon {
		t.Errorf("of a long age it is looked in %v", k.minKeyframeWait())
	}
}
