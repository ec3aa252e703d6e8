package shell

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// crooked is a bus one of whose streams holds less than it should: a state
// stream that lags, or a log whose messages have expired.
type crooked struct {
	bus.Bus
	stream string
	last   uint64 // what it holds
}

func (c crooked) StreamState(ctx context.Context, stream string) (bus.State, error) {
	s, err := c.Bus.StreamState(ctx, stream)
	if stream == c.stream {
		s.Messages = min(s.Messages, c.last)
		if strings.HasPrefix(stream, "STATE_") {
			s.Last = c.last // a log remembers what it has dropped
		}
	}
	return s, err
}

func (c crooked) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if stream == c.stream && sequence > c.last {
		return events.Message{}, false, nil
	}
	return c.Bus.At(ctx, stream, sequence)
}

func TestEndIsThatOfLogAndState(t *testing.T) {
	b := memory.New(memory.Options{})
	defer b.Close()
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	log, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		m := delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", i), "", i+1), 0)
		if err := log.Append(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	state, logName := subject.StateStream(kinds.Pods.Name), subject.LogStream(kinds.Pods.Name)
	for name, tc := range map[string]struct {
		bus  bus.Bus
		want uint64
	}{
		"both whole":                    {b, 5},
		"state lags":                    {crooked{b, state, 2}, 5},
		"state has nothing yet":         {crooked{b, state, 0}, 5},
		"log has expired":               {crooked{b, logName, 0}, 5},
		"the log's end has expired":     {crooked{b, logName, 3}, 5},
		"the end of both has expired":   {crooked{crooked{b, logName, 3}, state, 4}, 4},
		"the log's end is not in state": {crooked{crooked{b, logName, 4}, state, 1}, 4},
		"everything has expired":        {crooked{crooked{b, logName, 0}, state, 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := end(t.Context(), tc.bus, kinds.Pods.Name)
			if err != nil || got.sequence != tc.want || got.stored.IsZero() != (tc.want == 0) || got.spent != (tc.want == 0) {
				t.Errorf("the end is %d at %v (%v), want %d and its time", got.sequence, got.stored, err, tc.want)
			}
		})
	}
}

// Desks open when everything has been told, and not before.
func TestOpensWhenToldWhole(t *testing.T) {
	pod := func(at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", at), "", int(at)), at)
	}
	long := time.Now().Add(-2 * listedBefore)
	for name, tc := range map[string]struct {
		goal edge
		told []events.Message
		want bool
	}{
		"never listed":                        {edge{}, nil, false},
		"listed, nothing there":               {edge{sequence: 1, stored: time.Now()}, []events.Message{markAt(kinds.Pods.Kind, "1", 1)}, true},
		"being listed":                        {edge{sequence: 2, stored: time.Now()}, []events.Message{pod(1), pod(2)}, false},
		"listed":                              {edge{sequence: 2, stored: time.Now()}, []events.Message{pod(1), pod(2), markAt(kinds.Pods.Kind, "2", 3)}, true},
		"listed, half folded":                 {edge{sequence: 9, stored: time.Now()}, []events.Message{pod(1), markAt(kinds.Pods.Kind, "2", 3)}, false},
		"its mark has expired":                {edge{sequence: 2, stored: long}, []events.Message{pod(1), pod(2)}, true},
		"its mark has expired, half folded":   {edge{sequence: 2, stored: long}, []events.Message{pod(1)}, false},
		"nothing there, its mark has expired": {edge{spent: true}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := Follower{Memory: NewMemory(), Kind: kinds.Pods.Kind, goal: tc.goal}
			f.Memory.Follow(f.Kind)
			f.Memory.Fold(f.Kind.Name, tc.told)
			if f.open(); f.opened != tc.want {
				t.Errorf("opened: %v, want %v", f.opened, tc.want)
			}
		})
	}
}
