package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// library is a bus that answers LastOf and stores turns. An answer waits until it is released.
type library struct {
	bus.Bus // nil: the loop calls no other method
	turns   map[string]events.Message
	refuse  error

	mu     sync.Mutex
	asked  []string // stream and number of subjects
	states int
	stored []events.Message
	hold   chan struct{} // nil: answers at once
}

func (b *library) LastOf(_ context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	b.mu.Lock()
	hold := b.hold
	b.asked = append(b.asked, fmt.Sprint(stream, " ", len(subjects)))
	b.mu.Unlock()
	if hold != nil {
		<-hold
	}
	found := map[string]events.Message{}
	for _, s := range subjects {
		if m, ok := b.turns[s]; ok {
			found[s] = m
		}
	}
	return found, b.refuse
}

func (b *library) StreamState(context.Context, string) (bus.State, error) {
	b.states++
	return bus.State{}, nil
}

func (b *library) Store(_ context.Context, m events.Message, _ uint64) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored = append(b.stored, m)
	return uint64(len(b.stored)), nil
}

// multitude is a loop with many sets that all want pods, and that have no past.
func multitude(b bus.Bus, sets int) *Loop {
	memory := cache.New()
	memory.Follow(kinds.ReplicaSets.Kind)
	memory.Follow(kinds.Pods.Kind)
	memory.Register(toy().Describe())
	for i := range sets {
		set := aSet(fmt.Sprint("web-", i), 1, 1, 0, "")
		memory.Fold(kinds.ReplicaSets.Name, []events.Message{delta(kinds.ReplicaSets.Kind, events.Is, set, uint64(i+1))})
	}
	l := NewLoop(b, toy(), memory, Settings{}, nil)
	l.engine.AskAll()
	return l
}

// TestACrowdIsRecalledTogether: many keys make few requests, a bounded number of which is in
// flight, and each key has its turn.
func TestACrowdIsRecalledTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sets = 2000
		b := &library{hold: make(chan struct{})}
		l := multitude(b, sets)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		synctest.Wait()
		if len(b.asked) != maxRecalls || len(b.stored) > 0 {
			t.Errorf("before any answer the loop asks %q, want 4 questions and no stored turn", b.asked)
		}
		close(b.hold)
		synctest.Wait()
		cancel()
		<-done
		outcomes, lanes := 0, 0
		for _, question := range b.asked {
			var n int
			stream, number, _ := strings.Cut(question, " ")
			if _, err := fmt.Sscan(number, &n); err != nil || n > recallMost {
				t.Errorf("%s is asked about %s lanes at once (%v), want 256 at most", stream, number, err)
			}
			if lanes += n; stream == subject.OutcomeStream("toy") {
				outcomes++
			}
		}
		// A write and a report of each, their turns and their outcomes.
		if least := (2*sets + recallMost - 1) / recallMost; lanes != 4*sets || outcomes < least || outcomes > least+2*maxRecalls {
			t.Errorf("the loop asked for outcomes %d times, and for %d lanes in all; want about %d, and %d", outcomes, lanes, least, 4*sets)
		}
		acts := 0
		for _, m := range b.stored {
			if _, lane, _, err := subject.ParseTurn(m.Subject); err == nil && lane == events.LaneWrite {
				acts++
			}
		}
		if acts != sets {
			t.Errorf("%d write turns were stored, want %d", acts, sets)
		}
	})
}

// TestWhatIsSoughtAtTheEnd: a loop that ends still recalls the waiting lanes, so that it does
// not wait for answers that will not come.
func TestWhatIsSoughtAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &library{}
		l := multitude(b, 2)
		for l.engine.Step() {
		}
		if len(l.sought) != 4 || l.engine.Storing() != 4 {
			t.Fatalf("the lanes to recall are %v, want 4", l.sought)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l.Run(ctx)
		if len(b.asked) != 2 || l.engine.Storing() > 0 {
			t.Errorf("when the loop ends it has asked %q and waits for %d answers, want 2 questions and no answer to come", b.asked, l.engine.Storing())
		}
	})
}

