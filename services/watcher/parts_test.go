package watcher

import (
	"context"
	"errors"
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
	away              = errors.New("away")
	logPods, statePod = subject.LogStream("pods"), subject.StateStream("pods")
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
		"the state":   func(a *ailing) { a.state[statePod] = away },
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
		}, []string{"the log", "the state", "a message", "the mark", "the reading"}},
		"holds": {func(ctx context.Context, k *kindWatch) error { _, err := k.readContents(ctx, 1); return err }, []string{"the state", "the reading"}},
		"renew": {func(ctx context.Context, k *kindWatch) error {
			k.recreateState = true
			_, err := k.readContents(ctx, 1)
			return err
		}, []string{"the state"}},
		"past": {func(ctx context.Context, k *kindWatch) error {
			k.cursor = translate.Cursor{}
			_, err := k.knownPosition(ctx)
			return err
		}, []string{"a message"}},
		"recollect": {func(ctx context.Context, k *kindWatch) error {
			return k.addFromLog(ctx, stateContents{state: translate.NewState()})
		}, []string{"the log", "a message", "the mark", "the reading"}},
		"followed":  {func(ctx context.Context, k *kindWatch) error { return k.awaitMirror(ctx) }, []string{"the state"}},
		"keyframes": {func(ctx context.Context, k *kindWatch) error { _, err := k.keyframes(ctx); return err }, []string{"the state", "the reading"}},
		"stands":    {func(ctx context.Context, k *kindWatch) error { return k.logUnchanged(ctx) }, []string{"the log"}},
		"search": {func(ctx context.Context, k *kindWatch) error {
			_, err := k.searchStaleBefore(ctx, "pods", 2)
			return err
		}, []string{"the state", "the reading"}},
		"settled": {func(ctx context.Context, k *kindWatch) error { return k.staysShorter(ctx, bus.State{Last: 4}, 9) }, []string{"the log"}},
		"bury":    {func(ctx context.Context, k *kindWatch) error { return k.recordDeleted(ctx, 99) }, []string{"a message"}},
		"told":    {func(ctx context.Context, k *kindWatch) error { _, err := lastTold(ctx, k.bus, "pods"); return err }, []string{"the log", "a message"}},
		"scrub": {func(ctx context.Context, k *kindWatch) error {
			_, err := (&scrubber{bus: k.bus, kind: "pods"}).pass(ctx)
			return err
		}, []string{"the log", "a message", "the reading"}},
	} {
		for _, fail := range c.fails {
			k, a := recorded(t, 3, 0)
			if k.state = a.stands(t, statePod).Created; k.mark(t.Context()) != nil { // which proves the state
				t.Fatal("it cannot be marked")
			}
			fails[fail](a)
			if err := c.do(t.Context(), k); !errors.Is(err, away) {
				t.Errorf("%s: %s is not answered: %v", what, fail, err)
			}
		}
	}
}

// look notices streams that are not what this watcher wrote.
func TestALookFindsStreamsOfOthers(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(log, state *bus.State)
		err    error
	}{
		"all is as it was":        {func(_, _ *bus.State) {}, nil},
		"the log was made anew":   {func(log, _ *bus.State) { log.Created = log.Created.Add(1) }, bus.ErrOvertaken},
		"the state was made anew": {func(_, state *bus.State) { state.Created = state.Created.Add(1) }, bus.ErrOvertaken},
		"the log goes on":         {func(log, _ *bus.State) { log.Last++ }, bus.ErrOvertaken},
		"the state is before it":  {func(_, state *bus.State) { state.Last += 5 }, bus.ErrOvertaken},
		"the state is behind":     {func(_, state *bus.State) { state.Last-- }, nil},
	} {
		k, a := recorded(t, 3, 0)
		log, state := a.stands(t, logPods), a.stands(t, statePod)
		k.created, k.state = log.Created, state.Created
		c.change(&log, &state)
		a.states[logPods], a.states[statePod] = log, state
		k.checkedAt = time.Now().Add(-checkStreamsIdle)
		if err := k.checkStreams(t.Context()); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{"is gone": bus.ErrNoStream, "is away": away} {
		for _, stream := range []string{logPods, statePod} {
			k, a := recorded(t, 1, 0)
			a.state[stream], k.checkedAt = err, time.Now().Add(-checkStreamsIdle)
			if got := k.checkStreams(t.Context()); errors.Is(got, bus.ErrNoStream) != (err == bus.ErrNoStream) || err == away && got != nil {
				t.Errorf("%s %s: %v", stream, what, got)
			}
		}
	}
}

// A state that stands still for 20 s behind its log is damaged; a state that moves is not.
func TestAStateThatStandsStillIsDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 3, 0)
		log, state := a.stands(t, logPods), a.stands(t, statePod)
		k.created, k.state = log.Created, state.Created
		behind := func(last uint64) error {
			state.Last = last
			a.states[statePod] = state
			k.checkedAt = time.Now().Add(-checkStreamsIdle)
			return k.checkStreams(t.Context())
		}
		if err := behind(2); err != nil {
			t.Errorf("at first: %v", err)
		}
		time.Sleep(mirrorPatience) // virtual
		if err := behind(3); err != nil {
			t.Errorf("it goes on: %v", err)
		}
		time.Sleep(mirrorPatience)
		if err := behind(3); err != nil {
			t.Errorf("it stands still for 20 s: %v", err)
		}
		time.Sleep(1)
		if err := behind(3); !errors.Is(err, events.ErrDamaged) || !k.recreateState {
			t.Errorf("it stands still for longer: %v, to be made anew: %t", err, k.recreateState)
		}
	})
}

