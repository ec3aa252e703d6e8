package writer

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/claim"
)

// A stream that has lost its end assigns the same sequences a second time. The outcome of the lost
// turn does not settle the turn that took its sequence, even if the writer that had the lost turn
// in flight stores the outcome afterwards.
func TestTheOutcomeOfALostTurnSettlesNoOther(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tc := range map[string]struct {
		decided time.Time
		want    bool
	}{
		"of this turn":          {now, true},
		"of the one before":     {now.Add(-time.Second), false},
		"of an older version's": {time.Time{}, true},
	} {
		w, key := anExecutor(t), events.Key{Namespace: "ns", Name: "web"}
		put := func(body any, on string) events.Message {
			t.Helper()
			m, err := events.EncodeJSON(body, events.Trace{})
			if err != nil {
				t.Fatal(err)
			}
			m.Subject = on
			if _, err := w.config.Bus.Put(t.Context(), m, on); err != nil {
				t.Fatal(err)
			}
			return m
		}
		put(events.Turn{Controller: "rs", Key: key, Lane: events.LaneWrite, Now: now}, subject.Turn("rs", events.LaneWrite, key))
		turn, ok, err := w.config.Bus.At(t.Context(), subject.TurnStream("rs"), 1)
		if err != nil || !ok {
			t.Fatalf("there %t, %v", ok, err)
		}
		put(events.Outcome{Controller: "rs", Key: key, Lane: events.LaneWrite, Turn: 1, Decided: tc.decided}, subject.Outcome("rs", events.LaneWrite, key))
		if got, err := w.hasOutcome(t.Context(), turn, events.LaneWrite, key); err != nil || got != tc.want {
			t.Errorf("an outcome %s settles it: %t (%v), want %t", name, got, err, tc.want)
		}
	}
}

// dated returns a delivery of a turn that was stored at a given time.
type dated struct {
	nothing
	stored time.Time
	later  *int
}

func (d dated) Message() events.Message    { return events.Message{Sequence: 7, Time: d.stored} }
func (d dated) NakWithDelay(time.Duration) { *d.later++ }

// A turn that took the sequence of a lost one that is still in flight here waits for it: the lost
// turn's answer must not acknowledge it.
func TestATurnInTheLostOnesPlaceWaits(t *testing.T) {
	t.Parallel()
	h, at := newInFlightTurns("a", newMetrics()), claim.Place{Controller: "rs", Sequence: 7}
	hold, later, stored := make(chan struct{}), 0, time.Now()
	var carried atomic.Int64
	carry := func() { carried.Add(1); <-hold }
	h.take(at, dated{stored: stored, later: &later}, true, carry)
	h.take(at, dated{stored: stored.Add(time.Second), later: &later}, true, carry)
	if later != 1 {
		t.Errorf("the turn in its place was put off %d times, want once", later)
	}
	h.answer(at, func(d bus.Delivery) {
		if !d.Message().Time.Equal(stored) {
			t.Error("the turn in its place is answered with it")
		}
	})
	h.take(at, dated{stored: stored.Add(time.Second), later: &later}, false, carry)
	close(hold)
	h.turns.Wait()
	if n := carried.Load(); n != 2 || later != 1 {
		t.Errorf("%d turns were carried out, want both", n)
	}
}
