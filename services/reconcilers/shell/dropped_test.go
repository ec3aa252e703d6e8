package shell

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// lastTurn is a bus that holds one turn, and the state of the outcome stream.
type lastTurn struct {
	turn     events.Message
	outcome  *events.Outcome
	outcomes bus.State
}

func (s lastTurn) LastOf(_ context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	if stream == subject.TurnStream("toy") {
		return map[string]events.Message{subjects[0]: s.turn}, nil
	}
	if s.outcome == nil {
		return nil, nil
	}
	m, err := events.EncodeJSON(*s.outcome, events.Trace{})
	m.Sequence, m.Time = 1, s.turn.Time.Add(time.Second)
	return map[string]events.Message{subjects[0]: m}, err
}

func (s lastTurn) StreamState(context.Context, string) (bus.State, error) { return s.outcomes, nil }

// TestATurnWhoseOutcomeWasDropped: outcomes are bounded by size, and may be dropped before
// their turns are. A key that has been quiet for long must not wait for a dropped outcome. A
// key whose turn was stored just now must wait, and so must one whose turn the outcome stream
// reaches back to.
func TestATurnWhoseOutcomeWasDropped(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	late, later := at.Add(outcomesSince), at.Add(2*outcomesSince)
	for name, c := range map[string]struct {
		outcome *events.Outcome
		state   bus.State
		want    bool
	}{
		"pushed out":                     {nil, bus.State{Last: 9, Messages: 2, Begins: late, Now: later}, true},
		"all of them are gone":           {nil, bus.State{Last: 9, Now: later}, true},
		"it is there":                    {&events.Outcome{Turn: 10}, bus.State{Last: 9, Messages: 2, Begins: late, Now: later}, false},
		"that of an earlier turn":        {&events.Outcome{Turn: 4}, bus.State{Last: 9, Messages: 2, Begins: at.Add(-time.Hour), Now: later}, false},
		"asked for just now":             {nil, bus.State{Last: 9, Messages: 2, Begins: at.Add(time.Minute), Now: at.Add(2 * time.Minute)}, false},
		"it never came":                  {nil, bus.State{Last: 9, Messages: 2, Begins: at.Add(-time.Hour), Now: later}, false},
		"there has been none as yet":     {nil, bus.State{Now: later}, false},
		"as old as the oldest, or about": {nil, bus.State{Last: 9, Messages: 2, Begins: at.Add(time.Second / 2), Now: later}, false},
	} {
		s := lastTurn{events.Message{Sequence: 10, Time: at}, c.outcome, c.state}
		pasts, err := recall(t.Context(), s, "toy", []laneOf{{web, events.LaneWrite}}, Signatures{})
		if err != nil {
			t.Fatal(err)
		}
		if past := pasts[0]; past.Dropped != c.want || past.Sequence != 10 {
			t.Errorf("%s: the outcome of the turn is recalled as dropped: %t, want %t", name, past.Dropped, c.want)
		}
	}
}
