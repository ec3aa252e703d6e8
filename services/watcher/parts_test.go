package watcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

// ailing is a bus on which single answers fail, or are wrong.
type ailing struct {
	bus.Bus
	mu                sync.Mutex // of the maps, while a watch runs beside the test
	kinds, follow     error
	state, at, last   map[string]error     // by stream
	states            map[string]bus.State // the answer instead of the true one
	torn              map[uint64]bool      // damaged messages
	missing           map[uint64]bool      // missing messages
	ensure, forgotten error
}

func (a *ailing) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if a.kinds != nil {
		return nil, a.kinds
	}
	return a.Bus.Kinds(ctx)
}

// fails makes a stream unreachable, or reachable again, while a watch runs.
func (a *ailing) fails(stream string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state[stream] = err
}

func (a *ailing) StreamState(ctx context.Context, stream string) (bus.State, error) {
	a.mu.Lock()
	err := a.state[stream]
	s, ok := a.states[stream]
	a.mu.Unlock()
	if err != nil || ok {
		return s, err
	}
	return a.Bus.StreamState(ctx, stream)
}

func (a *ailing) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if err := a.at[stream]; err != nil {
		return events.Message{}, false, err
	}
	m, there, err := a.Bus.At(ctx, stream, sequence)
	if a.torn[sequence] {
		m.Data = append([]byte("torn"), m.Data...)
	}
	return m, there && !a.missing[sequence], err
}

func (a *ailing) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	if err := a.last[stream]; err != nil {
		return events.Message{}, false, err
	}
	return a.Bus.Last(ctx, stream, subject)
}

func (a *ailing) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	if a.follow != nil {
		return a.follow
	}
	return a.Bus.Follow(ctx, stream, from, handle)
}

func (a *ailing) EnsureKind(ctx context.Context, kind kinds.Kind) error {
	if a.ensure != nil {
		return a.ensure
	}
	return a.Bus.EnsureKind(ctx, kind)
}

func (a *ailing) DeleteKind(ctx context.Context, kind kinds.Name) error {
	if a.forgotten != nil {
		return a.forgotten
	}
	return a.Bus.DeleteKind(ctx, kind)
}

var (
	away    = errors.New("away")
	logPods = subject.LogStream("pods")
)

// recorded is a watch of pods with some pods on record, and a mark behind them, on an ailing bus.
func recorded(t *testing.T, there, gone int) (*kindWatch, *ailing) {
	t.Helper()
	k := past(t, memory.New(memory.Options{}), there, gone)
	a := &ailing{
		Bus: k.bus, state: map[string]error{}, at: map[string]error{}, last: map[string]error{}, states: map[string]bus.State{},
		torn: map[uint64]bool{}, missing: map[uint64]bool{},
	}
	k.bus = a
	return k, a
}

