package watcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
)

// readContents folds a log without its damaged messages. An object whose last message is damaged does
// not count, and is kept apart.
func TestWhatALogTells(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	tells(t, k, 0) // message 5, behind the mark 4
	log := a.stands(t, logPods)
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
		h, err := readContents(t.Context(), &worn{Bus: a, damaged: map[string]bool{at(logPods, c.damaged): true}}, "pods", 1, log)
		if err != nil || h.unreadable || h.tally.Census().Objects != c.objects || h.places.oldest() != c.since || h.places[hashOf(subject.Delta(aPod("p0")))] != c.p0 {
			t.Errorf("%s: it tells of %d objects since %d, p0 at %v, %v", what, h.tally.Census().Objects, h.places.oldest(), h.places, err)
		}
		if missing := h.state.Compare("", 0).Missing(); uint64(len(missing)) != c.objects {
			t.Errorf("%s: of nothing that is listed, messages %v are missing", what, missing)
		}
		d, broken := h.broken[aPod(c.broken)]
		if broken != (c.broken != "") || broken != (len(h.broken) == 1) || broken && (d.Op != events.Is || d.UID != types.UID("u"+c.broken[1:]) || d.Kind != "pods") {
			t.Errorf("%s: broken are %+v", what, h.broken)
		}
	}
	end := aDelta("p0", 20)
	end.UID, end.Op = "u0", events.Gone
	if err := k.append(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	h, err := readContents(t.Context(), &worn{Bus: a, damaged: map[string]bool{at(logPods, 6): true}}, "pods", 1, a.stands(t, logPods))
	if err != nil || len(h.broken) != 1 || h.broken[aPod("p0")].Op != events.Is {
		t.Errorf("of a damaged end, broken are %+v, %v", h.broken, err)
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
	}{"it can": {a, 3, true}, "nothing can": {&torn{a}, 0, false}, "two messages can": {&cut{a, 2}, 2, false}} {
		h, end, err := readLog(t.Context(), c.b, "pods")
		if err != nil || h.unreadable == c.reads || h.tally.Census().Objects != c.objects || h.matches(census) != c.reads || end.Op != events.Mark {
			t.Errorf("%s be read: it tells of %d objects, unreadable %t, %v, and its end is %+v", what, h.tally.Census().Objects, h.unreadable, err, end)
		}
	}
}

// cut is a bus that cannot read its streams behind a message.
type cut struct {
	bus.Bus
	after uint64
}

func (c *cut) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	return c.Bus.Follow(ctx, stream, from, func(batch []events.Message) error {
		for i, m := range batch {
			if m.Sequence > c.after {
				return errors.Join(handle(batch[:i]), fmt.Errorf("follow: %w", events.ErrDamaged))
			}
		}
		return handle(batch)
	})
}

// torn is a bus that cannot read its streams.
type torn struct{ bus.Bus }

func (*torn) Follow(context.Context, string, uint64, func([]events.Message) error) error {
	return fmt.Errorf("follow: %w", events.ErrDamaged)
}

// The watcher looks for the position of a kind in the last sixteen messages of its log.
func TestHowFarBackThePastIsLookedFor(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 1, 0)
	appends := func(n int, d events.Delta) {
		t.Helper()
		for range n {
			if d.At = time.Now(); k.append(t.Context(), d) != nil {
				t.Fatal("it cannot be appended")
			}
		}
	}
	is := func(what, version string, epoch uint64, proof string) {
		t.Helper()
		k.cursor = translate.Cursor{}
		if c, err := k.knownPosition(t.Context()); err != nil || c.Version != version || c.Epoch != epoch {
			t.Errorf("%s: it has been watched up to %+v, %v; want %s", what, c, err, version)
		}
		last := k.appender.Last()
		newest, _, err := stored(t.Context(), k.bus, logPods, last)
		if err != nil {
			t.Fatal(err)
		}
		k.latest, k.cursor.Epoch = noDelta, 3
		if err := k.findLatest(t.Context(), newest, last); err != nil || k.latest.ResourceVersion != proof {
			t.Errorf("%s: its history is proved by %+v, %v; want %q", what, k.latest, err, proof)
		}
	}
	change := aDelta("p0", 30)
	change.Epoch = 3
	appends(1, change)
	is("at the end", "30", 3, "30")
	finding := aDelta("p1", 31)
	finding.Sync, finding.Epoch = true, 2
	appends(1, finding)
	is("behind a finding", "30", 3, "30")
	appends(14, events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: []byte("{}")})
	is("behind fifteen", "30", 3, "30")
	appends(1, events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: []byte("{}")})
	is("behind sixteen", "", 2, "30") // the epoch of the finding
	appends(1, events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: []byte("{}")})
	is("behind seventeen", "", 0, "")
	first, _ := recorded(t, 1, 0)
	newest, _, err := stored(t.Context(), first.bus, logPods, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.findLatest(t.Context(), newest, 2); err != nil || first.latest.ResourceVersion != "7" {
		t.Errorf("of the first message the history is proved by %+v, %v", first.latest, err)
	}
	known := first.latest
	if err := first.findLatest(t.Context(), aDelta("other", 99), 2); err != nil || first.latest.UID != known.UID {
		t.Errorf("what is known is looked for again: %+v, %v", first.latest, err)
	}
}

