package shell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/reconcilers/engine"
)

// outcomesSince is how old a turn has to be before a missing outcome counts as dropped, and not
// as on its way.
const outcomesSince = 10 * time.Minute

// CheckAge refuses to store a turn that was decided more than callTimeout ago. The writers judge
// the age of a turn by the time at which the bus stored it, and so would take an old decision for
// a new one. A turn that is stored again was judged before, and a parked one asks for nothing.
//
// Errors: [engine.ErrStale].
func CheckAge(t events.Turn, now time.Time) error {
	if age := now.Sub(t.Now); t.Repeats == 0 && t.Lane != events.LanePark && age > callTimeout {
		return fmt.Errorf("store turn of %s for %v, decided %v ago: %w", t.Controller, t.Key, age.Round(time.Millisecond), engine.ErrStale)
	}
	return nil
}

// sendTurn stores a turn within the span of its message.
func (l *Loop) sendTurn(ctx context.Context, t events.Turn, expect uint64) (uint64, error) {
	span := l.settings.Trace.Turn(t)
	defer span.End()
	t.Trace = span.Or(t.Trace)
	now := l.clock()
	if err := CheckAge(t, now); err != nil {
		span.Fail("too old")
		return 0, err
	}
	// Signed as of now: if the process stands still here, the signature is too old for the writers.
	sequence, err := storeTurn(ctx, l.bus, t, expect, l.settings.Signatures.Sign, l.onBus(now))
	switch {
	case err == nil:
		span.Stored(sequence)
		logTurn(t, sequence)
	case errors.Is(err, bus.ErrOvertaken):
		span.Set(trace.Outcome.String("overtaken"))
		span.Fail("overtaken")
	default:
		span.Fail("not stored")
	}
	return sequence, err
}

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

// scan bounds the search for the last message of a log whose last marks have expired.
const scan = 1000

// logEnd is the sequence of the last message that a kind's log holds; 0: it holds none. The
// message at the log's last sequence may have expired, and then no follower will ever get it.
func logEnd(ctx context.Context, b bus.Bus, kind kinds.Name) (uint64, error) {
	stream := subject.LogStream(kind)
	log, err := b.StreamState(ctx, stream)
	if err != nil || log.Messages == 0 {
		return 0, err
	}
	at := log.Last
	for ; at > log.First && log.Last-at < scan; at-- {
		if _, there, err := b.At(ctx, stream, at); err != nil || there {
			return at, err
		}
	}
	return at, nil
}

// Serve feeds the engine from the controller's own streams until the context ends. It calls
// ready once the engine can miss no outcome any more.
func (l *Loop) Serve(ctx context.Context, ready func()) {
	go l.checkStreams(ctx)
	l.followOutcomes(ctx, ready)
}

// HearWriters tells the engines of loops which turns the writers have in flight, until the context
// ends. The loops of a process share one subscription.
func HearWriters(ctx context.Context, b bus.Bus, loops []*Loop) {
	for ctx.Err() == nil {
		err := b.Listen(ctx, report.Writers, func(text []byte) {
			if said, ok := report.DecodeHeartbeat(text); ok {
				for _, l := range loops {
					l.hear(said, text)
				}
			}
		})
		if err != nil {
			for _, l := range loops {
				l.fail(fmt.Errorf("hear the writers: %w", err))
			}
			pause(ctx)
		}
	}
}

// hear passes a writer's heartbeat to the engine if it has turns of the controller. Otherwise it tells that
// there are writers, which matters to an engine with work: every half of [engine.MaxHeartbeatAge].
func (l *Loop) hear(said report.Heartbeat, text []byte) {
	now := l.clock()
	if (l.settings.Leased || len(said.InFlight(l.Name())) > 0 || now.Sub(l.heard) > engine.MaxHeartbeatAge/2 && !l.isIdle()) && l.isSigned(text) {
		// A loop that is stuck, so that its inbox is full, must not keep the others from hearing. The next
		// heartbeat comes soon.
		select {
		case l.inbox <- func() { l.engine.Heartbeat(said) }:
			l.heard = now
		default:
		}
	}
}

// recent is how long a failure counts as present. A lasting failure repeats within that time.
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

// Trouble is the error that keeps deliveries from the engine; nil if there is none.
func (l *Loop) Trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil || l.clock().Sub(l.failedAt) > recent {
		return nil
	}
	return l.failure
}

// outcomeAt is an outcome and its sequence in the stream.
type outcomeAt struct {
	events.Outcome
	sequence uint64
}

// followOutcomes passes every outcome to the engine, other replicas' included, from now on.
// When the consumer breaks off, the engine has to recall what it missed. followOutcomes skips
// an outcome that cannot be decoded, or is not signed by a writer.
func (l *Loop) followOutcomes(ctx context.Context, ready func()) {
	stream := subject.OutcomeStream(l.Name())
	for ctx.Err() == nil {
		state, err := l.bus.StreamState(ctx, stream)
		if err != nil {
			l.fail(fmt.Errorf("follow %s: %w", stream, err))
			pause(ctx)
			continue
		}
		l.SetBusTime(state)
		l.Do((*engine.Engine).Invalidate)
		ready()
		err = l.bus.Follow(ctx, stream, state.Last+1, func(batch []events.Message) error {
			outcomes := make([]outcomeAt, 0, len(batch))
			for _, m := range batch {
				h := outcomeAt{sequence: m.Sequence}
				if l.settings.Signatures.acceptsOutcome(m) && events.DecodeJSON(m, &h.Outcome) == nil {
					outcomes = append(outcomes, h)
				}
			}
			newest := batch[len(batch)-1]
			l.witnesses.observe(stream, newest.Sequence, newest.Subject)
			l.Do(func(d *engine.Engine) {
				for _, h := range outcomes {
					d.Outcome(h.sequence, h.Outcome)
				}
			})
			return nil
		})
		l.witnesses.suspect()
		if err != nil {
			l.fail(fmt.Errorf("follow %s: %w", stream, err))
			pause(ctx)
		}
	}
}

// pause waits before a retry, so that a loop does not spin while the bus is unreachable.
func pause(ctx context.Context) { sleep.For(ctx, 250*time.Millisecond) }
