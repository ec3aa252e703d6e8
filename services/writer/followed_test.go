package writer

import (
	"log/slog"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

func anExecutor(t *testing.T) *executor {
	t.Helper()
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	if err := b.EnsureController(t.Context(), "rs"); err != nil {
		t.Fatal(err)
	}
	return &executor{
		Service: &Service{config: Config{Bus: b, Log: slog.New(slog.DiscardHandler)}, inFlight: newInFlightTurns("a", newMetrics())}, profile: &Profile{Name: "rs"},
	}
}

// Only the later one of two turns of a key and lane is carried out.
func TestALaterTurnTakesAnEarlierOnesPlace(t *testing.T) {
	t.Parallel()
	w := anExecutor(t)
	key := events.Key{Namespace: "ns", Name: "web"}
	stored := func(lane events.Lane, expect uint64) events.Message {
		t.Helper()
		m, err := events.EncodeJSON(events.Turn{Controller: "rs", Key: key, Lane: lane}, events.Trace{})
		if err != nil {
			t.Fatal(err)
		}
		m.Subject = subject.Turn("rs", lane, key)
		sequence, err := w.config.Bus.Store(t.Context(), m, expect)
		if err != nil {
			t.Fatal(err)
		}
		found, ok, err := w.config.Bus.At(t.Context(), subject.TurnStream("rs"), sequence)
		if err != nil || !ok {
			t.Fatalf("turn %d: there %t, %v", sequence, ok, err)
		}
		return found
	}
	first := stored(events.LaneWrite, 0)
	stored(events.LaneStatus, 0) // of the other lane
	check := func(m events.Message, want bool) {
		t.Helper()
		if got, err := w.hasLater(t.Context(), m); err != nil || got != want {
			t.Errorf("turn %d is followed by another one: %t (%v), want %t", m.Sequence, got, err, want)
		}
	}
	check(first, false)
	second := stored(events.LaneWrite, first.Sequence)
	check(first, true)
	check(second, false)
}

// silent is a delivery that must not be answered.
type silent struct {
	nothing
	*testing.T
}

func (s silent) Ack() { s.Error("a turn that may be in another hand was answered") }

// A turn whose claim was lost is not answered: the bus would take the answer for that of the
// writer that has it now.
func TestALostTurnIsNotAnswered(t *testing.T) {
	t.Parallel()
	var d bus.Delivery = silent{T: t}
	anExecutor(t).dropLost(events.Message{Sequence: 7})(d)
}
