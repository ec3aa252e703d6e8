package shell

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// reportEvery is how often the follower asks the watchers to list again.
	reportEvery = time.Second
	// damageLasts is how long a follower stays in trouble before it folds its stream anew: the
	// folded state may be wrong, and not the stream.
	damageLasts = 30 * time.Second
)

// damageReport is what is wrong with the streams of a kind, and reports it to the watchers. The zero
// value is no trouble. It is safe for concurrent use.
type damageReport struct {
	mu      sync.Mutex
	err     error
	damage  report.Damage
	started chan struct{} // holds a token when trouble has begun
}

func (t *damageReport) begin(err error, d report.Damage) {
	t.mu.Lock()
	t.err, t.damage = err, d
	t.mu.Unlock()
	select {
	case t.signal() <- struct{}{}:
	default:
	}
}

// signal is the channel that holds a token when trouble has begun.
func (t *damageReport) signal() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started == nil {
		t.started = make(chan struct{}, 1)
	}
	return t.started
}

// end ends the trouble, and reports whether there was any.
func (t *damageReport) end() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.err != nil
	t.err = nil
	return was
}

func (t *damageReport) current() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// afterLasting calls do when there is trouble now and still is after damageLasts. stop cancels
// that.
func (t *damageReport) afterLasting(do func(error)) (stop func()) {
	if t.current() == nil {
		return func() {}
	}
	timer := time.AfterFunc(damageLasts, func() {
		if err := t.current(); err != nil {
			do(err)
		}
	})
	return func() { timer.Stop() }
}

// run asks the watchers to list again whenever there is trouble, until the context ends.
// The request need not be stored, because it is repeated until a watcher has done it. Without
// trouble, run only waits.
func (t *damageReport) run(ctx context.Context, b bus.Bus) {
	begun := t.signal()
	for {
		select {
		case <-ctx.Done():
			return
		case <-begun:
			t.repeat(ctx, b)
		}
	}
}

// repeat repeats the request until the trouble is over or the context ends.
func (t *damageReport) repeat(ctx context.Context, b bus.Bus) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for t.current() != nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = t.send(ctx, b) // and again
		}
	}
}

// send sends the report. By its End the watchers tell whether they have listed the kind since. If the
// bus did not answer when the trouble began, send asks it again, and sends nothing before it answers:
// a watcher that has listed the kind once ignores a report without End.
func (t *damageReport) send(ctx context.Context, b bus.Bus) error {
	t.mu.Lock()
	err, damage := t.err, t.damage
	t.mu.Unlock()
	if err == nil {
		return nil
	}
	if damage.End == 0 {
		state, err := b.StreamState(ctx, subject.LogStream(damage.Kind))
		if err != nil {
			return fmt.Errorf("report damage of %s: %w", damage.Kind, err)
		}
		damage.End = state.Last
		t.mu.Lock()
		t.damage.End = max(t.damage.End, state.Last)
		t.mu.Unlock()
	}
	return sendDamage(b, damage)
}

func sendDamage(b bus.Bus, d report.Damage) error {
	return b.Broadcast(report.DamageTopic, d.Encode())
}

// suspect reports a suspicion once: the loop that has it will report it again.
func suspect(ctx context.Context, b bus.Bus, d report.Damage) error {
	state, err := b.StreamState(ctx, subject.LogStream(d.Kind))
	if err != nil {
		return fmt.Errorf("report a suspicion about %s: %w", d.Kind, err)
	}
	d.End = state.Last
	return sendDamage(b, d)
}
