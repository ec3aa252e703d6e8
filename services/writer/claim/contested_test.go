package claim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/report"
)

// A claim repeated forever delays a turn for a bounded time only: under one name, under ever new
// ones, and under more than are remembered.
func TestAClaimIsBelievedForABoundedTime(t *testing.T) {
	for name, claimant := range map[string]func(n int) string{
		"one writer":                func(int) string { return "ghost" },
		"two in turns":              func(n int) string { return []string{"ghost", "mallory"}[n%2] },
		"always another one":        func(n int) string { return time.Duration(n).String() },
		"with a pause now and then": func(n int) string { return []string{"ghost", "ghost", ""}[n%3] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, began := newParty("a"), time.Now()
				h.take(held, false)
				for n := 0; ; n++ {
					if by := claimant(n); by != "" {
						h.hear(report.Heartbeat{Writer: by, Number: uint64(n), Turns: map[string][]uint64{held.Controller: {held.Sequence}}})
					}
					listen(h, Interval)
					waited := time.Since(began)
					if h.claim(held) {
						if waited < claimBelieved {
							t.Errorf("a claim is believed for %v only", waited)
						}
						return
					}
					if waited > claimBelieved+2*Expiry {
						t.Fatalf("a claim is believed for %v", waited)
					}
				}
			})
		})
	}
}

// A writer that has released a turn and gets it again is believed anew.
func TestAClaimMadeAnewIsBelievedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding()
		h.Release(held)
		h.take(held, false)
		n, began := uint64(0), time.Now()
		for time.Since(began) < claimBelieved-time.Second {
			n++
			hears(h, n, held.Sequence)
			listen(h, Interval)
			if h.claim(held) {
				t.Fatal("claimed what another one has in flight")
			}
		}
		for again := time.Now(); time.Since(again) <= redeliveryPause+Interval; {
			n++
			hears(h, n)
			listen(h, Interval)
		}
		for again := time.Now(); time.Since(again) < claimBelieved-time.Second; {
			n++
			hears(h, n, held.Sequence)
			listen(h, Interval)
			if h.claim(held) {
				t.Fatal("claimed what another one has in flight again")
			}
		}
	})
}

// A writer gives a turn up before others stop believing its claim.
func TestATurnIsLetGoWhileItIsBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		company bool
		want    Status
	}{"alone": {false, Held}, "in company": {true, Lost}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, began := holding(), time.Now()
				for n := uint64(1); time.Since(began) < claimBelieved-2*UncertainFor; n++ {
					if c.company {
						hears(h, n)
					}
					listen(h, Interval)
				}
				if got := h.standing(held); got != c.want {
					t.Errorf("after %v the claim is %d, want %d", time.Since(began), got, c.want)
				}
			})
		})
	}
}

// A writer beyond the bound may claim a turn after the turn came here, or before.
func TestWhoIsNotRememberedMayHaveATurn(t *testing.T) {
	for name, before := range map[string]bool{"after": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newParty("a")
				for range 4 {
					for ghost := range mostOthers {
						h.hear(report.Heartbeat{Writer: time.Duration(ghost).String(), Number: h.number})
					}
					listen(h, Interval)
				}
				if before {
					hears(h, 1, held.Sequence)
				}
				h.take(held, false)
				if !before {
					hears(h, 1, held.Sequence)
				}
				if h.claim(held) {
					t.Error("claimed what a writer has in flight for which there was no room")
				}
				time.Sleep(Interval)
				hears(h, 2)
				for range 5 { // the other writer has released its turns
					listen(h, Interval)
				}
				if !h.claim(held) {
					t.Error("a turn that no writer has cannot be claimed")
				}
			})
		})
	}
}

// A copy of an old heartbeat does not renew a withdrawn claim.
func TestACopyOfAHeartbeatIsNotSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, other := holding(), Place{held.Controller, 8}
		listen(h, Interval)
		hears(h, 50, other.Sequence)
		if h.claim(other) {
			t.Fatal("claimed what another writer has")
		}
		hears(h, 51)
		listen(h, Interval)
		for range 5 {
			hears(h, 50, other.Sequence)
			listen(h, Interval/2)
		}
		if !h.claim(other) || h.others["b"].number != 51 {
			t.Error("a claim that was withdrawn counts when it is repeated")
		}
	})
}
