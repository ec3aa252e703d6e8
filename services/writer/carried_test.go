package writer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/eventrecorder"
	"github.com/millrace/millrace/services/writer/claim"
	"github.com/millrace/millrace/services/writer/plan"
)

// given returns a delivery of a message.
type given struct {
	nothing
	message events.Message
	attempt int
}

func (d given) Message() events.Message { return d.message }
func (d given) Attempt() int            { return max(d.attempt, 1) }

var web = events.Key{Namespace: "ns", Name: "web"}

// outcomeOn returns the recorded outcome of the turn; false if there is none.
func outcomeOn(t *testing.T, b *bustest.Bus) (o events.Outcome, ok bool) {
	t.Helper()
	m, ok, err := b.Bus.Last(t.Context(), subject.OutcomeStream("rs"), subject.Outcome("rs", events.LaneWrite, web))
	if err != nil || ok && events.DecodeJSON(m, &o) != nil {
		t.Fatalf("the outcome is %+v, %v", m, err)
	}
	return o, ok
}

// The executor does not carry out a message that is no turn of this controller, is not signed, or
// waits for another writer, however it is delivered.
func TestWhatIsNoTurnOfThisWriter(t *testing.T) {
	w, m, b := onRecord(t, func(*bustest.Bus) {})
	w.config.MaxAge = time.Hour
	of := func(change func(*events.Message)) given {
		d := given{message: m}
		change(&d.message)
		return d
	}
	other := of(func(m *events.Message) { m.Subject = subject.Turn("ds", events.LaneWrite, web) })
	nowhere := of(func(m *events.Message) { m.Subject = "x" })
	parked := of(func(m *events.Message) { m.Subject = subject.Turn("rs", events.LanePark, web) })
	repeats, err := events.EncodeJSON(events.Turn{Controller: "rs", Key: web, Lane: events.LaneWrite, Now: time.Now(), Repeats: 1}, events.Trace{})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := of(func(m *events.Message) { m.Data, m.Header = repeats.Data, repeats.Header })
	for what, c := range map[string]struct {
		d    given
		want string
	}{
		"of another controller": {other, "term: the turn of ds in the stream of rs"}, "of no controller": {nowhere, "term: "}, "parked": {parked, "done"},
		"that repeats one that another writer may have": {elsewhere, "later 200ms"},
	} {
		if got := howIsAnswered(w.execute(t.Context(), c.d, true)); !strings.HasPrefix(got, c.want) {
			t.Errorf("a turn %s is answered %q, want %q", what, got, c.want)
		}
	}
	if _, some := outcomeOn(t, b); some {
		t.Error("one of them has an outcome")
	}
	keys, err := sign.ProvideFrom(t.TempDir(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if w.config.Turns, err = sign.TrustFile(keys.Turns.Public, nil); err != nil {
		t.Fatal(err)
	}
	if got := howIsAnswered(w.execute(t.Context(), given{message: m}, true)); !strings.HasPrefix(got, "term: ") {
		t.Errorf("a turn that is not signed is answered %q, want a term", got)
	}
	if o, some := outcomeOn(t, b); !some || len(o.Results) != 1 || o.Results[0].Reason != events.BadSignature {
		t.Errorf("the outcome of a turn that is not signed is %+v, want BadSignature", o)
	}
}

// The executor first checks a turn that is not fresh: it waits until the turn is known to be this
// writer's, and acknowledges a turn that has its outcome.
func TestATurnThatIsNotNewIsLookedInto(t *testing.T) {
	outcomes := subject.OutcomeStream("rs")
	for what, c := range map[string]struct {
		ours, begun, told, settled bool
		last                       error
		want                       string // the answer to the delivery; "": the turn is to be carried out
	}{
		"another may have it":               {want: "later 200ms"},
		"it is not announced yet":           {ours: true, begun: true, want: "later 200ms"},
		"nothing came of it":                {ours: true},
		"it has its outcome":                {ours: true, settled: true, want: "done"},
		"whether it has one is not told":    {ours: true, last: away, want: "later 1s"},
		"begun, announced, without outcome": {ours: true, begun: true, told: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, m, b := onRecord(t, func(a *bustest.Bus) { a.Fail(bustest.Last, c.last, outcomes) })
			if c.settled {
				if err := w.storeOutcome(t.Context(), m, events.Turn{Controller: "rs", Key: web, Lane: events.LaneWrite}, nil); err != nil || b.Count(bustest.Put) != 1 {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			w.inFlight.take(claim.Place{Controller: "rs", Sequence: m.Sequence}, given{message: m}, false, func() {})
			if c.ours {
				for range 4 {
					listen(w.inFlight, claim.Interval)
				}
			}
			if c.told {
				go func() { time.Sleep(claim.Interval / 2); listen(w.inFlight, claim.Interval) }()
			} else {
				go func() { time.Sleep(claim.Interval / 4); stop() }()
			}
			answer, known := w.answerKnown(ctx, m, events.LaneWrite, web, c.begun)
			if known != (c.want != "") || known && howIsAnswered(answer) != c.want {
				t.Errorf("%s: known %t, want %q", what, known, c.want)
			}
			time.Sleep(time.Second) // virtual
		})
	}
}

// roundTrip is an API server as a function.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip is [http.RoundTripper].
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// carrying is onRecord with a door to an API server and a writer that hears itself. It waits until
// the writer knows what the others have.
func carrying(t *testing.T, change func(*bustest.Bus), api roundTrip) (*executor, events.Message, *bustest.Bus) {
	t.Helper()
	w, m, b := onRecord(t, change)
	w.profile = &Profile{Name: "rs", Allowed: func(events.Command) bool { return true }}
	w.profile.complete()
	door, err := apply.New(apply.Config{REST: &rest.Config{Host: "http://api.invalid", Transport: api}}, []apply.Actor{w.profile.actor()})
	if err != nil {
		t.Fatal(err)
	}
	w.api, w.recorder, w.config.MaxAge = door, eventrecorder.New(eventrecorder.Config{Do: door.Do, Clock: testingclock.NewFakePassiveClock(time.Now())}), time.Hour
	w.time.busReading, w.time.localReading = time.Now(), time.Now()
	var hearing sync.WaitGroup
	hearing.Go(func() {
		for t.Context().Err() == nil {
			listen(w.inFlight, claim.Interval/4)
		}
	})
	t.Cleanup(hearing.Wait)
	time.Sleep(4 * claim.Listening) // virtual
	return w, m, b
}

// The next writer that gets a turn that was given up, which may be the same one, checks it first:
// the turn may have been begun.
func TestATurnThatIsGivenUp(t *testing.T) {
	end := events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: "a", If: &events.If{UID: "u"}}
	for what, c := range map[string]struct {
		change func(*bustest.Bus)
		taken  bool
		stops  bool
		want   string
		given  bool // up
	}{
		"it is carried out":        {func(*bustest.Bus) {}, true, false, "done", false},
		"its outcome is not taken": {func(a *bustest.Bus) { a.Fail(bustest.Put, bus.ErrTooLarge) }, true, false, "later 1s", true},
		"the writer stops":         {func(*bustest.Bus) {}, true, true, "later 0s", true},
		"it is lost":               {func(*bustest.Bus) {}, false, false, "", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			w, m, _ := carrying(t, c.change, func(r *http.Request) (*http.Response, error) {
				if c.stops {
					stop()
					return nil, r.Context().Err()
				}
				return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			})
			turn := events.Turn{Controller: "rs", Key: web, Lane: events.LaneWrite, Now: time.Now(), Commands: []events.Command{end}}
			if c.taken {
				w.inFlight.take(claim.Place{Controller: "rs", Sequence: m.Sequence}, given{message: m}, true, func() {})
			}
			stored := time.Now()
			time.Sleep(time.Millisecond) // virtual
			got := howIsAnswered(w.executeTurn(ctx, m, turn, false))
			time.Sleep(2 * claim.Interval)
			if w.inFlight.watched(stored) == c.given || got != c.want {
				t.Errorf("%s: it is answered %q, want %q; what was stored before is taken for new: %t", what, got, c.want, w.inFlight.watched(stored))
			}
		})
	}
}

// A writer that stops meanwhile does not go on with a turn that another one may have.
func TestAnUncertainTurnEndsWithTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m, _ := onRecord(t, func(*bustest.Bus) {})
		for range 4 {
			listen(w.inFlight, claim.Interval)
		}
		at := claim.Place{Controller: "rs", Sequence: m.Sequence}
		w.inFlight.take(at, given{message: m}, true, func() {})
		ctx, stop := context.WithCancel(t.Context())
		holds := w.claimTurn(ctx, m, events.Turn{Lane: events.LaneWrite, Key: web})
		if !holds() {
			t.Error("the turn is not held after it was claimed")
		}
		time.Sleep(claim.Expiry) // virtual
		began := time.Now()
		go func() { time.Sleep(time.Second / 2); stop() }()
		if holds() || time.Since(began) < time.Second/2 || time.Since(began) > time.Second/2+claim.Interval {
			t.Errorf("after %v the turn is still held, want until the claim is heard no more, or the writer stops", time.Since(began))
		}
	})
}

