package writer

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/writer/claim"
)

// listen sends a writer's heartbeat, which comes back after a while.
func listen(f *inFlightTurns, after time.Duration) {
	_, said := f.heartbeat()
	time.Sleep(after)
	f.receive(said.Encode())
}

// nothing is a delivery that ignores its answers.
type nothing struct{}

var _ bus.Delivery = nothing{}

func (nothing) Message() events.Message    { return events.Message{} }
func (nothing) Attempt() int               { return 1 }
func (nothing) Ack()                       {}
func (nothing) NakWithDelay(time.Duration) {}
func (nothing) Term(string)                {}
func (nothing) InProgress()                {}

// worked counts how often a turn is marked as in progress.
type worked struct {
	nothing
	times *atomic.Int32
}

func (w worked) InProgress() { w.times.Add(1) }

// A writer marks its turns in flight as in progress while it runs. When it has stopped it sends
// one more heartbeat: the turns handed back must not seem to be in flight.
func TestWhatIsInFlightIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		var heard, times atomic.Int32
		go func() { _ = b.Listen(t.Context(), report.Writers, func([]byte) { heard.Add(1) }) }()
		f, hold := newInFlightTurns("a", newMetrics()), make(chan struct{})
		f.take(held, worked{times: &times}, true, func() { <-hold })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { f.run(ctx, b, slog.New(slog.DiscardHandler)); close(ended) }()
		time.Sleep(5*claim.Interval + claim.Interval/2) // virtual
		if n := times.Load(); n != 6 {
			t.Errorf("the delivery is kept in progress %d times in five intervals, want 6", n)
		}
		before := heard.Load()
		stop()
		<-ended
		synctest.Wait()
		if more, said := times.Load()-6, heard.Load()-before; more != 0 || said != 1 {
			t.Errorf("when the writer stops the delivery is kept in progress %d times more, and %d heartbeats are sent; want 0 and 1", more, said)
		}
		close(hold)
		f.turns.Wait()
	})
}

// A writer that cannot listen for the others retries at intervals, and counts their heartbeats
// meanwhile as missed.
func TestAWriterThatCannotHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.Wrap(memory.New(memory.Options{})).Fail(bustest.Listen, away)
		defer b.Bus.Close()
		f := newInFlightTurns("a", newMetrics())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { f.run(ctx, b, slog.New(slog.DiscardHandler)); close(ended) }()
		time.Sleep(10*claim.Interval + claim.Interval/2) // virtual
		stop()
		<-ended
		if n := b.Count(bustest.Listen); n != 11 {
			t.Errorf("in ten intervals it tries %d times", n)
		}
		stored := time.Now()
		for range 4 {
			listen(f, claim.Interval)
		}
		if f.watched(stored) {
			t.Error("watched is true for a time in which other writers could not be heard")
		}
		if later := time.Now().Add(claim.Listening); !f.watched(later) {
			t.Error("watched is false for a time since which other writers are heard")
		}
	})
}

// The metric counts heartbeats that come back too late, and only those.
func TestLateHeartbeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInFlightTurns("a", newMetrics())
		for range 3 {
			listen(f, claim.Interval)
		}
		if n := metrictest.Collect(t, f.metrics.expiries).Sum(""); n != 0 {
			t.Errorf("a writer that hears itself counts %v expiries, want 0", n)
		}
		time.Sleep(claim.Expiry) // virtual
		listen(f, claim.Interval)
		if n := metrictest.Collect(t, f.metrics.expiries).Sum(""); n != 1 {
			t.Errorf("a writer that did not hear itself once counts %v expiries, want 1", n)
		}
	})
}

// A writer that does not hear itself for five seconds is not ready: it takes turns, and may make
// no requests for them.
func TestAWriterThatIsDeafIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		s, err := New(Config{REST: &rest.Config{Host: "http://api.invalid"}, Bus: b})
		if err != nil {
			t.Fatal(err)
		}
		ready := s.Checks()["writer"]
		time.Sleep(5 * time.Second) // virtual
		if err := ready(); err == nil || err.Error() != "not started" {
			t.Errorf("the check before the writer takes turns: %v, want \"not started\"", err)
		}
		s.setIdle(nil)
		if err := ready(); err == nil || !strings.Contains(err.Error(), "does not hear its own") {
			t.Errorf("the check of a writer that does not hear itself for five seconds: %v, want an error that says so", err)
		}
		listen(s.inFlight, 0)
		time.Sleep(5*time.Second - 1)
		if err := ready(); err != nil {
			t.Errorf("the check of a writer that did not hear itself for less than that: %v, want no error", err)
		}
	})
}

// Turns in flight have a limited time when the writer stops; only turns that take longer are cut
// off.
func TestWhatIsInFlightMayEnd(t *testing.T) {
	for takes, want := range map[time.Duration]struct {
		cut  bool
		took time.Duration
	}{time.Second: {false, time.Second}, time.Minute: {true, 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			f, ctx := newInFlightTurns("a", newMetrics()), t.Context()
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			f.take(held, nothing{}, true, func() { sleep.For(ctx, takes) })
			began, cut := time.Now(), false
			f.drain(10*time.Second, func() { cut = true; stop() })
			if took := time.Since(began); took != want.took || cut != want.cut {
				t.Errorf("a turn that takes %v is waited for %v at the end, and cut short: %t", takes, took, cut)
			}
		})
	}
}
