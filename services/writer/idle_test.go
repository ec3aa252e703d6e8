package writer

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/writer/claim"
)

// TestAnEmptyHandSaysSoLessOften: a writer with nothing in flight sends fewer heartbeats. A turn
// taken then is announced as soon as any other, and is held from the beginning.
func TestAnEmptyHandSaysSoLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		h, at := newInFlightTurns("a", newMetrics()), claim.Place{Controller: "rs", Sequence: 7}
		var mu sync.Mutex
		var heard []report.Heartbeat
		go func() {
			_ = b.Listen(t.Context(), report.Writers, func(text []byte) {
				mu.Lock()
				defer mu.Unlock()
				said, _ := report.DecodeHeartbeat(text)
				heard = append(heard, said)
			})
		}()
		go h.run(t.Context(), bus.Peers(b), slog.New(slog.DiscardHandler))
		after := func(act func(), d time.Duration) []report.Heartbeat {
			mu.Lock()
			heard = nil
			mu.Unlock()
			act()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return heard
		}
		nothingElse := func() {}
		if got := len(after(nothingElse, 40*claim.Interval)); got > 21 {
			t.Errorf("with nothing in flight the writer sends %d heartbeats in %v, want 21 at most", got, 40*claim.Interval)
		}
		after(nothingElse, claim.Interval+claim.Interval/2) // it is in a long pause
		done := make(chan struct{})
		take := func() {
			h.take(at, nothing{}, true, func() { <-done })
			if got := h.standing(at); got != claim.Held {
				t.Errorf("a turn that was taken after a rest is %v, want held", got)
			}
		}
		if said := after(take, claim.Interval/4); len(said) != 1 || len(said[0].Turns["rs"]) != 1 {
			t.Errorf("after a turn was taken the heartbeats are %v, want one at once with the turn", said)
		}
		if got := len(after(nothingElse, 40*claim.Interval)); got < 39 {
			t.Errorf("with a turn in flight the writer sends %d heartbeats in %v, want at least 39", got, 40*claim.Interval)
		}
		if got := h.standing(at); got != claim.Held {
			t.Errorf("then it stands %v", got)
		}
		release := func() {
			close(done)
			h.answer(at, bus.Delivery.Ack)
		}
		// Another writer may wait for this heartbeat.
		if said := after(release, claim.Interval+claim.Interval/4); len(said) != 1 || len(said[0].Turns["rs"]) != 0 {
			t.Errorf("after the turn was released the heartbeats are %v, want one at once without it", said)
		}
	})
}
