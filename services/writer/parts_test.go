package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/claim"
	"github.com/millrace/millrace/services/writer/plan"
)

// ailing is a bus in memory of which single answers fail.
type ailing struct {
	bus.Bus
	mu                sync.Mutex // guards put and puts, for tests with concurrent access
	state, kinds, put error
	last, at          map[string]error // by stream
	lastOf            error
	puts              []events.Message
	ids               []string // of puts
}

func (a *ailing) StreamState(ctx context.Context, stream string) (bus.State, error) {
	if a.state != nil {
		return bus.State{}, a.state
	}
	return a.Bus.StreamState(ctx, stream)
}

func (a *ailing) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if a.kinds != nil {
		return nil, a.kinds
	}
	return a.Bus.Kinds(ctx)
}

func (a *ailing) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	if err := a.last[stream]; err != nil {
		return events.Message{}, false, err
	}
	return a.Bus.Last(ctx, stream, subject)
}

func (a *ailing) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if err := a.at[stream]; err != nil {
		return events.Message{}, false, err
	}
	return a.Bus.At(ctx, stream, sequence)
}

func (a *ailing) LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	if a.lastOf != nil {
		return nil, a.lastOf
	}
	return a.Bus.LastOf(ctx, stream, subjects)
}

func (a *ailing) Put(ctx context.Context, m events.Message, id string) (uint64, error) {
	a.mu.Lock()
	a.puts, a.ids = append(a.puts, m), append(a.ids, id)
	err := a.put
	a.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return a.Bus.Put(ctx, m, id)
}

// holed is a bus that cannot deliver one message of each stream.
type holed struct {
	bus.Bus
	missing uint64
}

func (h holed) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if sequence == h.missing {
		return events.Message{}, false, away
	}
	return h.Bus.At(ctx, stream, sequence)
}

// garbled is a bus whose messages are all unreadable.
type garbled struct{ bus.Bus }

func (g garbled) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	m, ok, err := g.Bus.Last(ctx, stream, subject)
	m.Header, m.Data = nil, []byte("x")
	return m, ok, err
}

func (g garbled) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	m, ok, err := g.Bus.At(ctx, stream, sequence)
	m.Header, m.Data = nil, []byte("x")
	return m, ok, err
}

// takes allows messages to be stored from now on, and returns how many were tried before.
func (a *ailing) takes() (tried int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put = nil
	return len(a.puts)
}

var away = errors.New("away")