// The watcher checks the streams every ten seconds, and every two minutes while nothing happens.
func TestHowOftenTheStreamsAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 1, 0)
		log, state := a.stands(t, logPods), a.stands(t, statePod)
		k.created, k.state = log.Created, state.Created
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

// The second of two reports within a minute makes the watcher recreate the state, unless it is a
// suspicion or older than the repair.
func TestAReportIsLookedInto(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		heard, renewed time.Duration // ago; 0: never
		damage         events.Damage
		damaged, renew bool
	}{
		"the first":                   {0, 0, events.Damage{End: 9}, true, false},
		"before what has been mended": {0, 0, events.Damage{End: 4}, false, false},
		"at what has been mended":     {0, 0, events.Damage{End: 5}, true, false},
		"again":                       {time.Second, 0, events.Damage{End: 9}, true, true},
		"a suspicion, again":          {time.Second, 0, events.Damage{End: 9, Suspected: true}, false, false},
		"again, and just made anew":   {time.Second, time.Second, events.Damage{End: 9}, false, false},
		"again, and made anew before": {time.Second, repairEvery, events.Damage{End: 9}, true, true},
		"after a minute":              {repairEvery, 0, events.Damage{End: 9}, true, false},
		"a suspicion, after a minute": {repairEvery, 0, events.Damage{End: 9, Suspected: true}, true, false},
	} {
		k := &kindWatch{}
		k.repairedAt = 5
		if c.heard > 0 {
			k.reportActedOn = time.Now().Add(-c.heard)
		}
		if c.renewed > 0 {
			k.stateRecreatedAt = time.Now().Add(-c.renewed)
		}
		if err := k.reportedDamage(c.damage); errors.Is(err, events.ErrDamaged) != c.damaged || k.recreateState != c.renew {
			t.Errorf("%s: %v, to be made anew: %t", what, err, k.recreateState)
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
		if k.state = a.stands(t, statePod).Created; k.mark(t.Context()) != nil { // which proves the state
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

// A log that has lost its end is padded, so that no sequence is used twice.
func TestALogThatHasLostItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 3, 0)
		log, state := a.stands(t, logPods), a.stands(t, statePod)
		k.created, k.stored = log.Created, log.Last+2
		if whole, err := k.complete(t.Context(), log, state); err != nil || whole {
			t.Errorf("it is whole: %t, %v", whole, err)
		}
		if last := k.appender.Last(); last != log.Last+2 || k.nextGap.From != log.Last+1 || k.nextGap.To != log.Last+2 || k.counted {
			t.Errorf("it ends at %d, the hole is %+v, counted: %t", last, k.nextGap, k.counted)
		}
		k, a = recorded(t, 3, 0)
		k.created, k.stored = log.Created, log.Last+maxPad+1
		if k.created = a.stands(t, logPods).Created; true {
			whole, err := k.complete(t.Context(), a.stands(t, logPods), state)
			if err != nil || whole || !k.recreateState || k.appender.Last() != log.Last {
				t.Errorf("of much that is lost: whole %t, %v, to be made anew: %t, it ends at %d", whole, err, k.recreateState, k.appender.Last())
			}
		}
		k, a = recorded(t, 3, 0)
		k.created = a.stands(t, logPods).Created.Add(-time.Hour)
		if whole, err := k.complete(t.Context(), a.stands(t, logPods), bus.State{Last: 2}); err != nil || whole || k.nextGap.Reason != "the log was made anew" || k.recreateState {
			t.Errorf("of a log that was made anew: whole %t, %v, %+v", whole, err, k.nextGap)
		}
		k, a = recorded(t, 3, 0)
		if whole, err := k.complete(t.Context(), a.stands(t, logPods), a.stands(t, statePod)); err != nil || !whole || k.stored != log.Last {
			t.Errorf("of a log that is whole: %t, %v", whole, err)
		}
	})
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
		if err := k.logUnchanged(t.Context()); err != nil {
			t.Errorf("a log that ends where it did: %v", err)
		}
		a.states[logPods] = bus.State{Last: 9}
		if err := k.logUnchanged(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("a log that goes on: %v", err)
		}
	})
}

// bury finds an object in the state, or in the log; if it is in neither, another watcher has
// overtaken this one.
func TestWhatIsBuriedIsFound(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 2, 0)
	if err := k.recordDeleted(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if last, _, err := stored(t.Context(), k.bus, logPods, k.appender.Last()); err != nil || last.Op != events.Gone || last.Ref.Name != "p0" || !last.Sync {
		t.Errorf("the end is %+v, %v", last, err)
	}
	if err := k.recordDeleted(t.Context(), 99); !errors.Is(err, bus.ErrOvertaken) || !strings.Contains(err.Error(), "read message 99 of the state of pods") {
		t.Errorf("of what is nowhere: %v", err)
	}
	a.torn[2] = true
	if err := k.recordDeleted(t.Context(), 2); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("of what is torn: %v", err)
	}
}

// The position of a log is that of its newest delta with a version.
func TestThePastOfAState(t *testing.T) {
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
