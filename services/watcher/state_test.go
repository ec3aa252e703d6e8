package watcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
)

// The watcher waits for a state until that has stood still for more than twenty seconds.
func TestForHowLongAStateIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 3, 0)
		began := time.Now()
		if _, err := caughtUp(t.Context(), k.bus, "pods", 5); !errors.Is(err, events.ErrDamaged) || time.Since(began) != mirrorPatience+mirrorPoll {
			t.Errorf("one that stands still: %v, after %v", err, time.Since(began))
		}
		began = time.Now()
		if got, err := caughtUp(t.Context(), &growing{a, began}, "pods", 7); err != nil || got.Last != 7 || time.Since(began) != 45*time.Second {
			t.Errorf("one that goes on: %+v, %v, after %v", got, err, time.Since(began))
		}
	})
}

// growing is a bus whose state of pods advances every fifteen seconds.
type growing struct {
	bus.Bus
	began time.Time
}

func (g *growing) StreamState(ctx context.Context, stream string) (bus.State, error) {
	state, err := g.Bus.StreamState(ctx, stream)
	state.Last += uint64(time.Since(g.began) / (15 * time.Second))
	return state, err
}

// readState folds a state without its damaged messages. Where only tombstones are left, the window
// begins behind the end of the stream.
func TestWhatAStateHolds(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	h, err := readState(t.Context(), &worn{Bus: a, damaged: map[string]bool{at(statePod, 4): true}}, "pods", 1, 4)
	if err != nil || len(h.broken) != 0 || h.tally.Census().Objects != 3 || h.window.Since() != 1 {
		t.Errorf("with a damaged mark it holds %d objects since %d, %d damaged, %v", h.tally.Census().Objects, h.window.Since(), len(h.broken), err)
	}
	h, err = readState(t.Context(), &worn{Bus: a, damaged: map[string]bool{at(statePod, 1): true}}, "pods", 1, 4)
	if err != nil || len(h.broken) != 1 || h.broken[0].Ref != aPod("p0") || h.tally.Census().Objects != 2 || h.window.Since() != 1 || len(h.state.Compare("", 0).Missing()) != 2 {
		t.Errorf("with a damaged object it holds %d objects since %d, %+v damaged, %v", h.tally.Census().Objects, h.window.Since(), h.broken, err)
	}
	for i := range 3 {
		if h.places[hashOf(subject.Delta(aPod(fmt.Sprint("p", i))))] != map[int]uint64{0: 0, 1: 2, 2: 3}[i] {
			t.Errorf("the places are %v", h.places)
		}
	}
	if _, err := k.readContents(t.Context(), 1); err != nil || k.places[hashOf(subject.Delta(aPod("p0")))] != 1 {
		t.Errorf("the places are not kept: %v, %v", k.places, err)
	}
	ends := past(t, memory.New(memory.Options{}), 0, 3)
	if h, err = readState(t.Context(), ends.bus, "pods", 1, 7); err != nil || h.window.Since() != 8 {
		t.Errorf("of ends alone everything is there since %d, %v", h.window.Since(), err)
	}
}

// A recreated state is empty, but the known position is kept.
func TestAStateIsMadeAnew(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	k.places = places{}
	before := a.stands(t, statePod).Created
	k.recreateState, k.cursor = true, translate.Cursor{Version: "50", Epoch: 2}
	h, err := k.readContents(t.Context(), 1)
	if err != nil || !h.fresh || len(h.broken) != 0 || k.recreateState || k.places != nil || time.Since(k.stateRecreatedAt) > time.Minute {
		t.Errorf("made anew it is %+v, %v, at %v", h, err, k.stateRecreatedAt)
	}
	if state := a.stands(t, statePod); state.Messages != 0 || !k.state.Equal(state.Created) || state.Created.Before(before) {
		t.Errorf("the state has %d messages, and was made at %v, not %v", state.Messages, state.Created, k.state)
	}
	if past, err := k.knownPosition(t.Context()); err != nil || past != (translate.Cursor{Version: "50", Epoch: 2}) {
		t.Errorf("it has been watched up to %+v, %v", past, err)
	}
	k, a = recorded(t, 3, 0)
	k.bus = &torn{a}
	ctx, log := logged(t)
	if h, err := k.readContents(ctx, 1); err != nil || !h.fresh || !k.damaged || k.nextGap.Reason == "" {
		t.Errorf("one that cannot be read is %+v, %v, %+v:\n%s", h, err, k.nextGap, log())
	}
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
	fails, k.cursor = nil, translate.Cursor{}
	a.state[logPods] = bus.ErrNoStream
	if err := k.ensure(t.Context()); err != nil || !k.damaged || k.cursor.Version != "9" {
		t.Errorf("of a state without a log: %v, from %+v", err, k.cursor)
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