// A turn that has only waited was not begun; a redelivered one may have been.
func TestWhetherATurnWasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := anExecutor(t)
		w.time.busReading, w.time.localReading = time.Now(), time.Now()
		for range 8 {
			listen(w.inFlight, claim.Interval)
		}
		at := claim.Place{Controller: "rs", Sequence: 7}
		w.inFlight.take(at, nothing{}, false, func() {})
		for attempt, want := range map[int][2]bool{1: {false, true}, 2: {true, false}} {
			if begun, untouched := w.mayHaveBegun(stored{sequence: 7, attempt: attempt, time: time.Now()}); begun != want[0] || untouched != want[1] {
				t.Errorf("delivered %d times it has begun: %t, untouched: %t", attempt, begun, untouched)
			}
		}
	})
}

// A turn without a free slot when the writer stops is handed back at once.
func TestATurnThatWaitsIsHandedBack(t *testing.T) {
	w, m, _ := onRecord(t, func(*bustest.Bus) {})
	w.slots = make(chan struct{}) // none is free
	reading, stop := context.WithCancel(t.Context())
	stop()
	how := ""
	w.take(reading, t.Context(), answeredAs{given{message: m}, &how})
	w.inFlight.turns.Wait()
	if how != "later 0s" || !w.inFlight.claims.Empty() {
		t.Errorf("the turn is answered %q, want \"later 0s\", and no claim left", how)
	}
}

