package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/claim"
	"github.com/millrace/millrace/services/writer/internal/podlog"
	"github.com/millrace/millrace/services/writer/kindlog"
	"github.com/millrace/millrace/services/writer/plan"
)

// A trusted and readable outcome settles its turn and the turns before it.
func TestWhichOutcomesSettleATurn(t *testing.T) {
	key := events.Key{Namespace: "ns", Name: "web"}
	for what, c := range map[string]struct {
		turn uint64
		text string
		want bool
	}{
		"its own":             {1, "", true},
		"of a later one":      {2, "", true},
		"of an earlier one":   {0, "", false},
		"one that is no JSON": {1, "{", false},
	} {
		w, m, b := onRecord(t, func(*bustest.Bus) {})
		o, err := events.EncodeJSON(events.Outcome{Controller: "rs", Key: key, Lane: events.LaneWrite, Turn: c.turn}, events.Trace{})
		if err != nil {
			t.Fatal(err)
		}
		if c.text != "" {
			o = events.Seal(events.Message{Data: []byte(c.text)})
		}
		o.Subject = subject.Outcome("rs", events.LaneWrite, key)
		if _, err := b.Bus.Put(t.Context(), o, "o"); err != nil {
			t.Fatal(err)
		}
		if settled, err := w.hasOutcome(t.Context(), m, events.LaneWrite, key); settled != c.want || err != nil {
			t.Errorf("%s: settled %t, %v", what, settled, err)
		}
	}
	right := events.Outcome{Turn: 1, Decided: time.Now().Add(time.Hour)}
	_, m, _ := onRecord(t, func(*bustest.Bus) {})
	if !replaces(m, right) {
		t.Error("an outcome that was decided at another time is of the turn")
	}
	for what, o := range map[string]events.Outcome{"of another turn": {Turn: 2, Decided: right.Decided}, "that does not say when": {Turn: 1}} {
		if replaces(m, o) {
			t.Errorf("an outcome %s is of another turn in its place", what)
		}
	}
	if m.Data = []byte("{"); replaces(m, right) {
		t.Error("an outcome replaces one of a turn that cannot be read")
	}
}

// The bus's timestamp gives the age of a turn; a repetition gives its age itself.
func TestHowOldATurnIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := anExecutor(t)
		w.config.MaxAge = time.Minute
		now := time.Now()
		w.config.Clock = testingclock.NewFakePassiveClock(now)
		w.time.busReading, w.time.localReading = now, now
		for what, c := range map[string]struct {
			stored, decided time.Duration
			repeats         uint64
			old             bool
		}{
			"young":                      {time.Minute, time.Hour, 0, false},
			"old":                        {time.Minute + 1, 0, 0, true},
			"repeated, young":            {time.Hour, time.Minute, 1, false},
			"repeated, of long ago":      {0, time.Minute + 1, 1, true},
			"decided by a clock that is": {0, time.Hour, 0, false},
		} {
			m := events.Message{Time: now.Add(-c.stored)}
			turn := events.Turn{Now: now.Add(-c.decided), Repeats: c.repeats}
			if got := w.refuseOld(m, turn); (got != plan.Refusal{}) != c.old {
				t.Errorf("%s: the turn is refused with %+v, want it too old: %t", what, got, c.old)
			}
		}
		for what, c := range map[string]struct {
			attempt int
			stored  time.Duration
			fresh   bool
		}{
			"at once": {1, 0, true}, "again": {2, 0, false}, "late": {1, claim.AckWait, true}, "too late": {1, claim.AckWait + 1, false},
		} {
			if got := w.isFirstDelivery(stored{attempt: c.attempt, time: now.Add(-c.stored)}); got != c.fresh {
				t.Errorf("%s: fresh %t", what, got)
			}
		}
		if begun, untouched := w.mayHaveBegun(stored{attempt: 2, time: now}); !begun || untouched {
			t.Errorf("one that comes again has begun: %t, untouched: %t", begun, untouched)
		}
		if begun, untouched := w.mayHaveBegun(stored{attempt: 1, time: now}); !begun || untouched {
			t.Errorf("one that no one has watched has begun: %t, untouched: %t", begun, untouched)
		}
	})
}

