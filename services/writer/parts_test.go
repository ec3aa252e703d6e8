package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/claim"
	"github.com/millrace/millrace/services/writer/internal/podlog"
	"github.com/millrace/millrace/services/writer/kindlog"
)

var away = errors.New("away")

// The clock of the bus goes on from its last answer, timed by when the request was sent.
func TestTheClockOfTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.Wrap(podlog.Recorded(t)).Fail(bustest.StreamState, away)
		var clock busTime
		if err := clock.read(t.Context(), b, "TURNS"); !errors.Is(err, away) || clock.known() {
			t.Errorf("the clock of a bus that does not answer: %v, known: %t; want the error, and not known", err, clock.known())
		}
		if err := clock.begin(t.Context(), b, "TURNS", slog.New(slog.DiscardHandler)); !errors.Is(err, away) {
			t.Errorf("begin with a bus that does not answer: %v, want its error", err)
		}
		b.Fail(bustest.StreamState, nil)
		stream := subject.TurnStream("rs")
		if err := clock.read(t.Context(), b, stream); err != nil || !clock.known() {
			t.Errorf("a clock that answers is not read: %v", err)
		}
		before := clock.now()
		time.Sleep(time.Minute) // virtual
		if went := clock.now().Sub(before); went != time.Minute {
			t.Errorf("in a minute it went on by %v", went)
		}
		b.Fail(bustest.StreamState, context.DeadlineExceeded)
		late, from, done := bustest.Wrap(b.Bus), time.Now().Add(time.Second), make(chan error)
		late.OnStreamState = func(ctx context.Context, stream string) (bus.State, error) {
			if time.Sleep(100 * time.Millisecond); time.Now().Before(from) { // virtual
				return bus.State{}, context.DeadlineExceeded
			}
			return b.Bus.StreamState(ctx, stream)
		}
		go func() { done <- clock.begin(t.Context(), late, stream, slog.New(slog.DiscardHandler)) }()
		if err := <-done; err != nil {
			t.Errorf("a bus that answers late: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := clock.begin(ended, b, stream, slog.New(slog.DiscardHandler)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("begin with an ended context: %v, want DeadlineExceeded", err)
		}
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
	sorted := slices.IsSortedFunc(all, func(a, b report.TurnState) int { return cmp.Compare(a.Turn, b.Turn) })
	if len(all) != 8 || !sorted || all[0].Turn != 7 || all[7].Turn != 21 || all[0].Lane != events.LaneWrite.String() || all[0].Attempt != 1 {
		t.Errorf("in flight are %+v, want 8 in order, from turn 7 to 21", all)
	}
	if others := f.ofKey("ds", key); len(others) != 0 {
		t.Errorf("of another controller are in flight %+v, want none", others)
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
		return (report.Heartbeat{Writer: writer, Number: 1, Turns: map[string][]uint64{"rs": {7}}}).Encode()
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
		t.Error("a message that is no JSON is read as a turn")
	}
}

// onRecord returns an executor and a recorded turn.
func onRecord(t *testing.T, change func(*bustest.Bus)) (*executor, events.Message, *bustest.Bus) {
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
	b := bustest.Wrap(w.config.Bus)
	change(b)
	w.config.Bus, w.metrics, w.epochs, w.config.Clock = b, newMetrics(), kindlog.NewEpochs(b), testingclock.NewFakePassiveClock(time.Now())
	w.share = newShare(b, membership.Config{ID: "a"})
	return w, m, b
}

// A turn is over when it has its outcome, or its key and lane have a later turn. A message that
// cannot be read proves nothing, and a failure of the bus is an error.
func TestWhenATurnIsOver(t *testing.T) {
	key := events.Key{Namespace: "ns", Name: "web"}
	outcomes, turns := subject.OutcomeStream("rs"), subject.TurnStream("rs")
	for what, c := range map[string]struct {
		change func(*bustest.Bus)
		err    error
	}{
		"nothing came of it":              {func(*bustest.Bus) {}, nil},
		"the outcomes are away":           {func(a *bustest.Bus) { a.Fail(bustest.Last, away, outcomes) }, away},
		"the outcome is damaged":          {func(a *bustest.Bus) { a.Fail(bustest.Last, events.ErrDamaged, outcomes) }, nil},
		"the turns are away":              {func(a *bustest.Bus) { a.Fail(bustest.Last, away, turns) }, away},
		"the turns are damaged":           {func(a *bustest.Bus) { a.Fail(bustest.Last, events.ErrDamaged, turns) }, nil},
		"the turn is gone, and not asked": {func(a *bustest.Bus) { a.Fail(bustest.At, away, turns) }, nil},
	} {
		w, m, _ := onRecord(t, c.change)
		if over, err := w.isSettled(t.Context(), m, events.LaneWrite, key); over || !errors.Is(err, c.err) {
			t.Errorf("%s: the turn is settled: %t, %v; want %v", what, over, err, c.err)
		}
	}
	for what, c := range map[string]struct {
		change func(*bustest.Bus)
		at     time.Duration
		gone   bool
		err    error
	}{
		"it is there":         {func(*bustest.Bus) {}, 0, false, nil},
		"another is there":    {func(*bustest.Bus) {}, time.Second, true, nil},
		"it cannot be read":   {func(a *bustest.Bus) { a.Fail(bustest.At, events.ErrDamaged, turns) }, 0, false, nil},
		"the stream is away":  {func(a *bustest.Bus) { a.Fail(bustest.At, away, turns) }, 0, false, away},
		"its time is another": {func(*bustest.Bus) {}, -1, true, nil},
	} {
		w, m, _ := onRecord(t, c.change)
		m.Time = m.Time.Add(c.at)
		if gone, err := w.isLost(t.Context(), m); gone != c.gone || !errors.Is(err, c.err) {
			t.Errorf("%s: the turn is lost: %t, %v; want %t, %v", what, gone, err, c.gone, c.err)
		}
	}
	w, m, _ := onRecord(t, func(*bustest.Bus) {})
	m.Sequence = 9
	if gone, err := w.isLost(t.Context(), m); !gone || err != nil {
		t.Errorf("one that is not there is gone: %t, %v", gone, err)
	}
	old := w.history(t.Context())
	if old(m) || !old(events.Message{Subject: subject.Turn("rs", events.LanePark, key)}) || old(events.Message{Subject: "x"}) {
		t.Error("which turns are history is not told")
	}
}
