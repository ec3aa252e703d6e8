package shell

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/engine"
)

// The loop recalls keys in batches. When an owner of a thousand objects is deleted, the engine
// looks at a thousand keys that it does not know, and most of them have no turn in the streams.

const (
	// recallMost is the most lanes in one batch.
	recallMost = 256
	// maxRecalls bounds the batches in flight. The lanes that come meanwhile form the next
	// batch.
	maxRecalls = 4
)

// laneOf is a lane of a key.
type laneOf struct {
	key  events.Key
	lane events.Lane
}

// recallBus is the part of a bus that a recall uses.
type recallBus interface {
	bus.LastReader
	StreamState(ctx context.Context, stream string) (bus.State, error)
}

// recall looks up the past of each lane in the streams, in the order of lanes. It reads the
// last turns before the last outcomes: an outcome stored in between answers a turn that was
// read or a later one, so none is missing.
func recall(ctx context.Context, b recallBus, controller string, lanes []laneOf, by Signatures) ([]engine.Past, error) {
	asked, answers := make([]string, len(lanes)), make([]string, len(lanes))
	for i, l := range lanes {
		asked[i], answers[i] = subject.Turn(controller, l.lane, l.key), subject.Outcome(controller, l.lane, l.key)
	}
	turns, err := b.LastOf(ctx, subject.TurnStream(controller), asked)
	if err != nil {
		return nil, fmt.Errorf("recall turns of %s: %w", controller, err)
	}
	outcomes, err := b.LastOf(ctx, subject.OutcomeStream(controller), answers)
	if err != nil {
		return nil, fmt.Errorf("recall outcomes of %s: %w", controller, err)
	}
	pasts, reach := make([]engine.Past, len(lanes)), outcomeReach{bus: b, controller: controller}
	for i := range lanes {
		turn, some := turns[asked[i]]
		past := by.pastOf(turn, some, outcomes[answers[i]])
		if open := past.Outcome == nil || past.Outcome.Turn < past.Sequence; some && open {
			if past.Dropped, err = reach.dropped(ctx, turn); err != nil {
				return nil, err
			}
		}
		pasts[i] = past
	}
	return pasts, nil
}

// pastOf is the past of a lane, from its last turn, if there is one, and its last outcome.
func (s Signatures) pastOf(turn events.Message, some bool, outcome events.Message) (past engine.Past) {
	if some {
		past.Sequence = turn.Sequence
		// A turn that cannot be decoded, or that no reconciler signed, still has its place in
		// the order.
		if t := new(events.Turn); s.acceptsTurn(turn) && events.DecodeJSON(turn, t) == nil {
			past.Turn = t
		}
	}
	// An outcome that cannot be decoded, or that no writer signed, counts as none: the turn
	// will be stored again and the writer will find it done. And the refusal of a forged turn
	// says nothing about the turns before it.
	if o := new(events.Outcome); outcome.Sequence > 0 && s.acceptsOutcome(outcome) && events.DecodeJSON(outcome, o) == nil && (past.Turn != nil || !o.Forged()) {
		if some && supersedes(turn, past.Turn, outcome, *o) {
			o.Turn = turn.Sequence - 1 // it answers a lost turn, whose sequence this turn has taken
		}
		past.Outcome = o
	}
	return past
}

// maxClockSkew is the largest difference allowed between the clocks of reconcilers.
const maxClockSkew = time.Second

// supersedes reports whether the last turn of a lane was stored after the stream had lost its
// end, and with it the turn that the outcome answers. If the outcome answers a lost turn at a
// later sequence that was decided after the last turn, the last turn is settled, too.
func supersedes(m events.Message, turn *events.Turn, outcome events.Message, o events.Outcome) bool {
	switch {
	case o.Turn < m.Sequence:
		return false
	case bus.Before(outcome, m):
		return true
	case turn == nil || o.Decided.IsZero():
		return false
	case o.Turn == m.Sequence:
		return !o.IsOf(m.Sequence, turn.Now)
	default:
		return o.Decided.Add(maxClockSkew).Before(turn.Now)
	}
}

// outcomeReach is how far back the outcomes of a controller go, looked up at the first use.
type outcomeReach struct {
	bus        recallBus
	controller string
	known      bool
	at         bus.State
}

// dropped reports whether the outcome stream no longer reaches back to a turn: both streams are
// bounded by size, and outcomes may take more room than turns. No writer carries out a turn
// that old, and its effects came back long ago.
func (r *outcomeReach) dropped(ctx context.Context, turn events.Message) (bool, error) {
	if !r.known {
		s, err := r.bus.StreamState(ctx, subject.OutcomeStream(r.controller))
		if err != nil {
			return false, fmt.Errorf("look how far the outcomes of %s reach back: %w", r.controller, err)
		}
		r.at, r.known = s, true
	}
	if r.at.Now.Sub(turn.Time) < outcomesSince || r.at.Last == 0 {
		return false, nil
	}
	return r.at.Messages == 0 || bus.Before(turn, events.Message{Time: r.at.Begins}), nil
}

// recallSought starts the recall of the sought lanes. If maxRecalls batches are in flight, the rest
// waits for one of them to end: its answer wakes the loop, which calls seek again.
func (l *Loop) recallSought() {
	for len(l.sought) > 0 && l.recalls < maxRecalls {
		n := min(len(l.sought), recallMost)
		lanes := l.sought[:n:n]
		l.sought = l.sought[n:]
		l.recalls++
		go l.respond(func(ctx context.Context) func(*engine.Engine) {
			pasts, err := recall(ctx, l.bus, l.Name(), lanes, l.settings.Signatures)
			if err != nil {
				pasts = make([]engine.Past, len(lanes))
			}
			return func(d *engine.Engine) {
				l.recalls--
				for i, at := range lanes {
					d.Recalled(at.key, at.lane, pasts[i], err)
				}
			}
		})
	}
}