// A writer that carries a turn out again stops as soon as the turn has its outcome, and looks for
// it at most every 50 ms.
func TestATurnIsGoneOnWithUnlessItHasItsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := events.Key{Namespace: "ns", Name: "web"}
		w, m, b := onRecord(t, func(*bustest.Bus) {})
		turn := events.Turn{Controller: "rs", Key: key, Lane: events.LaneWrite}
		held := true
		goes := w.untilOutcome(t.Context(), m, turn, func() bool { return held })
		if !goes() {
			t.Error("a turn without an outcome is not begun")
		}
		o, err := events.EncodeJSON(events.Outcome{Controller: "rs", Key: key, Lane: events.LaneWrite, Turn: 1}, events.Trace{})
		if err != nil {
			t.Fatal(err)
		}
		o.Subject = subject.Outcome("rs", events.LaneWrite, key)
		if _, err := b.Bus.Put(t.Context(), o, "o"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50*time.Millisecond - 1) // virtual
		if !goes() {
			t.Error("the outcome is looked up again in less than 50 ms")
		}
		if time.Sleep(1); goes() || goes() {
			t.Error("the turn goes on although it has its outcome")
		}
		held = false
		if w.untilOutcome(t.Context(), m, turn, func() bool { return held })() {
			t.Error("the turn goes on although another writer has it")
		}
		b.Fail(bustest.Last, away, subject.OutcomeStream("rs"))
		if !w.untilOutcome(t.Context(), m, turn, func() bool { return true })() {
			t.Error("the turn ends although its outcome cannot be looked up")
		}
	})
}

// A turn must fit the current epochs and its object's current state.
func TestWhyATurnIsRefused(t *testing.T) {
	w, m, b := onRecord(t, func(*bustest.Bus) {})
	w.config.MaxAge = time.Hour
	w.time.busReading, w.time.localReading = time.Now(), time.Now()
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	log := subject.LogStream("pods")
	turn := events.Turn{Controller: "rs", Key: events.Key{Kind: "pods", Namespace: "ns", Name: "a"}, Lane: events.LaneWrite}
	seen := turn
	seen.Kind, seen.UID = "pods", "u"
	report := seen
	report.Lane = events.LaneStatus
	status := report
	status.Commands = []events.Command{{Verb: events.VerbUpdate, Subresource: "status"}}
	nowhere, unwatched := turn, turn
	nowhere.Key.Kind, unwatched.Key.Kind = "", "nodes"
	for what, c := range map[string]struct {
		turn    events.Turn
		last    error
		refused string
		err     error
	}{
		"an object that is gone":               {seen, nil, "Stale", nil},
		"none, as it saw":                      {turn, nil, "", nil},
		"a report":                             {report, away, "", nil},
		"a status, and its object is not told": {status, away, "", away},
		"an object that is not told":           {seen, away, "", away},
		"a kind without a stream":              {unwatched, nil, "", nil},
		"a key that is no object":              {nowhere, away, "", nil},
	} {
		b.Fail(bustest.Last, c.last, log)
		refused, _, err := w.refusal(t.Context(), m, c.turn)
		if !errors.Is(err, c.err) || refused.Reason != c.refused {
			t.Errorf("%s: the turn is refused with %+v, %v; want %q, %v", what, refused, err, c.refused, c.err)
		}
	}
	old := m
	old.Time = time.Now().Add(-2 * time.Hour)
	if refused, _, err := w.refusal(t.Context(), old, turn); err != nil || refused.Reason != "TooOld" {
		t.Errorf("one that is too old: %+v, %v", refused, err)
	}
	rests := turn
	rests.Seen = events.Position{"pods": 1}
	b.Fail(bustest.StreamState, away)
	if _, _, err := w.refusal(t.Context(), m, rests); !errors.Is(err, away) {
		t.Errorf("a turn whose epoch cannot be looked up: %v, want the error of the bus", err)
	}
	if answer, known := w.answerKnown(t.Context(), m, events.LaneWrite, events.Key{Namespace: "ns", Name: "web"}, false); answer == nil || !known {
		t.Error("a turn that is not in this hand is gone on with")
	}
}

