package writer_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer"
)

// quiet is how long nothing must happen: longer than a writer needs until it takes turns.
const quiet = 2 * time.Second

// term is a term of a Lease.
type term struct {
	token uint64
	end   chan struct{}
	ended chan error // what lead returned
}

// leasing gives a writer terms of a Lease.
type leasing struct {
	terms chan term
	lost  chan error
}

func newLeasing() leasing { return leasing{terms: make(chan term), lost: make(chan error, 1)} }

func (l leasing) hold(ctx context.Context, lead func(context.Context, uint64) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.lost:
			return err
		case t := <-l.terms:
			leading, stop := context.WithCancel(ctx)
			led := make(chan error, 1)
			go func() { led <- lead(leading, t.token) }()
			select {
			case <-t.end:
			case <-ctx.Done():
			case err := <-l.lost:
				stop()
				return err
			}
			stop()
			t.ended <- <-led
		}
	}
}

// begin has the writer hold the Lease.
func (l leasing) begin(token uint64) term {
	t := term{token: token, end: make(chan struct{}), ended: make(chan error, 1)}
	l.terms <- t
	return t
}

func (s *scene) leased(l leasing, change ...func(*writer.Config)) (stop func()) {
	return s.writer(func(c *writer.Config) {
		c.Lease, c.Controllers[0].Leased = l.hold, true
		for _, f := range change {
			f(c)
		}
	})
}

func decidedUnder(token uint64) func(*events.Turn) {
	return func(t *events.Turn) { t.Token = token }
}

// leads returns the token that the heartbeats of all writers name, 0 if none does.
func (s *scene) leads() func() uint64 {
	var mu sync.Mutex
	tokens := map[string]uint64{}
	go func() {
		_ = s.bus.Listen(s.Context(), report.Writers, func(text []byte) {
			if b, ok := report.DecodeHeartbeat(text); ok {
				mu.Lock()
				defer mu.Unlock()
				tokens[b.Writer] = b.Leads[controller]
			}
		})
	}()
	return func() (token uint64) {
		mu.Lock()
		defer mu.Unlock()
		for _, t := range tokens {
			token = max(token, t)
		}
		return token
	}
}

// TestTurnsAreCarriedOutByTheHolderOfTheLease: a leased controller's turns wait until a writer holds the
// Lease. That writer refuses the turns of other terms, and carries out no turn of a later one.
func TestTurnsAreCarriedOutByTheHolderOfTheLease(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	one, other := newLeasing(), newLeasing()
	s.leased(one)
	s.leased(other)
	leads := s.leads()
	s.store("early", nil, creates("early", 1)...)
	time.Sleep(quiet)
	if n := s.outcomes(); n > 0 || leads() != 0 {
		t.Fatalf("without the Lease there are %d outcomes, and %d writers report that they lead; want none", n, leads())
	}
	first := one.begin(7)
	eventually.True(s, eventually.Long, "heartbeat of the holder", func() bool { return leads() == 7 })
	if o := s.outcome("early"); o.Results[0].Status != events.Refused || o.Results[0].Reason != "Stale" || !strings.Contains(o.Results[0].Message, "token 0 ") {
		t.Errorf("the result of a turn of no term is %+v", o.Results[0])
	}
	s.store("web", decidedUnder(7), creates("web", 2)...)
	if o := s.outcome("web"); !o.OK() {
		t.Errorf("the outcome of a turn of the term is %+v", o)
	}
	close(first.end)
	s.must(<-first.ended)
	eventually.True(s, eventually.Long, "heartbeat without the Lease", func() bool { return leads() == 0 })
	s.store("late", decidedUnder(7), creates("late", 1)...)
	time.Sleep(quiet)
	if s.api.Get(pods+"late-0") != nil {
		t.Error("a turn is carried out without the Lease")
	}
	second := other.begin(8)
	if o := s.outcome("late"); o.Results[0].Reason != "Stale" || s.api.Get(pods+"late-0") != nil {
		t.Errorf("the result of a turn of the last term is %+v", o.Results[0])
	}
	s.store("db", decidedUnder(8), creates("db", 1)...)
	if o := s.outcome("db"); !o.OK() {
		t.Errorf("the outcome of a turn of the second term is %+v", o)
	}
	close(second.end)
	s.must(<-second.ended)
}

