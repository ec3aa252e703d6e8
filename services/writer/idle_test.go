package writer

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/writer/claim"
)

// TestAnEmptyHandSaysSoLessOften: and what is taken into it is said as soon as anything
// that is taken, and is firmly held from the beginning.
func TestAnEmptyHandSaysSoLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		h, at := newFlights("a", newMetrics()), claim.Place{Controller: "rs", Sequence: 7}
		var mu sync.Mutex
		var heard []events.Beat
		go func() {
			_ = b.Listen(t.Context(), events.Writers, func(text []byte) {
				mu.Lock()
				defer mu.Unlock()
				said, _ := events.DecodeBeat(text)
				heard = append(heard, said)
			})
		}()
		go h.keep(t.Context(), bus.Peers(b), slog.New(slog.DiscardHandler))
		during := func(d time.Duration) []events.Beat {
			mu.Lock()
			heard = nil
			mu.Unlock()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return heard
		}
		if got := len(during(40 * claim.Interval)); got > 21 {
			t.Errorf("with nothing in hand it beats %d times in %v", got, 40*claim.Interval)
		}
		during(claim.Interval + claim.Interval/2) // it rests
		release := make(chan struct{})
		h.take(at, nothing{}, true, func() { <-release })
		if got := h.standing(at); got != claim.Held {
			t.Errorf("what was taken after a rest stands %v", got)
		}
		if said := during(claim.Interval / 4); len(said) != 1 || len(said[0].Turns["rs"]) != 1 {
			t.Errorf("of what was taken after a rest was said %v", said)
		}
		if got := len(during(40 * claim.Interval)); got < 39 {
			t.Errorf("with a turn in hand it beats %d times in %v", got, 40*claim.Interval)
		}
		if got := h.standing(at); got != claim.Held {
			t.Errorf("then it stands %v", got)
		}
		close(release)
		h.answer(at, bus.Delivery.Done)
		// Another writer may wait to hear that it was let go.
		if said := during(claim.Interval + claim.Interval/4); len(said) != 1 || len(said[0].Turns["rs"]) != 0 {
			t.Errorf("of what was let go was said %v", said)
		}
	})
}