// answered is a delivery that records how it was answered.
type answered struct {
	nothing
	how *string
}

func (a answered) Ack()                         { *a.how = "done" }
func (a answered) NakWithDelay(d time.Duration) { *a.how = "later " + d.String() }
func (a answered) Term(why string)              { *a.how = "term: " + why }

func howIsAnswered(answer func(bus.Delivery)) (how string) {
	answer(answered{how: &how})
	return how
}

// A turn that cannot be carried out is redelivered after a second, or at once if the writer stops.
func TestHowATurnIsPutOff(t *testing.T) {
	w, m, _ := onRecord(t, func(*bustest.Bus) {})
	if got := howIsAnswered(w.handBack(m, away)); got != "later 1s" {
		t.Errorf("a turn that is put off is answered %q, want \"later 1s\"", got)
	}
	if got := howIsAnswered(w.handBack(m, fmt.Errorf("x: %w", context.Canceled))); got != "later 0s" {
		t.Errorf("where the writer stops it is answered %q", got)
	}
	w.share.leave(true)
	if got := howIsAnswered(w.handBack(m, context.Canceled)); got != "later 300ms" {
		t.Errorf("a turn that is left to other writers is answered %q, want \"later 300ms\"", got)
	}
	if got := howIsAnswered(w.terminate(m, errors.New("torn"))); got != "term: torn" {
		t.Errorf("a message that is no turn is answered %q, want \"term: torn\"", got)
	}
}

// A refused turn is answered after its outcome is stored, and is redelivered if that fails.
func TestARefusedTurnHasItsOutcome(t *testing.T) {
	key := events.Key{Namespace: "ns", Name: "web"}
	w, m, b := onRecord(t, func(*bustest.Bus) {})
	if got := howIsAnswered(w.refuseMessage(t.Context(), m, events.LaneWrite, key, events.ErrDamaged)); !strings.HasPrefix(got, "term: ") {
		t.Errorf("a damaged turn is answered %q, want a term", got)
	}
	last, ok, err := b.Bus.Last(t.Context(), subject.OutcomeStream("rs"), subject.Outcome("rs", events.LaneWrite, key))
	var o events.Outcome
	if err != nil || !ok || events.DecodeJSON(last, &o) != nil || o.Turn != 1 || len(o.Results) != 1 || o.Results[0].Reason != "Damaged" {
		t.Errorf("the outcome of a damaged turn is %+v (%t, %v), want Damaged", o, ok, err)
	}
	b.Fail(bustest.Put, bus.ErrTooLarge)
	if got := howIsAnswered(w.refuseMessage(t.Context(), m, events.LaneWrite, key, events.ErrDamaged)); got != "later 1s" || b.Count(bustest.Put) != 2 {
		t.Errorf("a damaged turn whose outcome is too large is answered %q after %d tries, want \"later 1s\" after 1", got, b.Count(bustest.Put)-1)
	}
	b.Fail(bustest.Put, bus.ErrClosed)
	if err := w.storeOutcome(t.Context(), m, events.Turn{Controller: "rs", Key: key, Lane: events.LaneWrite}, nil); !errors.Is(err, bus.ErrClosed) || !strings.Contains(err.Error(), "store the outcome of turn 1 of rs") || b.Count(bustest.Put) != 3 {
		t.Errorf("on a bus that is closed: %v, after %d tries", err, b.Count(bustest.Put)-2)
	}
}