// TestAnUnleasedControllerNeedsNoLease: its turns are carried out at all times, whatever their token.
func TestAnUnleasedControllerNeedsNoLease(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const free = "job-controller"
	s.must(s.bus.EnsureController(t.Context(), free))
	s.leased(newLeasing(), func(c *writer.Config) {
		c.Controllers = append(c.Controllers, writer.Profile{Name: free, Allowed: func(events.Command) bool { return true }})
	})
	turn := events.Turn{Controller: free, Key: events.Key{Namespace: "ns", Name: "web"}, Lane: events.LaneWrite, Now: time.Now(), Token: 3, Commands: creates("web", 1)}
	turn.Pack()
	m, err := events.EncodeJSON(turn, turn.Trace)
	s.must(err)
	m.Subject = subject.Turn(free, turn.Lane, turn.Key)
	_, err = s.bus.Put(t.Context(), m, "")
	s.must(err)
	eventually.True(s, eventually.Long, "pod of a controller without a Lease", func() bool { return s.api.Get(pods+"web-0") != nil })
}

// holdRequests has the API server answer no create until goOn is closed; begun is closed at the first. Other
// requests, such as that for the API server's readiness, are no part of a turn.
func (s *scene) holdRequests() (begun, goOn chan struct{}) {
	begun, goOn = make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.api.Hold(func(r apiservertest.Request) {
		if r.Method != http.MethodPost {
			return
		}
		once.Do(func() { close(begun) })
		<-goOn
	})
	return begun, goOn
}

// TestATermEndsOnceNothingIsInFlight: a writer keeps the Lease until the requests in flight are answered,
// and no longer than it may take to stop.
func TestATermEndsOnceNothingIsInFlight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drain    time.Duration
		finishes bool
	}{"in time": {time.Minute, true}, "too late": {300 * time.Millisecond, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			begun, goOn := s.holdRequests()
			l := newLeasing()
			s.leased(l, func(config *writer.Config) { config.Drain = c.drain })
			held := l.begin(1)
			s.store("web", decidedUnder(1), creates("web", 1)...)
			<-begun
			close(held.end)
			if c.finishes {
				select {
				case err := <-held.ended:
					close(goOn)
					t.Fatalf("the term has ended while a request is in flight: %v", err)
				case <-time.After(time.Second):
				}
			} else {
				select {
				case err := <-held.ended:
					s.must(err)
				case <-time.After(time.Minute):
					t.Error("the term does not end")
				}
			}
			close(goOn)
			if c.finishes {
				s.must(<-held.ended)
				if s.outcomes() != 1 {
					t.Error("the turn in flight has no outcome when the term has ended")
				}
			}
		})
	}
}

// TestALostLeaseStopsTheWriterAtOnce: it does not wait for what is in flight.
func TestALostLeaseStopsTheWriterAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	begun, goOn := s.holdRequests()
	t.Cleanup(func() { close(goOn) })
	l, lost := newLeasing(), errors.New("the Lease is lost")
	service, err := writer.New(writer.Config{
		REST: &rest.Config{Host: s.api.URL}, Bus: s.bus, Lease: l.hold, Drain: time.Hour,
		Controllers: []writer.Profile{{Name: controller, Leased: true, Allowed: func(events.Command) bool { return true }}},
	})
	s.must(err)
	ended := make(chan error, 1)
	go func() { ended <- service.Run(t.Context()) }()
	l.begin(1)
	s.store("web", decidedUnder(1), creates("web", 1)...)
	<-begun
	l.lost <- lost
	select {
	case err := <-ended:
		if !errors.Is(err, lost) {
			t.Errorf("the writer ends with %v, want the loss of the Lease", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the writer does not end when it loses the Lease")
	}
}

// TestALeasedControllerNeedsALease: a writer without one is not made.
func TestALeasedControllerNeedsALease(t *testing.T) {
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	_, err := writer.New(writer.Config{REST: &rest.Config{Host: "127.0.0.1"}, Bus: b, Controllers: []writer.Profile{{Name: controller, Leased: true}}})
	if err == nil || !strings.Contains(err.Error(), "Lease") {
		t.Errorf("a writer with a leased controller and no Lease: %v, want an error that names the Lease", err)
	}
}
