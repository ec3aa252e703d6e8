package shell

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Keys that are to be recalled at one time are recalled together. Where an owner goes
// that had a thousand objects, a thousand keys are looked at that the engine does not know,
// and of most of them there is nothing to know.

const (
	// recallMost is how many lanes are recalled together.
	recallMost = 256
	// maxRecalls bounds how many of such recalls are under way; what comes meanwhile goes
	// together next.
	maxRecalls = 4
)

// laneOf is a lane of a key.
type laneOf struct {
	key  events.Key
	lane events.Lane
}

// recaller is what a recall asks of a bus.
type recaller interface {
	bus.Looker
	StreamState(ctx context.Context, stream string) (bus.State, error)
}

// recall finds what the streams remember of lanes, in their order. It reads the last turns
// before the last outcomes: an outcome that comes in between is of a turn that is known or
// of a later one, never a missing one.
func recall(ctx context.Context, b recaller, controller string, lanes []laneOf, by Signatures) ([]Past, error) {
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
	pasts, reach := make([]Past, len(lanes)), reach{bus: b, controller: controller}
	for i := range lanes {
		turn, some := turns[asked[i]]
		past := by.remembered(turn, some, outcomes[answers[i]])
		if open := past.Outcome == nil || past.Outcome.Turn < past.Sequence; some && open {
			if past.Dropped, err = reach.dropped(ctx, turn); err != nil {
				return nil, err
			}
		}
		pasts[i] = past
	}
	return pasts, nil
}

// remembered is what the last turn of a lane, if there is one, and its last outcome say.
func (s Signatures) remembered(turn events.Message, some bool, outcome events.Message) (past Past) {
	if some {
		past.Sequence = turn.Sequence
		// A turn that cannot be read, or is not ours, still has its place in the order.
		if t := new(events.Turn); s.ours(turn) && events.DecodeJSON(turn, t) == nil {
			past.Turn = t
		}
	}
	// An outcome that cannot be read, or is not a writer's, is as good as none: the turn
	// will be repeated and found done. Nor does the refusal of what is no turn of ours say
	// anything of the turns before it.
	if o := new(events.Outcome); outcome.Sequence > 0 && s.believes(outcome) && events.DecodeJSON(outcome, o) == nil && (past.Turn != nil || !o.Forged()) {
		if some && supersedes(turn, past.Turn, outcome, *o) {
			o.Turn = turn.Sequence - 1 // of a turn that was lost, and whose place this one has taken
		}
		past.Outcome = o
	}
	return past
}

// apart is how far the clocks of reconcilers may be apart.
const apart = time.Second

// supersedes tells whether the last turn of a lane was stored after the end of the stream was
// lost, and with it the turn that an outcome is of. An outcome of a lost turn behind the last
// one that was decided after that one says that the last one is settled, too.
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
		return o.Decided.Add(apart).Before(turn.Now)
	}
}

// reach is how far the outcomes of a controller reach back, looked up when it is first
// asked for.
type reach struct {
	bus        recaller
	controller string
	known      bool
	at         bus.State
}

// dropped tells whether the outcomes do not reach back to a turn any more: they are
// bounded by size, as turns are, and may take up more. A turn that old is carried out
// by no writer, and what had come of it has come back long ago.
func (r *reach) dropped(ctx context.Context, turn events.Message) (bool, error) {
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

// seek has what is to be recalled looked up. What is more than that waits for one of
// those that are under way, each of which says so to the engine, and so to the loop.
func (l *Loop) seek() {
	for len(l.sought) > 0 && l.seeking < maxRecalls {
		n := min(len(l.sought), recallMost)
		lanes := l.sought[:n:n]
		l.sought = l.sought[n:]
		l.seeking++
		go l.answer(func(ctx context.Context) func(*Engine) {
			pasts, err := recall(ctx, l.bus, l.Name(), lanes, l.engine.settings.Signatures)
			if err != nil {
				pasts = make([]Past, len(lanes))
			}
			return func(d *Engine) {
				l.seeking--
				for i, at := range lanes {
					d.Recalled(at.key, at.lane, pasts[i], err)
				}
			}
		})
	}
}
