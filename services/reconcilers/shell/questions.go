package shell

import (
	"context"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/engine"
)

// Key is the state of a key. ok is false when the loop does not answer before the context ends.
func (l *Loop) Key(ctx context.Context, key events.Key) (k report.KeyState, ok bool) {
	return ask(ctx, l, func(d *engine.Engine) report.KeyState { return d.Key(key) })
}

// Waiting is [engine.Engine.Waiting]. ok is false when the loop does not answer before the context
// ends.
func (l *Loop) Waiting(ctx context.Context) (w map[report.Condition]engine.Waiting, ok bool) {
	if l.isIdle() {
		return nil, true
	}
	return ask(ctx, l, (*engine.Engine).Waiting)
}

// Stall is the condition under which the controller has had work and decided nothing for
// [report.StallAfter], if there is one. known is false when the loop does not answer before the
// context ends, and no decision has been going on for that long.
func (l *Loop) Stall(ctx context.Context) (s report.Stall, stalled, known bool) {
	if s, stalled, known = l.stalled(); known {
		return s, stalled, true
	}
	type answer struct {
		stall   report.Stall
		stalled bool
	}
	a, known := ask(ctx, l, func(d *engine.Engine) (a answer) {
		a.stall, a.stalled = d.Stall()
		return a
	})
	return a.stall, a.stalled, known
}

// stalled is the part of Stall that needs no answer of the engine: a decision that does not
// end, streams that cannot be read, or no work.
func (l *Loop) stalled() (s report.Stall, stalled, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	s.Controller = l.Name()
	switch {
	case !l.busy.IsZero() && now.Sub(l.busy) >= report.StallAfter:
		s.Condition, s.Since = report.Deciding, l.busy
		return s, true, true
	case l.failure != nil && now.Sub(l.failedAt) <= recent && now.Sub(l.failing) >= report.StallAfter:
		s.Condition, s.Detail, s.Since = report.BusRefuses, l.failure.Error(), l.failing
		return s, true, true
	}
	return s, false, l.idle()
}

// isIdle reports whether the engine has no work.
func (l *Loop) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idle()
}

// idle is isIdle for a caller that holds the mutex.
func (l *Loop) idle() bool { return !l.working && l.busy.IsZero() }

// AwaitsDiscovery is [engine.Engine.AwaitsDiscovery] after the last event.
func (l *Loop) AwaitsDiscovery() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.undiscovered
}

// ask has the loop's goroutine answer a question about its engine, as of now.
func ask[T any](ctx context.Context, l *Loop, question func(*engine.Engine) T) (answer T, ok bool) {
	answers := make(chan T, 1)
	if !l.queue(ctx, func() {
		l.engine.Advance(l.clock())
		answers <- question(l.engine)
	}) {
		return answer, false
	}
	select {
	case answer = <-answers:
		return answer, true
	case <-ctx.Done():
		return answer, false
	}
}