// TestAFailedRecallIsTriedAgain: each of the keys, with its backoff.
func TestAFailedRecallIsTriedAgain(t *testing.T) {
	b := &library{refuse: errors.New("away")}
	l := multitude(b, 3)
	for l.engine.Step() {
	}
	l.recallSought()
	say := <-l.inbox
	say()
	if l.engine.Tally().Retries != 3 || l.recalls != 0 || l.engine.Storing() != 0 {
		t.Errorf("after a failed recall there are %d retries, %d recalls under way, %d answers to come; want 3, 0, 0", l.engine.Tally().Retries, l.recalls, l.engine.Storing())
	}
}

// TestEachLaneHasItsOwnPast: the answers of one batch are not mixed up, and the state of the
// outcome stream is read once.
func TestEachLaneHasItsOwnPast(t *testing.T) {
	b := &library{turns: map[string]events.Message{}}
	var lanes []laneOf
	for i := range 9 {
		at := laneOf{events.Key{Namespace: "default", Name: fmt.Sprint("web-", i)}, []events.Lane{events.LaneWrite, events.LaneStatus, events.LanePark}[i%3]}
		lanes = append(lanes, at)
		if i%2 == 0 {
			m, err := events.EncodeJSON(events.Turn{Controller: "toy", Key: at.key, Lane: at.lane}, events.Trace{})
			if err != nil {
				t.Fatal(err)
			}
			m.Sequence = uint64(i + 1)
			b.turns[subject.Turn("toy", at.lane, at.key)] = m
		}
	}
	pasts, err := recall(t.Context(), b, "toy", lanes, Signatures{})
	if err != nil || len(pasts) != len(lanes) || b.states != 1 {
		t.Fatalf("recall returns %d pasts and asked %d times how far the outcomes reach back (%v), want one for each lane, and once", len(pasts), b.states, err)
	}
	for i, past := range pasts {
		known := past.Turn != nil && past.Turn.Key == lanes[i].key && past.Turn.Lane == lanes[i].lane && past.Sequence == uint64(i+1)
		if known != (i%2 == 0) || past.Outcome != nil {
			t.Errorf("the past of %v is %+v, want a turn for every second lane, and no outcome", lanes[i], past)
		}
	}
	if want := []string{"TURN_toy 9", "OUTCOME_toy 9"}; !slices.Equal(b.asked, want) {
		t.Errorf("recall asked %q, want %q", b.asked, want)
	}
}

// A batch has at most 256 lanes, and four batches are in flight at most; a single lane is
// recalled, too.
func TestHowMuchIsRecalledTogether(t *testing.T) {
	if recallMost != 256 || maxRecalls != 4 {
		t.Errorf("%d lanes are recalled together, in %d batches at once; want 256 and 4", recallMost, maxRecalls)
	}
	b := &library{}
	l := multitude(b, 0)
	(&busIO{l}).Recall(web, events.LanePark)
	l.recallSought()
	(<-l.inbox)()
	if want := []string{"TURN_toy 1", "OUTCOME_toy 1"}; !slices.Equal(b.asked, want) {
		t.Errorf("it asked %q, want %q", b.asked, want)
	}
}