// A writer retries to store an outcome until the bus takes it or the writer stops.
func TestAnOutcomeIsStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m, b := onRecord(t, func(a *bustest.Bus) { a.Fail(bustest.Put, away) })
		turn := events.Turn{Controller: "rs", Key: events.Key{Namespace: "ns", Name: "web"}, Lane: events.LaneWrite, Kind: "pods", UID: "u", ResourceVersion: "5"}
		var last events.Message
		b.OnPut = func(ctx context.Context, m events.Message, id string) (uint64, error) {
			last = m
			return b.Bus.Put(ctx, m, id)
		}
		done := make(chan error, 1)
		go func() { done <- w.storeOutcome(t.Context(), m, turn, nil) }()
		time.Sleep(20 * time.Second) // virtual
		tries := b.Count(bustest.Put)
		b.Fail(bustest.Put, nil)
		if tries < 10 || tries > 60 {
			t.Errorf("the outcome was stored in %d tries within 20 s, want 10 to 60", tries)
		}
		if err := <-done; err != nil {
			t.Errorf("storing an outcome that the bus took in the end: %v, want no error", err)
		}
		var o events.Outcome
		if err := events.DecodeJSON(last, &o); err != nil || o.UID != "u" || o.ResourceVersion != "5" {
			t.Errorf("the outcome is %+v, %v", o, err)
		}
		turn.Epochs = events.Epochs{"pods": 3} // not the epoch of the outcome
		if err := w.storeOutcome(t.Context(), m, turn, nil); err != nil {
			t.Fatal(err)
		}
		var other events.Outcome
		if err := events.DecodeJSON(last, &other); err != nil || other.Turn != 1 || other.UID != "" || other.ResourceVersion != "" {
			t.Errorf("in another epoch the outcome is %+v, %v", other, err)
		}
		b.Fail(bustest.Put, away)
		began := time.Now()
		if err := w.storeOutcome(t.Context(), m, turn, nil); !errors.Is(err, away) || time.Since(began) < outcomePatience/2 || time.Since(began) > 2*outcomePatience {
			t.Errorf("an outcome that the bus does not take ends after %v with %v", time.Since(began), err)
		}
	})
}