// recorded returns a bus with some deltas of pods.
func recorded(t *testing.T, deltas ...events.Delta) *memory.Bus {
	t.Helper()
	b := memory.New(memory.Options{})
	if err := errors.Join(b.EnsureController(t.Context(), "rs"), b.EnsureKind(t.Context(), kinds.Pods.Kind)); err != nil {
		t.Fatal(err)
	}
	log, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deltas {
		d.Kind = kinds.Pods.Name
		m := events.EncodeDelta(d)
		m.Subject = subject.Mark(d.Kind)
		if d.Ref.Name != "" {
			m.Subject = subject.Delta(d.Ref)
		}
		if err := errors.Join(log.Append(t.Context(), events.Seal(m)), log.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func podRef(name string) events.Ref { return events.Ref{Kind: "pods", Namespace: "ns", Name: name} }

func podIs(name, version string) events.Delta {
	return events.Delta{Op: events.Is, Ref: podRef(name), UID: "u", ResourceVersion: version}
}

func markOf(version string, before uint64) events.Delta {
	return events.Delta{Op: events.Mark, ResourceVersion: version, Before: events.Place{Known: true, Sequence: before}}
}

// What the record has on a name: up to which version it is complete, since when, and whether the
// name ever had an object.
func TestWhatIsKnownOfAName(t *testing.T) {
	b := recorded(t, markOf("3", 0), podIs("a", "5"), podIs("b", "7"))
	for what, c := range map[string]struct {
		ref  events.Ref
		seen uint64
		want plan.Known
	}{
		"one that was there":  {podRef("a"), 2, plan.Known{Told: "7", Since: "5", Created: true}},
		"one that never was":  {podRef("c"), 3, plan.Known{Told: "7", Since: "7"}},
		"before all":          {podRef("c"), 0, plan.Known{Told: "7"}},
		"beyond the log":      {podRef("c"), 9, plan.Known{Told: "7", Hidden: true}},
		"of an unknown kind ": {events.Ref{Kind: "nodes", Name: "n"}, 2, plan.Known{Unwatched: true}},
	} {
		if known, err := previousObjects(b)(t.Context(), c.ref, c.seen); err != nil || known != c.want {
			t.Errorf("%s: %+v, %v; want %+v", what, known, err, c.want)
		}
	}
	if known, err := previousObjects(recorded(t, podIs("a", "5")))(t.Context(), podRef("c"), 1); err != nil || known != (plan.Known{Told: "5", Hidden: true}) {
		t.Errorf("of a record with nothing but one object: %+v, %v", known, err)
	}
	if it, err := mayLackChanges(t.Context(), garbled{b}, "pods", 9); err != nil || !it {
		t.Errorf("behind a mark that cannot be read something is hidden: %t, %v", it, err)
	}
	log := subject.LogStream("pods")
	for what, a := range map[string]bus.Bus{
		"where the log stands": &ailing{Bus: b, state: away}, "the last of a name": &ailing{Bus: b, last: map[string]error{log: away}},
		"the end of the log": &ailing{Bus: b, at: map[string]error{log: away}}, "the message that the decision saw": holed{b, 2},
	} {
		if known, err := previousObjects(a)(t.Context(), podRef("a"), 2); !errors.Is(err, away) || !strings.Contains(err.Error(), "in the record") || known != (plan.Known{}) {
			t.Errorf("%s is not told: %+v, %v", what, known, err)
		}
	}
}

// The version at a sequence of a log is that of the nearest of a few messages before it.
func TestTheVersionAtAPlaceOfALog(t *testing.T) {
	b := recorded(t, podIs("a", "5"))
	for sequence, want := range map[uint64]string{0: "", 1: "5", 4: "5", 5: ""} {
		if got, err := versionAt(t.Context(), b, "pods", sequence); err != nil || got != want {
			t.Errorf("at %d: %q, %v, want %q", sequence, got, err, want)
		}
	}
	sync := podIs("a", "5")
	sync.Kind, sync.Sync = "pods", true
	whole := events.EncodeDelta(sync)
	whole.Subject = subject.Delta(sync.Ref)
	for what, m := range map[string]events.Message{
		"of a list": events.Seal(whole), "of another subject": {Subject: "x"}, "that cannot be read": {Subject: subject.Delta(sync.Ref)},
	} {
		if got := completeUpTo(m); got != "" {
			t.Errorf("a message %s tells of version %q", what, got)
		}
	}
}

// The clock of the bus goes on from its last answer, timed by when the request was sent.
func TestTheClockOfTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &ailing{Bus: recorded(t), state: away}
		var clock busTime
		if err := clock.read(t.Context(), b, "TURNS"); !errors.Is(err, away) || clock.known() {
			t.Errorf("a clock that does not answer is read: %v, known %t", err, clock.known())
		}
		if err := clock.begin(t.Context(), b, "TURNS", slog.New(slog.DiscardHandler)); !errors.Is(err, away) {
			t.Errorf("it begins with %v", err)
		}
		b.state = nil
		stream := subject.TurnStream("rs")
		if err := clock.read(t.Context(), b, stream); err != nil || !clock.known() {
			t.Errorf("a clock that answers is not read: %v", err)
		}
		before := clock.now()
		time.Sleep(time.Minute) // virtual
		if went := clock.now().Sub(before); went != time.Minute {
			t.Errorf("in a minute it went on by %v", went)
		}
		b.state = context.DeadlineExceeded
		began, done := time.Now(), make(chan error)
		go func() {
			done <- clock.begin(t.Context(), &late{b, began.Add(time.Second)}, stream, slog.New(slog.DiscardHandler))
		}()
		if err := <-done; err != nil {
			t.Errorf("a bus that answers late: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := clock.begin(ended, b, stream, slog.New(slog.DiscardHandler)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// late is a bus that answers requests for stream states from a given time on.
type late struct {
	*ailing
	from time.Time
}

func (l *late) StreamState(ctx context.Context, stream string) (bus.State, error) {
	if time.Sleep(100 * time.Millisecond); time.Now().Before(l.from) { // virtual
		return bus.State{}, context.DeadlineExceeded
	}
	return l.Bus.StreamState(ctx, stream)
}

// An epoch that cannot be looked up is an error; a kind without streams, or with a damaged end,
// has none.
func TestEpochsThatCannotBeLookedUp(t *testing.T) {
	some := []kinds.Name{"pods"}
	b := recorded(t, markOf("3", 0))
	for what, c := range map[string]struct {
		bus *ailing
		err error
	}{
		"the bus is away":     {&ailing{Bus: b, state: away}, away},
		"no stream":           {&ailing{Bus: b, state: fmt.Errorf("look: %w", bus.ErrNoStream)}, nil},
		"the end is torn":     {&ailing{Bus: b, at: map[string]error{subject.LogStream("pods"): events.ErrDamaged}}, nil},
		"nothing was said":    {&ailing{Bus: recorded(t)}, nil},
		"the end is not told": {&ailing{Bus: b, at: map[string]error{subject.LogStream("pods"): away}}, away},
	} {
		found, err := newEpochs(c.bus).ofKinds(t.Context(), some)
		if !errors.Is(err, c.err) || len(found) != 0 || err != nil && !strings.Contains(err.Error(), "look up the epoch of pods") {
			t.Errorf("%s: %v, %v", what, found, err)
		}
	}
	later := markOf("4", 0)
	later.Epoch = 7
	e := newEpochs(recorded(t, later))
	if found, err := e.ofKinds(t.Context(), some); err != nil || found["pods"] != 7 || e.storage() != 7 {
		t.Errorf("the epochs are %v, %v, that of the storage %d", found, err, e.storage())
	}
	if found, err := e.ofKinds(t.Context(), some); err != nil || found["pods"] != 7 {
		t.Errorf("from memory the epochs are %v, %v", found, err)
	}
	if found, err := newEpochs(garbled{b}).ofKinds(t.Context(), some); err != nil || len(found) != 0 {
		t.Errorf("of an end that cannot be read the epochs are %v, %v", found, err)
	}
	none := newEpochs(recorded(t))
	for range 2 { // from memory, too
		if found, err := none.ofKinds(t.Context(), some); err != nil || len(found) != 0 {
			t.Errorf("of a kind of which nothing is said the epochs are %v, %v", found, err)
		}
	}
	if _, err := newEpochs(&ailing{Bus: b, state: away}).check(t.Context()); !errors.Is(err, away) {
		t.Errorf("where the kinds stand is not told: %v", err)
	}
	if _, err := newEpochs(&ailing{Bus: b, kinds: away}).check(t.Context()); !errors.Is(err, away) {
		t.Errorf("which kinds there are is not told: %v", err)
	}
	if epoch, err := newEpochs(recorded(t, later)).check(t.Context()); err != nil || epoch != 7 {
		t.Errorf("of all kinds the epoch is %d, %v", epoch, err)
	}
}

// A lookup is valid for two seconds, and is refreshed while it is used.
func TestForHowLongAnEpochCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &asked{epoch: 1, last: 5}
		e := newEpochs(b)
		if _, err := e.ofKinds(t.Context(), []kinds.Name{"pods"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Second - 1) // virtual
		if _, known := e.recent("pods"); !known {
			t.Error("before two seconds are over it does not count")
		}
		time.Sleep(1)
		if _, known := e.recent("pods"); known {
			t.Error("after two seconds it counts")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go e.run(ctx)
		before := b.states.Load()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if looked := b.states.Load() - before; looked != 9 {
			t.Errorf("unused it was looked up %d times in 30 s, want once a second for less than 10 s", looked)
		}
		cancel()
		synctest.Wait()
	})
}

func TestWhatIsInFlightIsTold(t *testing.T) {
	f := newInFlightTurns("a", newMetrics())
	key := events.Key{Namespace: "ns", Name: "web"}
	hold := make(chan struct{})
	for _, sequence := range []uint64{9, 7, 8, 21, 13, 19, 11, 17, 15} {
		of := key
		if sequence == 8 {
			of.Name = "other"
		}
		f.take(claim.Place{Controller: "rs", Sequence: sequence}, stored{sequence: sequence, on: subject.Turn("rs", events.LaneWrite, of)}, true, func() { <-hold })
	}
	f.take(claim.Place{Controller: "rs", Sequence: 6}, stored{sequence: 6, on: "x"}, true, func() { <-hold })
	all := f.ofKey("rs", key)
	sorted := slices.IsSortedFunc(all, func(a, b events.TurnState) int { return cmp.Compare(a.Turn, b.Turn) })
	if len(all) != 8 || !sorted || all[0].Turn != 7 || all[7].Turn != 21 || all[0].Lane != events.LaneWrite.String() || all[0].Attempt != 1 {
		t.Errorf("in flight are %+v", all)
	}
	if others := f.ofKey("ds", key); len(others) != 0 {
		t.Errorf("of another controller %+v", others)
	}
	close(hold)
	f.turns.Wait()
}

// stored returns a delivery of a turn.
type stored struct {
	nothing
	sequence uint64
	on       string
	time     time.Time
	attempt  int
}

func (d stored) Message() events.Message {
	return events.Message{Subject: d.on, Stream: subject.TurnStream("rs"), Sequence: d.sequence, Time: d.time}
}
func (d stored) Attempt() int { return max(d.attempt, 1) }

// A heartbeat counts if it can be decoded, and is the writer's own or signed.
func TestWhichHeartbeatsCount(t *testing.T) {
	at := claim.Place{Controller: "rs", Sequence: 7}
	said := func(writer string) []byte {
		return (events.Heartbeat{Writer: writer, Number: 1, Turns: map[string][]uint64{"rs": {7}}}).Encode()
	}
	for what, c := range map[string]struct {
		text   []byte
		signed bool
		counts bool
	}{
		"another's":             {said("b"), true, true},
		"another's, not signed": {said("b"), false, false},
		"none":                  {[]byte("{"), true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newInFlightTurns("a", newMetrics())
			for range 4 {
				listen(f, claim.Interval)
			}
			f.signed = func([]byte) bool { return c.signed }
			if f.receive(c.text); f.elsewhere(at) != c.counts {
				t.Errorf("%s: the turn is elsewhere: %t", what, !c.counts)
			}
		})
	}
	f := newInFlightTurns("a", newMetrics())
	f.signed = func([]byte) bool { t.Error("the own heartbeat is to be proved"); return false }
	_, own := f.heartbeat()
	f.receive(own.Encode())
}

func TestWhatIsWrongWithATurn(t *testing.T) {
	for want, errs := range map[string][]error{
		events.BadSignature: {sign.ErrUnsigned, fmt.Errorf("x: %w", sign.ErrUnproven)},
		"Damaged":           {events.ErrDamaged, fmt.Errorf("x: %w", events.ErrDamaged)},
		"Malformed":         {errors.New("x"), bus.ErrNoStream},
	} {
		for _, err := range errs {
			if got := fault(err); got != want {
				t.Errorf("%v is %s, want %s", err, got, want)
			}
		}
	}
	m := events.Message{Stream: "TURNS", Sequence: 1234}
	for try, want := range map[int]string{0: "TURNS.1234.3", 1: "TURNS.1234.3", 2: "TURNS.1234.3.2"} {
		if got := auditID(m, 3, try); got != want {
			t.Errorf("the audit ID of try %d is %s, want %s", try, got, want)
		}
	}
}

// A turn must agree with its subject.
func TestATurnIsWhatItsSubjectSays(t *testing.T) {
	key := events.Key{Namespace: "ns", Name: "web"}
	right := events.Turn{Controller: "rs", Key: key, Lane: events.LaneWrite}
	for what, c := range map[string]struct {
		change func(*events.Turn)
		want   string
	}{
		"the same":           {func(*events.Turn) {}, ""},
		"another controller": {func(t *events.Turn) { t.Controller = "ds" }, "the turn says"},
		"another lane":       {func(t *events.Turn) { t.Lane = events.LaneStatus }, "the turn says"},
		"another key":        {func(t *events.Turn) { t.Key.Name = "x" }, "the turn says"},
		"a fault":            {func(t *events.Turn) { t.UID = "u" }, "and not both"},
	} {
		turn := right
		c.change(&turn)
		m, err := events.EncodeJSON(turn, events.Trace{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(m, events.LaneWrite, key, "rs", ""); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	if _, err := read(events.Message{Data: []byte("{")}, events.LaneWrite, key, "rs", ""); err == nil {
		t.Error("what is no JSON is a turn")
	}
}

// onRecord returns an executor and a recorded turn.
func onRecord(t *testing.T, change func(*ailing)) (*executor, events.Message, *ailing) {
	t.Helper()
	w := anExecutor(t)
	key := events.Key{Namespace: "ns", Name: "web"}
	m, err := events.EncodeJSON(events.Turn{Controller: "rs", Key: key, Lane: events.LaneWrite, Now: time.Now()}, events.Trace{})
	if err != nil {
		t.Fatal(err)
	}
	m.Subject = subject.Turn("rs", events.LaneWrite, key)
	sequence, err := w.config.Bus.Store(t.Context(), m, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, _, err = w.config.Bus.At(t.Context(), subject.TurnStream("rs"), sequence)
	if err != nil {
		t.Fatal(err)
	}
	b := &ailing{Bus: w.config.Bus, last: map[string]error{}, at: map[string]error{}}
	change(b)
	w.config.Bus, w.metrics, w.epochs, w.config.Clock = b, newMetrics(), newEpochs(b), testingclock.NewFakePassiveClock(time.Now())
	w.share = newShare(b, membership.Config{ID: "a"})
	return w, m, b
}

// A turn is over when it has its outcome, or its key and lane have a later turn. A message that
// cannot be read proves nothing, and a failure of the bus is an error.
func TestWhenATurnIsOver(t *testing.T) {
	key := events.Key{Namespace: "ns", Name: "web"}
	outcomes, turns := subject.OutcomeStream("rs"), subject.TurnStream("rs")
	for what, c := range map[string]struct {
		change func(*ailing)
		err    error
	}{
		"nothing came of it":              {func(*ailing) {}, nil},
		"the outcomes are away":           {func(a *ailing) { a.last[outcomes] = away }, away},
		"the outcome is damaged":          {func(a *ailing) { a.last[outcomes] = events.ErrDamaged }, nil},
		"the turns are away":              {func(a *ailing) { a.last[turns] = away }, away},
		"the turns are damaged":           {func(a *ailing) { a.last[turns] = events.ErrDamaged }, nil},
		"the turn is gone, and not asked": {func(a *ailing) { a.at[turns] = away }, nil},
	} {
		w, m, _ := onRecord(t, c.change)
		if over, err := w.isSettled(t.Context(), m, events.LaneWrite, key); over || !errors.Is(err, c.err) {
			t.Errorf("%s: it is over: %t, %v", what, over, err)
		}
	}
	for what, c := range map[string]struct {
		change func(*ailing)
		at     time.Duration
		gone   bool
		err    error
	}{
		"it is there":         {func(*ailing) {}, 0, false, nil},
		"another is there":    {func(*ailing) {}, time.Second, true, nil},
		"it cannot be read":   {func(a *ailing) { a.at[turns] = events.ErrDamaged }, 0, false, nil},
		"the stream is away":  {func(a *ailing) { a.at[turns] = away }, 0, false, away},
		"its time is another": {func(*ailing) {}, -1, true, nil},
	} {
		w, m, _ := onRecord(t, c.change)
		m.Time = m.Time.Add(c.at)
		if gone, err := w.isLost(t.Context(), m); gone != c.gone || !errors.Is(err, c.err) {
			t.Errorf("%s: it is gone: %t, %v", what, gone, err)
		}
	}
	w, m, _ := onRecord(t, func(*ailing) {})
	m.Sequence = 9
	if gone, err := w.isLost(t.Context(), m); !gone || err != nil {
		t.Errorf("one that is not there is gone: %t, %v", gone, err)
	}
	old := w.history(t.Context())
	if old(m) || !old(events.Message{Subject: subject.Turn("rs", events.LanePark, key)}) || old(events.Message{Subject: "x"}) {
		t.Error("which turns are history is not told")
	}
}
