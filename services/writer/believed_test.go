package writer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// A claim that is repeated for ever keeps a turn from being carried out for a bounded time:
// from one name, from always another one, and from more than are remembered.
func TestAClaimIsBelievedForABoundedTime(t *testing.T) {
	t.Parallel()
	for name, claimant := range map[string]func(n int) string{
		"one writer":                func(int) string { return "ghost" },
		"two in turns":              func(n int) string { return []string{"ghost", "mallory"}[n%2] },
		"always another one":        func(n int) string { return time.Duration(n).String() },
		"with a pause now and then": func(n int) string { return []string{"ghost", "ghost", ""}[n%3] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, began := newHand("a", newMetrics()), time.Now()
				h.take(held, nothing{}, false, func() {})
				for n := 0; ; n++ {
					if by := claimant(n); by != "" {
						h.hear(events.Beat{Writer: by, Number: uint64(n), Turns: map[string][]uint64{held.controller: {held.sequence}}}.Encode())
					}
					listen(h, beat)
					waited := time.Since(began)
					if h.claim(held) {
						if waited < believed {
							t.Errorf("a claim is believed for %v only", waited)
						}
						return
					}
					if waited > believed+2*lapse {
						t.Fatalf("a claim is believed for %v", waited)
					}
				}
			})
		})
	}
}

// What another writer says counts once, and not at all where it is not proven: it neither
// delays a turn, nor makes this writer doubt what it has in flight.
func TestWhatIsNotProvenIsNotSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, proven := holding(), false
		h.proves = func(b events.Beat, text []byte) bool { return proven }
		listen(h, beat)
		for n := range uint64(5) {
			hears(h, 10*n+1, 8, held.sequence)
			if !h.claim(place{held.controller, 8}) || h.hears("b") || len(h.others) > 0 || h.held[held].contested || !h.watched(time.Now()) {
				t.Fatal("a claim that is not proven counts")
			}
			listen(h, beat)
		}
		proven = true
		hears(h, 50, 8)
		if h.claim(place{held.controller, 8}) || !h.hears("b") {
			t.Error("a claim that is proven does not count")
		}
		hears(h, 51)
		listen(h, beat)
		for range 5 {
			hears(h, 50, 8) // it is a copy
			listen(h, beat/2)
		}
		if !h.claim(place{held.controller, 8}) || h.hears("b") && h.others["b"].number != 51 {
			t.Error("a claim that was withdrawn counts when it is repeated")
		}
	})
}

// Who has let go of a turn and has it again is believed anew.
func TestAClaimMadeAnewIsBelievedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := holding()
		h.answer(held, func(bus.Delivery) {})
		h.take(held, nothing{}, false, func() {})
		n, began := uint64(0), time.Now()
		for time.Since(began) < believed-time.Second {
			n++
			hears(h, n, held.sequence)
			listen(h, beat)
			if h.claim(held) {
				t.Fatal("claimed what another one has in hand")
			}
		}
		for again := time.Now(); time.Since(again) <= pausing+beat; {
			n++
			hears(h, n)
			listen(h, beat)
		}
		for again := time.Now(); time.Since(again) < believed-time.Second; {
			n++
			hears(h, n, held.sequence)
			listen(h, beat)
			if h.claim(held) {
				t.Fatal("claimed what another one has in hand again")
			}
		}
	})
}

// A writer lets go of a turn before others cease to believe that it has it.
func TestATurnIsLetGoWhileItIsBelieved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		company bool
		want    standing
	}{"alone": {false, firm}, "in company": {true, gone}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, began := holding(), time.Now()
				for n := uint64(1); time.Since(began) < believed-2*doubt; n++ {
					if c.company {
						hears(h, n)
					}
					listen(h, beat)
				}
				if got := h.standing(held); got != c.want {
					t.Errorf("after %v the grip is %d, want %d", time.Since(began), got, c.want)
				}
			})
		})
	}
}

// A writer that is not remembered, since too many are made up, may have said that a turn is
// its own: after the turn came here, or before.
func TestWhoIsNotRememberedMayHaveATurn(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"after": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHand("a", newMetrics())
				for range 4 {
					for ghost := range mostOthers {
						h.hear(events.Beat{Writer: time.Duration(ghost).String(), Number: h.number}.Encode())
					}
					listen(h, beat)
				}
				if before {
					hears(h, 1, held.sequence)
				}
				h.take(held, nothing{}, false, func() {})
				if !before {
					hears(h, 1, held.sequence)
				}
				if h.claim(held) {
					t.Error("claimed what a writer has in hand for which there was no room")
				}
				time.Sleep(beat)
				hears(h, 2)
				for range 5 { // it has nothing any more
					listen(h, beat)
				}
				if !h.claim(held) {
					t.Error("a turn that no writer has cannot be claimed")
				}
			})
		})
	}
}