// The epochs of an outcome are those of the kinds that it changed, and of its turn's object.
func TestWhichEpochsAnOutcomeTells(t *testing.T) {
	mark := podlog.MarkOf("3", 0)
	mark.Epoch = 7
	b := podlog.Recorded(t, mark)
	w := anExecutor(t)
	w.config.Bus, w.epochs = b, kindlog.NewEpochs(b)
	result := func(version string) []events.Result {
		return []events.Result{{Ref: podlog.PodRef("a"), Version: version}, {Ref: podlog.PodRef("b"), Version: version}}
	}
	for what, c := range map[string]struct {
		turn    events.Turn
		results []events.Result
		want    events.Epochs
	}{
		"nothing":             {events.Turn{}, nil, events.Epochs{}},
		"what it changed":     {events.Turn{}, result("5"), events.Epochs{"pods": 7}},
		"what it left":        {events.Turn{}, result(""), events.Epochs{}},
		"its object":          {events.Turn{Kind: "pods"}, nil, events.Epochs{"pods": 7}},
		"a kind of no stream": {events.Turn{Kind: "nodes"}, result("5"), events.Epochs{"pods": 7}},
	} {
		if got := w.epochsOf(t.Context(), c.turn, c.results); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// The verb of a command is told by its position, and a turn that updates a status from others.
func TestWhatACommandOfATurnDoes(t *testing.T) {
	command := func(verb events.Verb, kind kinds.Name, name string) events.Command {
		return events.Command{Verb: verb, Kind: kind, Namespace: "ns", Name: name}
	}
	turn := events.Turn{Commands: []events.Command{
		command(events.VerbUpdate, "pods", "a"), command(events.VerbPatch, "pods", "b"), command(events.VerbPatch, "pods", "b"),
		command(events.VerbCreate, "pods", "c"), command(events.VerbDelete, "pods", "d"), command(events.VerbUpdate, "nodes", "e"),
	}}
	for at, want := range map[int]events.Verb{-1: "", 0: events.VerbUpdate, 5: events.VerbUpdate, 6: ""} {
		if got := verbAt(turn, at); got != want {
			t.Errorf("command %d is %q", at, got)
		}
	}
	if updatesStatus(turn) || !updatesStatus(events.Turn{Commands: []events.Command{{Verb: events.VerbUpdate, Subresource: "status"}}}) ||
		updatesStatus(events.Turn{Commands: []events.Command{{Verb: events.VerbPatch, Subresource: "status"}}}) {
		t.Error("a turn that writes a status is not told from others")
	}
}

func TestDefaultsOfAWriter(t *testing.T) {
	c := Config{}.withDefaults()
	if c.MaxAge != sign.TurnWithin || c.Since != 30*time.Second || c.Drain != 10*time.Second || c.Log == nil || c.Clock == nil {
		t.Errorf("by default it is %+v", c)
	}
	profiles := []Profile{{Name: "a"}}
	log, clock := slog.New(slog.DiscardHandler), testingclock.NewFakePassiveClock(time.Now())
	c = Config{MaxAge: 1, Since: 1, Drain: 1, Log: log, Clock: clock, Controllers: profiles}.withDefaults()
	if c.MaxAge != 1 || c.Since != 1 || c.Drain != 1 || c.Log != log || c.Clock != clock {
		t.Errorf("the configuration that was given has become %+v", c)
	}
	if c.Controllers[0].complete(); c.Controllers[0].Identity != "a" || c.Controllers[0].Source != "a" || c.Controllers[0].Allowed(events.Command{}) || profiles[0].Identity != "" {
		t.Errorf("a profile with a name only is %+v, and was %+v", c.Controllers[0], profiles[0])
	}
	p := Profile{Name: "a", Identity: "i", Source: "s", Allowed: func(events.Command) bool { return true }}
	if p.complete(); p.Identity != "i" || p.Source != "s" || !p.Allowed(events.Command{}) || p.actor().Controller != "a" || p.actor().Identity != "i" {
		t.Errorf("a profile that says all is %+v", p)
	}
	s := &Service{config: Config{Concurrent: map[string]int{"a": 3, "b": -1, "d": 1}}}
	for name, want := range map[string]int{"a": 3, "b": 50, "c": 50, "d": 1} {
		if got := cap(s.executor(&Profile{Name: name}).slots); got != want {
			t.Errorf("%s carries out %d turns at a time, want %d", name, got, want)
		}
	}
}

// A writer takes no turns while it leaves them to others; it gives up those that it has, once.
func TestTurnsThatAreLeftToOthers(t *testing.T) {
	s := newShare(podlog.Recorded(t), membership.Config{ID: "a"})
	first, takes := s.turnContext(t.Context())
	again, _ := s.turnContext(t.Context())
	if !takes || first != again || first.Err() != nil || s.redeliveryDelay() != 0 {
		t.Errorf("turns are not taken: %t, %v, back in %v", takes, first.Err(), s.redeliveryDelay())
	}
	s.leave(false)
	if first.Err() != nil {
		t.Error("turns that are not left are given up")
	}
	s.leave(true)
	s.leave(true)
	if hand, takes := s.turnContext(t.Context()); hand != nil || takes || first.Err() == nil || s.redeliveryDelay() != 300*time.Millisecond {
		t.Errorf("turns that are left are taken: %t, %v, back in %v", takes, first.Err(), s.redeliveryDelay())
	}
	s.leave(false)
	if next, takes := s.turnContext(t.Context()); !takes || next == first || next.Err() != nil {
		t.Error("turns are not taken again")
	}
}

// A heartbeat must be signed once the clock of the bus is known; before that each counts.
func TestHeartbeatsAreProvenByTheClock(t *testing.T) {
	keys, err := sign.Provide(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trust, err := sign.TrustFile(keys.Outcomes.Public, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{config: Config{Outcomes: trust, Log: slog.New(slog.DiscardHandler)}, metrics: newMetrics()}
	text := (report.Heartbeat{Writer: "b", Number: 1}).Encode()
	if !s.signedHeartbeat(text) {
		t.Error("before the clock is known a signed heartbeat does not count")
	}
	s.time.busReading, s.time.localReading = time.Now(), time.Now()
	if s.signedHeartbeat(text) {
		t.Error("a heartbeat counts that is not signed")
	}
}