// answeredAs records how a delivery was answered.
type answeredAs struct {
	given
	how *string
}

func (a answeredAs) Ack()                         { *a.how = "done" }
func (a answeredAs) NakWithDelay(d time.Duration) { *a.how = "later " + d.String() }
func (a answeredAs) Term(why string)              { *a.how = "term: " + why }

// A panic of the writer is the outcome of the turn that caused it, if the outcome has a subject.
func TestAFaultIsAnOutcome(t *testing.T) {
	w, m, b := onRecord(t, func(*bustest.Bus) {})
	strange := m
	strange.Subject = "x"
	if got := howIsAnswered(w.panicked(t.Context(), strange, "boom", nil)); got != "term: the writer has a fault: boom" || b.Count(bustest.Put) > 0 {
		t.Errorf("a message that is no turn is answered %q, with %d outcomes; want a term, and none", got, b.Count(bustest.Put))
	}
	b.Fail(bustest.Put, bus.ErrTooLarge)
	if got := howIsAnswered(w.panicked(t.Context(), m, "boom", nil)); got != "later 1s" {
		t.Errorf("a turn whose outcome is too large is answered %q, want \"later 1s\"", got)
	}
	b.Fail(bustest.Put, nil)
	if got := howIsAnswered(w.panicked(t.Context(), m, "boom", nil)); got != "term: the writer has a fault: boom" {
		t.Errorf("a turn that panics is answered %q, want a term that says so", got)
	}
	if o, some := outcomeOn(t, b); !some || len(o.Results) != 1 || o.Results[0].Reason != plan.ReasonPanicked || !o.Results[0].Unsure {
		t.Errorf("the outcome of a turn that panics is %+v, want Panicked, and unsure", o)
	}
}