func (a *ailing) stands(t *testing.T, stream string) bus.State {
	t.Helper()
	s, err := a.Bus.StreamState(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Where the bus does not answer, the watch returns that error, and does not take a missing answer
// for an empty one.
func TestWhatIsNotAnsweredIsAnError(t *testing.T) {
	t.Parallel()
	fails := map[string]func(*ailing){
		"the log":     func(a *ailing) { a.state[logPods] = away },
		"a message":   func(a *ailing) { a.at[logPods] = away },
		"the mark":    func(a *ailing) { a.last[logPods] = away },
		"the reading": func(a *ailing) { a.follow = away },
	}
	for what, c := range map[string]struct {
		do    func(ctx context.Context, k *kindWatch) error
		fails []string
	}{
		"resume": {func(ctx context.Context, k *kindWatch) error {
			k.logState = logState{}
			_, err := k.resume(ctx)
			return err
		}, []string{"the log", "a message", "the mark", "the reading"}},
		"contents": {func(ctx context.Context, k *kindWatch) error { _, _, err := readLog(ctx, k.bus, "pods"); return err }, []string{"the log", "a message", "the mark", "the reading"}},
		"count": {func(ctx context.Context, k *kindWatch) error {
			_, err := k.count(ctx, ends(k), events.Delta{}, 1)
			return err
		}, []string{"the reading"}},
		"past": {func(ctx context.Context, k *kindWatch) error {
			k.cursor = translate.Cursor{}
			_, err := k.knownPosition(ctx)
			return err
		}, []string{"a message"}},
		"keyframes": {func(ctx context.Context, k *kindWatch) error { _, err := k.keyframes(ctx); return err }, []string{"the reading"}},
		"settled":   {func(ctx context.Context, k *kindWatch) error { return k.staysShorter(ctx, bus.State{Last: 4}, 9) }, []string{"the log"}},
		"bury":      {func(ctx context.Context, k *kindWatch) error { return k.recordDeleted(ctx, 99) }, []string{"a message"}},
		"told":      {func(ctx context.Context, k *kindWatch) error { _, err := lastTold(ctx, k.bus, "pods"); return err }, []string{"the log", "a message"}},
		"scrub": {func(ctx context.Context, k *kindWatch) error {
			_, err := (&scrubber{bus: k.bus, kind: "pods"}).pass(ctx)
			return err
		}, []string{"the log", "a message", "the reading"}},
	} {
		for _, fail := range c.fails {
			k, a := recorded(t, 3, 0)
			fails[fail](a)
			if err := c.do(t.Context(), k); !errors.Is(err, away) {
				t.Errorf("%s: %s is not answered: %v", what, fail, err)
			}
		}
	}
}

// look notices a log that is not what this watcher wrote.
func TestALookFindsALogOfAnother(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(log *bus.State)
		err    error
	}{
		"all is as it was":          {func(*bus.State) {}, nil},
		"the log was made anew":     {func(log *bus.State) { log.Created = log.Created.Add(1) }, bus.ErrOvertaken},
		"the log goes on":           {func(log *bus.State) { log.Last++ }, bus.ErrOvertaken},
		"the log has lost its end":  {func(log *bus.State) { log.Last-- }, bus.ErrOvertaken},
		"the log has lost an older": {func(log *bus.State) { log.First, log.Messages = 2, 3 }, events.ErrDamaged},
	} {
		k, a := recorded(t, 3, 0)
		log := a.stands(t, logPods)
		k.created = log.Created
		c.change(&log)
		a.states[logPods] = log
		k.checkedAt = time.Now().Add(-checkStreamsIdle)
		if err := k.checkStreams(t.Context()); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{"is gone": bus.ErrNoStream, "is away": away} {
		k, a := recorded(t, 1, 0)
		a.state[logPods], k.checkedAt = err, time.Now().Add(-checkStreamsIdle)
		if got := k.checkStreams(t.Context()); errors.Is(got, bus.ErrNoStream) != (err == bus.ErrNoStream) || err == away && got != nil {
			t.Errorf("the log %s: %v", what, got)
		}
	}
}

// A log that has dropped an object that exists has everything recorded again, once a minute.
func TestALogThatHasDroppedWhatExists(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*kindWatch)
		first  uint64
		since  uint64 // which the watch knows afterwards
		err    error
	}{
		"it has all of them":           {func(*kindWatch) {}, 1, 1, nil},
		"it has dropped the oldest":    {func(*kindWatch) {}, 2, 1, events.ErrDamaged},
		"it is empty":                  {func(*kindWatch) {}, 5, 1, events.ErrDamaged},
		"the oldest was changed since": {func(k *kindWatch) { k.places[hashOf(subject.Delta(aPod("p0")))] = 5 }, 2, 2, nil},
		"nothing exists":               {func(k *kindWatch) { k.places, k.since = places{}, 0 }, 5, 0, nil},
		"all have gone since":          {func(k *kindWatch) { k.places = places{} }, 5, 0, nil},
		"it is not counted":            {func(k *kindWatch) { k.counted = false }, 2, 1, nil},
		"a moment ago, too":            {func(k *kindWatch) { k.reportActedOn = time.Now().Add(-time.Second) }, 2, 1, nil},
		"a minute ago, too":            {func(k *kindWatch) { k.reportActedOn = time.Now().Add(-repairEvery) }, 2, 1, events.ErrDamaged},
	} {
		k, _ := recorded(t, 3, 0)
		c.change(k)
		acted := k.reportActedOn
		err := k.checkDropped(bus.State{First: c.first, Last: 4})
		if !errors.Is(err, c.err) || k.since != c.since || (c.err != nil) != k.reportActedOn.After(acted) {
			t.Errorf("%s: %v, everything is there since %d", what, err, k.since)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprint("message 1, and it begins with ", c.first)) {
			t.Errorf("%s: it is told as %v", what, err)
		}
	}
}

// The watcher checks the streams every ten seconds, and every two minutes while nothing happens.
func TestHowOftenTheStreamsAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 1, 0)
		k.created = a.stands(t, logPods).Created
		looks := func() bool {
			t.Helper()
			before := k.checkedAt
			if err := k.checkStreams(t.Context()); err != nil {
				t.Fatal(err)
			}
			return !before.IsZero() && k.checkedAt.After(before)
		}
		if looks() {
			t.Error("what the session has just read is looked at")
		}
		time.Sleep(checkStreamsEvery - 1) // virtual
		if looks() {
			t.Error("it is looked at before ten seconds are over")
		}
		time.Sleep(1)
		if !looks() || !k.atRest() {
			t.Error("it is not looked at after ten seconds")
		}
		time.Sleep(checkStreamsIdle - 1)
		if looks() {
			t.Error("at rest it is looked at before two minutes are over")
		}
		time.Sleep(1)
		if !looks() {
			t.Error("at rest it is not looked at after two minutes")
		}
	})
}