// A reader that begins behind the first message waits for the last message that still exists.
func TestWhatIsLeftOfAStream(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 30, 0)
	for what, c := range map[string]struct {
		from, read uint64
		missing    []uint64
		want       uint64
		err        error
	}{
		"from the first":           {1, 0, []uint64{31}, 31, nil},
		"all is there":             {2, 5, nil, 31, nil},
		"the last is gone":         {2, 5, []uint64{31}, 30, nil},
		"two are gone":             {2, 5, []uint64{31, 30}, 29, nil},
		"all behind what was read": {2, 28, []uint64{31, 30, 29}, 28, nil},
		"sixteen are gone":         {2, 5, []uint64{31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16}, 15, nil},
		"seventeen are gone":       {2, 5, []uint64{31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15}, 15, nil},
		"the bus is away":          {2, 5, nil, 31, away},
	} {
		clear(a.missing)
		for _, m := range c.missing {
			a.missing[m] = true
		}
		clear(a.at)
		if c.err != nil {
			a.at[logPods] = c.err
		}
		state := a.stands(t, logPods)
		state.Messages += 7
		if err := left(t.Context(), k.bus, logPods, c.from, c.read, &state); !errors.Is(err, c.err) || state.Last != c.want || state.Messages != 31 {
			t.Errorf("%s: %d messages up to %d are left, %v; want up to %d", what, state.Messages, state.Last, err, c.want)
		}
	}
	state := bus.State{Messages: 3, Last: 31}
	if err := left(t.Context(), k.bus, logPods, 1, 0, &state); err != nil || state.Messages != 3 {
		t.Errorf("of a stream that has more by now %d messages are left, %v", state.Messages, err)
	}
}

// The watcher asks a server that cannot select an object by name for the position alone.
func TestAServerThatCannotSelect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, s := idle(t, memory.New(memory.Options{}))
		from, err := service.source.Kind(kinds.Pods.Kind)
		if err != nil {
			t.Fatal(err)
		}
		service.config.REST.Transport.(*direct).unselective = true
		k := &kindWatch{source: from, cursor: translate.Cursor{Version: "1"}}
		k.latest = events.Delta{Ref: aPod("a"), UID: "u", ResourceVersion: "1"}
		if err := k.prove(t.Context()); err != nil {
			t.Errorf("where it stands is not found: %v", err)
		}
		if k.cursor.Version = "9"; !errors.Is(k.prove(t.Context()), errRewound) {
			t.Error("that it stands before the position is not found")
		}
		s.set(func() { s.refuse["pods"] = http.StatusForbidden })
		if err := k.prove(t.Context()); !source.Refused(err) {
			t.Errorf("of one that refuses: %v", err)
		}
		service.config.REST.Transport.(*direct).reachable(false)
		before := len(service.config.REST.Transport.(*direct).since("pods", time.Time{}))
		if err := k.prove(t.Context()); !source.Unreachable(err) || len(service.config.REST.Transport.(*direct).since("pods", time.Time{})) != before+1 {
			t.Errorf("one that does not answer is asked again: %v", err)
		}
	})
}

// A session retries until the streams and the source of a kind exist, and then does not check them
// again.
func TestWhatASessionNeedsIsThere(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 1, 0)
	opened, fails := 0, error(nil)
	k.open = func(kinds.Kind) (*source.Kind, error) { opened++; return &source.Kind{}, fails }
	a.ensure = away
	if err := k.ensure(t.Context()); !errors.Is(err, away) || opened != 0 || k.ensured {
		t.Errorf("of a bus that is away: %v, opened %d times", err, opened)
	}
	k.ensured = true
	if err := k.ensure(t.Context()); err != nil || opened != 1 {
		t.Errorf("of streams that were there: %v, opened %d times", err, opened)
	}
	if err := k.ensure(t.Context()); err != nil || opened != 1 {
		t.Errorf("of what is all there: %v, opened %d times", err, opened)
	}
	k.ensured, a.ensure = false, nil
	if err := k.ensure(t.Context()); err != nil || opened != 2 || !k.ensured || k.damaged {
		t.Errorf("of streams that were not: %v, opened %d times", err, opened)
	}
	k.ensured, fails = false, away
	if err := k.ensure(t.Context()); !errors.Is(err, away) || k.ensured {
		t.Errorf("of a source that cannot be opened: %v", err)
	}
}

