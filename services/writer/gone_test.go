package writer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/claim"
)

// If the stream loses a turn with its end while the bus is away, the writer does not go on with
// the turn: the reconcilers ask its key again and decide without it.
func TestALostTurnIsNotGoneOnWith(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stored bool
		off    time.Duration // from the turn in flight to the turn in the stream
		want   bool
	}{
		"it is still there":               {true, 0, true},
		"it is lost":                      {false, 0, false},
		"another one has taken its place": {true, -time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, h := anExecutor(t), newInFlightTurns("a", newMetrics())
				w.inFlight = h
				turn := events.Turn{Controller: "rs", Key: events.Key{Namespace: "ns", Name: "web"}, Lane: events.LaneWrite, Now: time.Now()}
				m, err := events.EncodeJSON(turn, events.Trace{})
				if err != nil {
					t.Fatal(err)
				}
				m.Subject = subject.Turn("rs", turn.Lane, turn.Key)
				m.Stream, m.Sequence, m.Time = subject.TurnStream("rs"), 1, time.Now()
				if tc.stored {
					if _, err := w.config.Bus.Store(t.Context(), m, 0); err != nil {
						t.Fatal(err)
					}
					if m, _, err = w.config.Bus.At(t.Context(), m.Stream, 1); err != nil {
						t.Fatal(err)
					}
					m.Time = m.Time.Add(tc.off)
				}
				for range 3 {
					listen(h, claim.Interval)
				}
				h.take(claim.Place{Controller: "rs", Sequence: 1}, nothing{}, true, func() {})
				time.Sleep(claim.Expiry) // the bus is away
				for range 4 {
					listen(h, claim.Interval)
				}
				if got := w.claimTurn(t.Context(), m, turn)(); got != tc.want {
					t.Errorf("the turn goes on: %t, want %t", got, tc.want)
				}
			})
		})
	}
}
