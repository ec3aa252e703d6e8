package shell

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// edges is a bus on which only the ends of a kind's log and state stream can be
// looked at.
type edges struct {
	markless
	log, state shape
}

// shape of a stream: the last sequence that it gave, and the last message that it
// still holds.
type shape struct{ last, held uint64 }

func (b edges) of(stream string) shape {
	if stream == subject.LogStream(kinds.Pods.Name) {
		return b.log
	}
	return b.state
}

func (b edges) StreamState(_ context.Context, stream string) (bus.State, error) {
	s := b.of(stream)
	first := uint64(1)
	if s.held == 0 {
		first = s.last + 1
	}
	return bus.State{First: first, Last: s.last, Messages: s.held}, nil
}

func (b edges) At(_ context.Context, stream string, at uint64) (events.Message, bool, error) {
	if at > b.of(stream).held {
		return events.Message{}, false, nil
	}
	return events.Message{Sequence: at, Time: epoch}, true, nil
}

func TestEndIsThatOfLogAndState(t *testing.T) {
	for name, tc := range map[string]struct {
		log, state shape
		want       edge
	}{
		"both whole":                    {shape{5, 5}, shape{5, 5}, edge{sequence: 5, stored: epoch}},
		"state lags":                    {shape{5, 5}, shape{2, 2}, edge{sequence: 5, stored: epoch}},
		"state has nothing yet":         {shape{5, 5}, shape{0, 0}, edge{sequence: 5, stored: epoch}},
		"log has expired":               {shape{5, 0}, shape{5, 5}, edge{sequence: 5, stored: epoch}},
		"the log's end has expired":     {shape{5, 3}, shape{5, 5}, edge{sequence: 5, stored: epoch}},
		"the end of both has expired":   {shape{5, 3}, shape{5, 4}, edge{sequence: 4, stored: epoch}},
		"the log's end is not in state": {shape{5, 4}, shape{1, 1}, edge{sequence: 4, stored: epoch}},
		"everything has expired":        {shape{5, 0}, shape{5, 0}, edge{spent: true}},
		"nothing was ever told":         {shape{0, 0}, shape{0, 0}, edge{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := end(t.Context(), edges{log: tc.log, state: tc.state}, kinds.Pods.Name); err != nil || got != tc.want {
				t.Errorf("the end is %+v (%v), want %+v", got, err, tc.want)
			}
		})
	}
}

// Desks open when everything has been told, and not before.
func TestOpensWhenToldWhole(t *testing.T) {
	pod := func(at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", at), "", int(at)), at)
	}
	again := func(at uint64, census string) events.Message {
		m := pod(at)
		m.Header[events.HeaderSync] = []string{"true"}
		if census != "" {
			m.Header[events.HeaderCensus] = []string{census}
		}
		return m
	}
	whole := func(pods ...uint64) string {
		var tally events.Tally
		for _, at := range pods {
			d, err := events.DecodeDelta(events.Ref{Kind: "pods", Namespace: aPod("", "", 0).GetNamespace(), Name: fmt.Sprint("p", at)}, pod(at))
			if err != nil {
				t.Fatal(err)
			}
			tally.Fold(d)
		}
		return tally.Census().String()
	}
	long := time.Now().Add(-2 * listedBefore)
	for name, tc := range map[string]struct {
		goal  edge
		told  []events.Message
		want  bool
		state shape
	}{
		"never listed":                        {edge{}, nil, false, shape{}},
		"listed, nothing there":               {edge{sequence: 1, stored: time.Now()}, []events.Message{markAt(kinds.Pods.Kind, "1", 1)}, true, shape{}},
		"being listed":                        {edge{sequence: 2, stored: time.Now()}, []events.Message{pod(1), pod(2)}, false, shape{}},
		"listed":                              {edge{sequence: 2, stored: time.Now()}, []events.Message{pod(1), pod(2), markAt(kinds.Pods.Kind, "2", 3)}, true, shape{}},
		"listed, half folded":                 {edge{sequence: 9, stored: time.Now()}, []events.Message{pod(1), markAt(kinds.Pods.Kind, "2", 3)}, false, shape{}},
		"its mark has expired":                {edge{sequence: 2, stored: long}, []events.Message{pod(1), pod(2)}, true, shape{}},
		"its mark has expired, half folded":   {edge{sequence: 2, stored: long}, []events.Message{pod(1)}, false, shape{}},
		"being listed anew":                   {edge{sequence: 2, stored: time.Now()}, []events.Message{markAt(kinds.Pods.Kind, "1", 1), again(2, "")}, false, shape{}},
		"said again, all there":               {edge{sequence: 2, stored: time.Now()}, []events.Message{markAt(kinds.Pods.Kind, "1", 1), again(2, whole(2))}, true, shape{}},
		"nothing there, its mark has expired": {edge{spent: true}, nil, true, shape{}},
		"its end has expired":                 {edge{sequence: 2, stored: long}, []events.Message{pod(1), pod(2)}, false, shape{9, 2}},
		"its end has expired, all counted":    {edge{sequence: 2, stored: long}, []events.Message{pod(1), again(2, whole(1, 2))}, false, shape{9, 2}},
		"more is to come":                     {edge{sequence: 2, stored: long}, []events.Message{pod(1), again(2, whole(1, 2))}, true, shape{9, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			f := Follower{Bus: edges{state: tc.state}, Memory: NewMemory(), Kind: kinds.Pods.Kind, goal: tc.goal}
			f.Memory.Follow(f.Kind)
			f.Memory.Fold(f.Kind.Name, tc.told)
			if err := f.open(t.Context()); f.opened != tc.want || err != nil {
				t.Errorf("opened: %v, want %v (%v)", f.opened, tc.want, err)
			}
		})
	}
}
