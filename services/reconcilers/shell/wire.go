package shell

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
)

// outcomesSince is for how long a turn may be without an outcome because that is on its way.
const outcomesSince = 10 * time.Minute

func storeTurn(ctx context.Context, b bus.Publisher, t events.Turn, expect uint64, signer *sign.Signer, now time.Time) (uint64, error) {
	m, err := events.EncodeJSON(t, t.Trace)
	if err != nil {
		return 0, fmt.Errorf("store turn of %s for %v: %w", t.Controller, t.Key, err)
	}
	m.Subject = subject.Turn(t.Controller, t.Lane, t.Key)
	signer.Turn(m, expect, now)
	sequence, err := b.Store(ctx, m, expect)
	if err != nil {
		return 0, fmt.Errorf("store turn of %s for %v: %w", t.Controller, t.Key, err)
	}
	return sequence, nil
}

// edge is how far a stream reaches.
type edge struct {
	sequence uint64    // of the last message that it holds; 0 when it holds none
	stored   time.Time // when that was stored
	spent    bool      // it holds none any more
}

// end is the edge of a kind: of the last message that its state stream holds or
// is about to hold. The log knows: the state stream mirrors it, with the same
// sequences, and may lag behind it. But what the log has dropped by its age, the
// state stream still has.
func end(ctx context.Context, b bus.Bus, kind kinds.Name) (edge, error) {
	log, err := edgeOf(ctx, b, subject.LogStream(kind))
	if err != nil {
		return edge{}, err
	}
	state, err := edgeOf(ctx, b, subject.StateStream(kind))
	if log.sequence > state.sequence || state.sequence == 0 {
		return log, err
	}
	return state, err
}

// scan bounds the search for the last message of a stream whose end has
// expired.
const scan = 1000

// edgeOf finds the last message that a stream holds. The stream's own last
// sequence may be of a message that has expired since, which no follower will
// ever get.
func edgeOf(ctx context.Context, b bus.Bus, stream string) (edge, error) {
	state, err := b.StreamState(ctx, stream)
	if err != nil || state.Messages == 0 {
		return edge{spent: state.Last > 0}, err
	}
	at := state.Last
	for ; at > state.First && state.Last-at < scan; at-- {
		if m, ok, err := b.At(ctx, stream, at); err != nil || ok {
			return edge{sequence: at, stored: m.Time}, err
		}
	}
	m, _, err := b.At(ctx, stream, at)
	return edge{sequence: at, stored: m.Time}, err
}

// Serve feeds the engine from the controller's own streams until the context ends.
// ready is called once no outcome can be missed any more.
func (l *Loop) Serve(ctx context.Context, ready func()) {
	go l.hearWriters(ctx)
	go l.inspect(ctx)
	l.followOutcomes(ctx, ready)
}

// hearWriters tells the engine what the writers have in flight, and now and then that
// they are there.
func (l *Loop) hearWriters(ctx context.Context) {
	var told time.Time
	for ctx.Err() == nil {
		err := l.bus.Listen(ctx, events.Writers, func(data []byte) {
			b, ok := events.DecodeHeartbeat(data)
			if now := l.clock(); ok && (len(b.InFlight(l.Name())) > 0 || now.Sub(told) > attendance/2) && l.proves(data) {
				told = now
				l.Tell(func(d *Engine) { d.Heartbeat(b) })
			}
		})
		if err != nil {
			l.fail(fmt.Errorf("hear the writers: %w", err))
			pause(ctx)
		}
	}
}

// recent is how long a failure counts: those that last are repeated sooner.
const recent = 2 * time.Second

func (l *Loop) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	if l.failure == nil || now.Sub(l.failedAt) > recent {
		l.failing = now
	}
	l.failure, l.failedAt = err, now
}

// Trouble is why the engine does not get its deliveries; nil while it does.
func (l *Loop) Trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil || l.clock().Sub(l.failedAt) > recent {
		return nil
	}
	return l.failure
}

// outcomeAt is an outcome, and its place in the stream.
type outcomeAt struct {
	events.Outcome
	sequence uint64
}

// followOutcomes shows the engine every outcome, other replicas' included, from
// now on. When the stream breaks off, what was missed has to be recalled. An outcome that
// cannot be read, or is not a writer's, is as good as none.
func (l *Loop) followOutcomes(ctx context.Context, ready func()) {
	stream := subject.OutcomeStream(l.Name())
	for ctx.Err() == nil {
		state, err := l.bus.StreamState(ctx, stream)
		if err != nil {
			l.fail(fmt.Errorf("follow %s: %w", stream, err))
			pause(ctx)
			continue
		}
		l.tick(state)
		l.Tell((*Engine).Doubt)
		ready()
		err = l.bus.Follow(ctx, stream, state.Last+1, func(batch []events.Message) error {
			outcomes := make([]outcomeAt, 0, len(batch))
			for _, m := range batch {
				h := outcomeAt{sequence: m.Sequence}
				if l.engine.settings.Signatures.believes(m) && events.DecodeJSON(m, &h.Outcome) == nil {
					outcomes = append(outcomes, h)
				}
			}
			newest := batch[len(batch)-1]
			l.ledger.saw(stream, newest.Sequence, newest.Subject)
			l.Tell(func(d *Engine) {
				for _, h := range outcomes {
					d.Outcome(h.sequence, h.Outcome)
				}
			})
			return nil
		})
		l.ledger.suspect()
		if err != nil {
			l.fail(fmt.Errorf("follow %s: %w", stream, err))
			pause(ctx)
		}
	}
}

// pause keeps a loop around a bus that is away from spinning.
func pause(ctx context.Context) {
	const while = 250 * time.Millisecond
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