// The second of two reports within a minute makes the watcher record every object again, unless it is
// a suspicion or older than the repair; once a minute.
func TestAReportIsLookedInto(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		heard, all     time.Duration // ago; 0: never
		damage         events.Damage
		damaged, again bool
	}{
		"the first":                      {0, 0, events.Damage{End: 9}, true, false},
		"before what has been mended":    {0, 0, events.Damage{End: 4}, false, false},
		"at what has been mended":        {0, 0, events.Damage{End: 5}, true, false},
		"again":                          {time.Second, 0, events.Damage{End: 9}, true, true},
		"a suspicion, again":             {time.Second, 0, events.Damage{End: 9, Suspected: true}, false, false},
		"again, and just said again":     {time.Second, time.Second, events.Damage{End: 9}, false, false},
		"again, and said again before":   {time.Second, repairEvery, events.Damage{End: 9}, true, true},
		"after a minute":                 {repairEvery, 0, events.Damage{End: 9}, true, false},
		"a suspicion, after a minute":    {repairEvery, 0, events.Damage{End: 9, Suspected: true}, true, false},
		"a suspicion, before the repair": {0, 0, events.Damage{End: 4, Suspected: true}, false, false},
	} {
		k := &kindWatch{}
		k.repairedAt = 5
		if c.heard > 0 {
			k.reportActedOn = time.Now().Add(-c.heard)
		}
		if c.all > 0 {
			k.recordAllAt = time.Now().Add(-c.all)
		}
		if err := k.reportedDamage(c.damage); errors.Is(err, events.ErrDamaged) != c.damaged || k.recordAll != c.again {
			t.Errorf("%s: %v, all is to be said again: %t", what, err, k.recordAll)
		}
		if k.recordAll && k.reportedDamage(c.damage) != nil {
			t.Errorf("%s: one more report has all said again once more", what)
		}
	}
}

// What a starting watch concludes from the end of a log.
func TestWhatTheEndOfALogTells(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*kindWatch, *ailing)
		reason string // of the hole; "": it is resumed
		err    error
	}{
		"all is there":           {func(*kindWatch, *ailing) {}, "", nil},
		"the last is torn":       {func(_ *kindWatch, a *ailing) { a.torn[5] = true }, "the end of the log is damaged", nil},
		"the last is not there":  {func(_ *kindWatch, a *ailing) { a.missing[5] = true }, "the end of the log is not there any more", nil},
		"the one before is torn": {func(_ *kindWatch, a *ailing) { a.torn[3] = true }, "a message at the end of the log is lost or damaged", nil},
		"the one before is gone": {func(_ *kindWatch, a *ailing) { a.missing[3] = true }, "a message at the end of the log is lost or damaged", nil},
		"the log has gone on":    {func(_ *kindWatch, a *ailing) { a.states[logPods] = bus.State{First: 1, Last: 6, Messages: 6} }, "", bus.ErrOvertaken},
	} {
		k, a := recorded(t, 3, 0)
		if k.mark(t.Context()) != nil {
			t.Fatal("it cannot be marked")
		}
		k.logState = logState{}
		c.change(k, a)
		resumed, err := k.resume(t.Context())
		if !errors.Is(err, c.err) || resumed != (c.reason == "" && c.err == nil) || k.nextGap.Reason != c.reason {
			t.Errorf("%s: resumed %t, %v, the hole is %+v", what, resumed, err, k.nextGap)
		}
	}
}

// The wait for a log that may grow ends after a second, or with an error as soon as the log grows.
func TestALogThatGoesOnIsAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 3, 0)
		began := time.Now()
		if err := k.staysShorter(t.Context(), a.stands(t, logPods), 9); err != nil || time.Since(began) < shorterLogPatience {
			t.Errorf("of a log at rest: %v, after %v", err, time.Since(began))
		}
		if err := k.staysShorter(t.Context(), bus.State{Last: 3}, 9); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("of one that has gone on: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := k.staysShorter(ended, a.stands(t, logPods), 9); !errors.Is(err, context.Canceled) {
			t.Errorf("of one that no one waits for: %v", err)
		}
	})
}

// bury finds an object in the log; if it is not there, another watcher has overtaken this one.
func TestWhatIsBuriedIsFound(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 2, 0)
	if err := k.recordDeleted(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if last, _, err := stored(t.Context(), k.bus, logPods, k.appender.Last()); err != nil || last.Op != events.Gone || last.Ref.Name != "p0" || !last.Sync {
		t.Errorf("the end is %+v, %v", last, err)
	}
	if err := k.recordDeleted(t.Context(), 99); !errors.Is(err, bus.ErrOvertaken) || !strings.Contains(err.Error(), "read message 99 of the log of pods") {
		t.Errorf("of what is nowhere: %v", err)
	}
	a.torn[2] = true
	if err := k.recordDeleted(t.Context(), 2); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("of what is torn: %v", err)
	}
}

// The position of a log is that of its newest delta with a version.
func TestThePastOfALog(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	if c, err := k.knownPosition(t.Context()); err != nil || c.Version != "9" {
		t.Errorf("where it is known: %+v, %v", c, err)
	}
	k.cursor = translate.Cursor{}
	a.torn[4] = true
	if c, err := k.knownPosition(t.Context()); err != nil || c.Version != "7" {
		t.Errorf("behind a message that is torn: %+v, %v", c, err)
	}
	for at := range uint64(5) {
		a.missing[at] = true
	}
	if c, err := k.knownPosition(t.Context()); err != nil || c.Version != "" {
		t.Errorf("of nothing: %+v, %v", c, err)
	}
}
