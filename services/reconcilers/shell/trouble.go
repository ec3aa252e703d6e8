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
	// complainEvery is how often the watchers are asked to look again.
	complainEvery = time.Second
	// troubleLasts is when a follower that is still in trouble folds its stream
	// anew: it may be what was folded that is wrong, and not the stream.
	troubleLasts = 30 * time.Second
)

// trouble is what is wrong with the streams of a kind, and makes it known. The
// zero value is none. It is safe for concurrent use.
type trouble struct {
	mu     sync.Mutex
	err    error
	damage events.Damage
	fresh  chan struct{} // holds a token when it has begun
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

// begun holds a token when trouble has begun.
func (t *trouble) begun() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fresh == nil {
		t.fresh = make(chan struct{}, 1)
	}
	return t.fresh
}

// end tells whether there was any.
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

// lasting has something done when there is trouble, and it is not over after a
// while. The function it gives calls that off.
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

// complain asks the watchers to look again whenever there is trouble, until the
// context ends. That need not be stored: it is said again until a watcher has done
// it. While there is none, nothing wakes up.
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

// insist says it again and again until it is over or the context ends.
func (t *trouble) insist(ctx context.Context, b bus.Bus) {
	tick := time.NewTicker(complainEvery)
	defer tick.Stop()
	for t.what() != nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = t.say(b) // and again
		}
	}
}

func (t *trouble) say(b bus.Bus) error {
	t.mu.Lock()
	err, damage := t.err, t.damage
	t.mu.Unlock()
	if err == nil {
		return nil
	}
	return report(b, damage)
}

func report(b bus.Bus, d events.Damage) error {
	return b.Say(events.DamageTopic, d.Encode())
}

// suspect reports a suspicion: once, since the loop that has it comes back to it.
func suspect(ctx context.Context, b bus.Bus, d events.Damage) error {
	state, err := b.StreamState(ctx, subject.StateStream(d.Kind))
	if err != nil {
		return fmt.Errorf("report a suspicion about %s: %w", d.Kind, err)
	}
	d.End = state.Last
	return report(b, d)
}
