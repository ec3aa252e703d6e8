package writer

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/writer/claim"
)

var held = claim.Place{Controller: "rs", Sequence: 7}

// holding returns the flights of a writer that has listened for a while and has a turn.
func holding() *inFlightTurns {
	h := newInFlightTurns("a", newMetrics())
	for range 3 {
		listen(h, claim.Interval)
	}
	h.take(held, nothing{}, true, func() {})
	return h
}

// hears delivers a heartbeat of another writer.
func hears(h *inFlightTurns, number uint64, turns ...uint64) {
	h.receive(report.Heartbeat{Writer: "b", Number: number, Turns: map[string][]uint64{held.Controller: turns}}.Encode())
}

// A writer begins a turn that may have been begun before only after its own claim has come back,
// and if it has heard no other writer claim the turn.
func TestAClaimIsAnnounced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others []uint64 // turns that another writer claims before our claim comes back
		cut    bool
		want   bool
	}{
		"no other writer is there":        {nil, false, true},
		"another writer has it":           {[]uint64{held.Sequence}, false, false},
		"another writer has another turn": {[]uint64{8}, false, true},
		"the writer is stopping":          {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newInFlightTurns("a", newMetrics())
				for range 4 {
					listen(h, claim.Interval)
				}
				h.take(held, nothing{}, false, func() {})
				if !h.claim(held) {
					t.Fatal("cannot claim what is free")
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				answer := make(chan bool, 1)
				go func() { answer <- h.awaitAnnounced(ctx, held) }()
				synctest.Wait()
				select {
				case <-answer:
					t.Fatal("the writer goes on before its turn was announced")
				default:
				}
				hears(h, 1, c.others...)
				if c.cut {
					stop()
				} else {
					listen(h, claim.Interval)
				}
				if got := <-answer; got != c.want {
					t.Errorf("the turn is this writer's: %t, want %t", got, c.want)
				}
			})
		})
	}
}
