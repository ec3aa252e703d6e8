package shell

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// complainEvery is how often the follower asks the watchers to list again.
	complainEvery = time.Second
	// troubleLasts is how long a follower stays in trouble before it folds its stream anew: the
	// folded state may be wrong, and not the stream.
	troubleLasts = 30 * time.Second
)

// trouble is what is wrong with the streams of a kind, and reports it to the watchers. The zero
// value is no trouble. It is safe for concurrent use.
type trouble struct {
	mu     sync.Mutex
	err    error
	damage events.Damage
	fresh  chan struct{} // holds a token when trouble has begun
}

func (t *trouble) begin(err error, d events.Damage) {
	t.mu.Lock()
	t.err, t.damage = err, d
	t.mu.Unlock()
	select {
	case t.begun() <- struct{}{}:
	default:
	}
}

// begun is the channel that holds a token when trouble has begun.
func (t *trouble) begun() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fresh == nil {
		t.fresh = make(chan struct{}, 1)
	}
	return t.fresh
}

// end ends the trouble, and tells whether there was any.
func (t *trouble) end() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.err != nil
	t.err = nil
	return was
}

func (t *trouble) what() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// lasting calls do when there is trouble now and still is after troubleLasts. stop cancels
// that.
func (t *trouble) lasting(do func(error)) (stop func()) {
	if t.what() == nil {
		return func() {}
	}
	timer := time.AfterFunc(troubleLasts, func() {
		if err := t.what(); err != nil {
			do(err)
		}
	})
	return func() { timer.Stop() }
}

// complain asks the watchers to list again whenever there is trouble, until the context ends.
// The request need not be stored, because it is repeated until a watcher has done it. Without
// trouble, complain only waits.
func (t *trouble) complain(ctx context.Context, b bus.Bus) {
	begun := t.begun()
	for {
		select {
		case <-ctx.Done():
			return
		case <-begun:
			t.insist(ctx, b)
		}
	}
}

// insist repeats the request until the trouble is over or the context ends.
func (t *trouble) insist(ctx context.Context, b bus.Bus) {
	tick := time.NewTicker(complainEvery)
	defer tick.Stop()
	for t.what() != nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = t.say(ctx, b) // and again
		}
	}
}

// say sends the report. By its End the watchers tell whether they have listed the kind since. If the
// bus did not answer when the trouble began, say asks it again, and sends nothing before it answers:
// a watcher that has listed the kind once ignores a report without End.
func (t *trouble) say(ctx context.Context, b bus.Bus) error {
	t.mu.Lock()
	err, damage := t.err, t.damage
	t.mu.Unlock()
	if err == nil {
		return nil
	}
	if damage.End == 0 {
		state, err := b.StreamState(ctx, subject.StateStream(damage.Kind))
		if err != nil {
			return fmt.Errorf("report damage of %s: %w", damage.Kind, err)
		}
		damage.End = state.Last
		t.mu.Lock()
		t.damage.End = max(t.damage.End, state.Last)
		t.mu.Unlock()
	}
	return report(b, damage)
}

func report(b bus.Bus, d events.Damage) error {
	return b.Say(events.DamageTopic, d.Encode())
}

// suspect reports a suspicion once: the loop that has it will report it again.
func suspect(ctx context.Context, b bus.Bus, d events.Damage) error {
	state, err := b.StreamState(ctx, subject.StateStream(d.Kind))
	if err != nil {
		return fmt.Errorf("report a suspicion about %s: %w", d.Kind, err)
	}
	d.End = state.Last
	return report(b, d)
}