// An outcome is signed under an id that is the same for every writer; a broken promise raises an
// alarm.
func TestAnOutcomeIsSigned(t *testing.T) {
	w, m, b := onRecord(t, func(*bustest.Bus) {})
	keys, err := sign.ProvideFrom(t.TempDir(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	trust, err := sign.TrustFile(keys.Outcomes.Public, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.config.Sign, err = sign.SignerFile(keys.Outcomes.Private, nil); err != nil {
		t.Fatal(err)
	}
	w.time.busReading, w.time.localReading = time.Now(), time.Now()
	m.Time = time.Unix(1234, 5)
	turn := events.Turn{Controller: "rs", Key: web, Lane: events.LaneWrite, Commands: make([]events.Command, 3)}
	results := []events.Result{{Status: events.Refused, Reason: plan.NotPromised}, {Command: 1, Status: events.Applied}, {Command: 2, Status: events.Failed, Reason: plan.Redacted}}
	var storedAs string
	b.OnPut = func(ctx context.Context, m events.Message, id string) (uint64, error) {
		storedAs = id
		return b.Bus.Put(ctx, m, id)
	}
	if err := w.storeOutcome(t.Context(), m, turn, results); err != nil {
		t.Fatal(err)
	}
	if storedAs != "TURN_rs:1:1234000000005" {
		t.Errorf("the message ID of the outcome is %s, want TURN_rs:1:1234000000005", storedAs)
	}
	last, _, err := b.Bus.Last(t.Context(), subject.OutcomeStream("rs"), subject.Outcome("rs", events.LaneWrite, web))
	if err != nil || trust.Outcome(last) != nil {
		t.Errorf("the stored outcome is not signed: %v, %v", trust.Outcome(last), err)
	}
	for reason, want := range map[string]float64{plan.NotPromised: 1, plan.Redacted: 1, "": 0} {
		if n := metrictest.Collect(t, w.metrics.alarms).Sum("", "rs", reason); n != want {
			t.Errorf("%v alarms of reason %q, want %v", n, reason, want)
		}
	}
}

// An outcome counts only if a trusted writer has signed it or it was stored before signatures were
// required, and if it was not stored before its turn.
func TestWhichOutcomesCount(t *testing.T) {
	signing := func(from time.Time) (*sign.Signer, *sign.Trust, *sign.Trust) {
		keys, err := sign.ProvideFrom(t.TempDir(), from)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := sign.SignerFile(keys.Outcomes.Private, nil)
		trust, other := sign.TrustFile(keys.Outcomes.Public, nil)
		turns, another := sign.TrustFile(keys.Turns.Public, nil)
		if err := errors.Join(err, other, another); err != nil {
			t.Fatal(err)
		}
		return signer, trust, turns
	}
	signer, trust, turns := signing(time.Now().Add(-time.Hour))
	stranger, _, _ := signing(time.Now().Add(-time.Hour))
	_, _, later := signing(time.Now().Add(time.Hour))
	for what, c := range map[string]struct {
		by     *sign.Signer
		config Config
		early  bool
		want   bool
	}{
		"no keys":                              {nil, Config{}, false, true},
		"signed, as it is trusted":             {signer, Config{Outcomes: trust}, false, true},
		"not signed":                           {nil, Config{Outcomes: trust}, false, false},
		"signed by a stranger":                 {stranger, Config{Outcomes: trust}, false, false},
		"signed with its own key":              {signer, Config{Sign: signer, Turns: turns}, false, true},
		"not signed, with its own key":         {nil, Config{Sign: signer, Turns: turns}, false, false},
		"not signed, and nothing was then":     {nil, Config{Sign: signer, Turns: later}, false, true},
		"stored before the turn in this place": {nil, Config{}, true, false},
	} {
		w, m, _ := onRecord(t, func(*bustest.Bus) {})
		w.time.busReading, w.time.localReading, w.config.Sign = time.Now(), time.Now(), c.by
		if err := w.storeOutcome(t.Context(), m, events.Turn{Controller: "rs", Key: web, Lane: events.LaneWrite}, nil); err != nil {
			t.Fatal(err)
		}
		w.config.Sign, w.config.Turns, w.config.Outcomes = c.config.Sign, c.config.Turns, c.config.Outcomes
		if c.early {
			m.Time = m.Time.Add(time.Hour)
		}
		if settled, err := w.hasOutcome(t.Context(), m, events.LaneWrite, web); err != nil || settled != c.want {
			t.Errorf("%s: the turn has its outcome: %t, %v; want %t", what, settled, err, c.want)
		}
		if bad := metrictest.Collect(t, w.metrics.alarms).Sum("", "rs", "BadOutcome"); (bad == 1) != (!c.want && !c.early) {
			t.Errorf("%s: %v alarms", what, bad)
		}
	}
}

// With keys for outcomes a heartbeat counts only if it is signed with one; without keys each
// counts.
func TestWhichHeartbeatsAreToBeSigned(t *testing.T) {
	keys, err := sign.ProvideFrom(t.TempDir(), time.Now().Add(-3*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := sign.SignerFile(keys.Outcomes.Private, nil)
	trust, other := sign.TrustFile(keys.Outcomes.Public, nil)
	turns, another := sign.TrustFile(keys.Turns.Public, nil)
	if err := errors.Join(err, other, another); err != nil {
		t.Fatal(err)
	}
	young, err := sign.ProvideFrom(t.TempDir(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	later, err := sign.TrustFile(young.Turns.Public, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, b := onRecord(t, func(*bustest.Bus) {})
	for what, c := range map[string]struct {
		config           Config
		signed, unsigned bool
	}{
		"no keys":                      {Config{}, true, true},
		"keys of all writers":          {Config{Sign: signer, Outcomes: trust}, true, false},
		"keys to believe only":         {Config{Outcomes: trust}, false, false},
		"its own key":                  {Config{Sign: signer}, true, false},
		"its own key, and turns'":      {Config{Sign: signer, Turns: turns}, true, false},
		"its own key, and nothing yet": {Config{Sign: signer, Turns: later}, true, true},
	} {
		var log strings.Builder
		c.config.REST, c.config.Bus, c.config.Log = &rest.Config{Host: "http://api.invalid"}, b, slog.New(slog.NewTextHandler(&log, nil))
		s, err := New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		s.time.busReading, s.time.localReading = time.Now().Add(-2*time.Hour), time.Now() // two hours off this machine's clock
		text := (report.Heartbeat{Writer: "b", Number: 1}).Encode()
		if signed, unsigned := s.inFlight.signed(s.inFlight.sign(text)), s.inFlight.signed(text); signed != c.signed || unsigned != c.unsigned {
			t.Errorf("%s: what it says itself counts: %t; what is not signed: %t", what, signed, unsigned)
		}
		if strings.Contains(log.String(), "ignored a writer's heartbeat") != !c.unsigned {
			t.Errorf("%s: the log is %q", what, log.String())
		}
	}
}

// The span of a turn has the outcome, and the reason of a failure; a turn without a span is
// accepted.
func TestWhatTheSpanOfATurnSays(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("writer", trace.Options{})
	for _, c := range []struct{ status, reason, failure string }{{"applied", "", ""}, {"refused", "NotPromised", "NotPromised"}} {
		o := events.Outcome{Results: []events.Result{{Status: events.Status(c.status), Reason: c.reason}}}
		span := tracer.Relist("pods")
		recordOutcome(span, o)
		span.End()
		spans := r.Spans()
		if last := spans[len(spans)-1]; last.Attributes[trace.Outcome] != c.status || last.Failure != c.failure {
			t.Errorf("the span of a turn that is %s has %+v", c.status, last)
		}
		recordOutcome(nil, o)
	}
}