// A report that cannot be stored is sent later, and again every twenty seconds, with the replica's
// name.
func TestWhatCannotBeReportedIsReportedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		service, _ := idle(t, b)
		began := time.Now()
		for _, kind := range []kinds.Kind{kinds.Pods.Kind, kinds.Nodes.Kind, kinds.Jobs.Kind} {
			watch := &kindWatch{kind: kind, metrics: newMetrics()}
			if kind.Name != "jobs.batch" {
				watch.note(away)
			}
			service.kinds[kind.Name] = &running{watch: watch}
		}
		time.AfterFunc(37*time.Second, func() { // virtual
			if err := b.EnsureController(t.Context(), "any"); err != nil {
				t.Error(err)
			}
		})
		ctx, log := logged(t)
		ctx, cancel := context.WithTimeout(ctx, 82*time.Second)
		defer cancel()
		service.reportUnwatched(ctx)
		var at []time.Duration
		state := standing(t, b, subject.StatusStream)
		for sequence := state.First; sequence <= state.Last; sequence++ {
			m, _, err := b.At(t.Context(), subject.StatusStream, sequence)
			if err != nil {
				t.Fatal(err)
			}
			r, err := events.DecodeReport(m)
			if err != nil || len(r.Unwatched) != 2 || r.Unwatched[0].Kind != "nodes" || r.Unwatched[1].Kind != "pods" || r.Replica != "one" {
				t.Errorf("it reports %+v, %v", r, err)
			}
			at = append(at, m.Time.Sub(began))
		}
		inTime(t, "it reports", at, 40*time.Second, time.Minute, 80*time.Second)
		if log() == "" {
			t.Error("that it cannot report is not told")
		}
	})
}

// begun is a bus that notes where each read of a stream begins.
type begun struct {
	bus.Bus
	at []uint64
}

func (b *begun) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	b.at = append(b.at, from)
	return b.Bus.Follow(ctx, stream, from, handle)
}

// TestReadingBeginsWhereEverythingIsThere, and at the first message where the census then does not
// fit.
func TestReadingBeginsWhereEverythingIsThere(t *testing.T) {
	t.Parallel()
	marks := func(since, more uint64) func(*testing.T, *kindWatch) {
		return func(t *testing.T, k *kindWatch) {
			t.Helper()
			d := translate.Mark("pods", "9", k.stamp(false))
			d.Since, d.Census = since, k.tally.Census()
			d.Census.Objects += more
			k.counted = false
			if err := k.append(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*testing.T, *kindWatch)
		want   []uint64
		whole  bool
	}{
		"from the first object on":  {marks(1, 0), []uint64{1}, true},
		"no mark says it":           {marks(0, 0), []uint64{1}, true},
		"from a later one on":       {func(t *testing.T, k *kindWatch) { tells(t, k, 0, 1, 2); marks(7, 0)(t, k) }, []uint64{7}, true},
		"something is there before": {marks(2, 0), []uint64{2, 1}, true},
		"something is lost":         {marks(2, 1), []uint64{2, 1}, false},
		"something is lost from 1":  {marks(1, 1), []uint64{1}, false},
		"the last has no census": {func(t *testing.T, k *kindWatch) {
			tells(t, k, 0, 1, 2)
			marks(7, 0)(t, k)
			tells(t, k, 0) // not counted
		}, []uint64{7, 1}, true},
		"the last is damaged": {func(t *testing.T, k *kindWatch) {
			tells(t, k, 0, 1, 2)
			marks(7, 0)(t, k)
			tells(t, k, 0)
			k.bus = &worn{Bus: k.bus, damaged: map[string]bool{at(logPods, 11): true}}
		}, []uint64{7, 1}, false},
		"what lies before is damaged, and said again": {func(t *testing.T, k *kindWatch) {
			tells(t, k, 0, 1, 2)
			marks(7, 0)(t, k)
			k.bus = &worn{Bus: k.bus, damaged: map[string]bool{at(logPods, 2): true}}
		}, []uint64{7}, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := past(t, memory.New(memory.Options{}), 3, 1)
			tc.change(t, k)
			b := &begun{Bus: k.bus}
			c, end, err := readLog(t.Context(), b, "pods")
			want := end.Census
			if !want.Known {
				want = k.tally.Census()
			}
			if whole := c.matches(want); err != nil || whole != tc.whole || !slices.Equal(b.at, tc.want) {
				t.Errorf("read from %v, whole %t (%v), want %v and %t", b.at, whole, err, tc.want, tc.whole)
			}
		})
	}
}