// A missing outcome is not reported as refused.
func TestNoOutcomeIsNoForgery(t *testing.T) {
	keys, err := sign.ProvideFrom(t.TempDir(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	trust, err := sign.TrustFile(keys.Outcomes.Public, nil)
	if err != nil {
		t.Fatal(err)
	}
	by := Signatures{Outcomes: trust, Refused: func(events.Message, error) { t.Error("a missing outcome is reported as refused") }}
	if past := by.pastOf(events.Message{}, false, events.Message{Time: time.Now()}); past.Outcome != nil || past.Sequence != 0 {
		t.Errorf("the past without a turn and an outcome is %+v, want an empty one", past)
	}
}

// A turn has taken the sequence of a lost one if the outcome cannot be the turn's own.
func TestATurnInThePlaceOfALostOne(t *testing.T) {
	turn := &events.Turn{Now: epoch}
	message := events.Message{Sequence: 7, Time: epoch}
	stored := func(after time.Duration) events.Message { return events.Message{Time: epoch.Add(after)} }
	for what, c := range map[string]struct {
		turn    *events.Turn
		outcome events.Message
		of      events.Outcome
		is      bool
	}{
		"an earlier outcome":              {turn, stored(0), events.Outcome{Turn: 6}, false},
		"its own":                         {turn, stored(0), events.Outcome{Turn: 7, Decided: epoch}, false},
		"its own, that does not say when": {turn, stored(0), events.Outcome{Turn: 7}, false},
		"decided at another moment":       {turn, stored(0), events.Outcome{Turn: 7, Decided: epoch.Add(1)}, true},
		"stored before it":                {turn, stored(-time.Second - 1), events.Outcome{Turn: 7, Decided: epoch}, true},
		"stored a second before it":       {turn, stored(-time.Second), events.Outcome{Turn: 7, Decided: epoch}, false},
		"of a turn that cannot be read":   {nil, stored(0), events.Outcome{Turn: 7, Decided: epoch.Add(1)}, false},
		"of a later turn, decided before": {turn, stored(0), events.Outcome{Turn: 9, Decided: epoch.Add(-time.Second - 1)}, true},
		"of a later turn":                 {turn, stored(0), events.Outcome{Turn: 9, Decided: epoch.Add(-time.Second)}, false},
		"of a later turn, at any time":    {turn, stored(0), events.Outcome{Turn: 9}, false},
	} {
		if supersedes(message, c.turn, c.outcome, c.of) != c.is {
			t.Errorf("%s: an outcome supersedes the turn: %t, want %t", what, !c.is, c.is)
		}
	}
}

// cameOf is the outcome of a turn of the write lane that was decided at a moment.
func cameOf(turn uint64, decided time.Time) events.Outcome {
	return events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: turn, Decided: decided}
}

// The newest outcome of a lane may answer a turn that its stream has lost. If the last turn
// took that sequence, the outcome says nothing about it. If the lost turn was behind the last
// turn and decided after it, the last turn was settled before.
func TestARecallTellsWhatALostTurnSettled(t *testing.T) {
	earlier, later := epoch.Add(-time.Minute), epoch.Add(time.Second)
	for name, tc := range map[string]struct {
		o      events.Outcome
		stored time.Duration // after the turn
		want   uint64
	}{
		"its own":                   {cameOf(10, epoch), 0, 10},
		"of one lost in its place":  {cameOf(10, earlier), 0, 9},
		"of an older version's":     {cameOf(10, time.Time{}), 0, 10},
		"stored long before it":     {cameOf(12, later), -time.Minute, 9},
		"of one lost behind it":     {cameOf(12, later), time.Second, 12},
		"of one lost before it was": {cameOf(12, earlier), 0, 9},
		"of the one before":         {cameOf(8, earlier), 0, 8},
	} {
		b := &library{turns: map[string]events.Message{}}
		put := func(on string, body any, sequence uint64, at time.Time) {
			m, err := events.EncodeJSON(body, events.Trace{})
			if err != nil {
				t.Fatal(err)
			}
			m.Sequence, m.Time = sequence, at
			b.turns[on] = m
		}
		put(subject.Turn("toy", events.LaneWrite, web), events.Turn{Controller: "toy", Key: web, Lane: events.LaneWrite, Now: epoch}, 10, epoch)
		put(subject.Outcome("toy", events.LaneWrite, web), tc.o, 1, epoch.Add(tc.stored))
		pasts, err := recall(t.Context(), b, "toy", []laneOf{{web, events.LaneWrite}}, Signatures{})
		if err != nil {
			t.Fatal(err)
		}
		if p := pasts[0]; p.Sequence != 10 || p.Outcome == nil || p.Outcome.Turn != tc.want {
			t.Errorf("the newest outcome is %s: recalled are turn %d and the outcome %+v, want turn 10 and the outcome of turn %d", name, p.Sequence, p.Outcome, tc.want)
		}
	}
}
