// Package limiter holds the writes of one controller that exceed its write limits ([Limiter]). It
// counts what package limits judges by: the outcomes in the record, which it follows, and the turns
// that this writer has in flight.
//
// Goroutines: [Limiter.Run] runs until its context ends.
package limiter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/limits"
	"github.com/millrace/millrace/services/writer/plan"
)

const (
	// countPatience is how long a turn waits until the outcomes before it have been counted.
	countPatience = 5 * time.Second
	// countPoll is the interval at which a turn looks whether they have.
	countPoll = 2 * time.Millisecond
)

// Config is what a limiter needs.
type Config struct {
	// Bus is where the outcomes are.
	Bus bus.Bus
	// Controller is the controller's name.
	Controller string
	// Limits are the limits of all controllers; nil limits nothing.
	Limits *limits.Set
	// Now returns the time of the bus.
	Now func() time.Time
	// Valid returns why an outcome does not count; nil: it counts.
	Valid func(m events.Message) error
	// Log is the logger.
	Log *slog.Logger
}

// Limiter holds the writes of one controller that exceed its limits. It counts the outcomes in the
// record, those of other writers among them, and the turns that this writer has in flight. As one
// writer at a time carries out the turns of a controller, a limit is exceeded at most by what another
// writer had in flight when it was cut off.
type Limiter struct {
	bus    bus.Bus
	stream string // of the controller's outcomes
	now    func() time.Time
	log    *slog.Logger
	valid  func(m events.Message) error // why an outcome does not count; nil: it counts

	mu      sync.Mutex
	window  *limits.Window
	counted uint64 // the outcomes are counted up to this sequence
}

// New makes the limiter of a controller. It is nil if no limit is about the controller; a nil limiter
// holds nothing.
func New(c Config) *Limiter {
	window := c.Limits.NewWindow(c.Controller)
	if window == nil {
		return nil
	}
	return &Limiter{
		bus: c.Bus, stream: subject.OutcomeStream(c.Controller), now: c.Now, valid: c.Valid, window: window,
		log: c.Log.With("controller", c.Controller),
	}
}

// Names returns the names of the limits that are about the controller.
func (l *Limiter) Names() []string {
	if l == nil {
		return nil
	}
	return l.window.Names()
}

// Run counts the outcomes until the context ends.
func (l *Limiter) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.follow(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("cannot count the writes; limited turns wait", "err", err)
			sleep.For(ctx, time.Second)
		}
	}
}

// follow counts the outcomes from those on that were stored within the reach of the limits.
//
// Errors: the stream cannot be read, or was created again.
func (l *Limiter) follow(ctx context.Context) error {
	state, err := l.bus.StreamState(ctx, l.stream)
	if err != nil {
		return err
	}
	begin, err := l.lastBefore(ctx, state, l.now().Add(-l.window.Reach()))
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.window.Forget()
	l.counted = begin
	l.mu.Unlock()
	return l.bus.Follow(ctx, l.stream, begin+1, func(batch []events.Message) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, m := range batch {
			var o events.Outcome
			if l.valid(m) == nil && events.DecodeJSON(m, &o) == nil {
				l.window.Count(m.Time, o)
			}
			l.counted = m.Sequence
		}
		return nil
	})
}

// lastBefore is the last sequence of a stream before which no message was stored at or after a moment.
// Where messages are missing or damaged it may be lower; then more is read than counts.
func (l *Limiter) lastBefore(ctx context.Context, state bus.State, moment time.Time) (sequence uint64, err error) {
	found := sort.Search(int(state.Last+1-state.First), func(i int) bool {
		m, there, failed := l.bus.At(ctx, l.stream, state.First+uint64(i))
		if failed != nil && !errors.Is(failed, events.ErrDamaged) {
			err = failed
		}
		return err != nil || !there || !m.Time.Before(moment)
	})
	return state.First + uint64(found) - 1, err
}

// Judge returns which commands of a turn are held, by position. own is the object of the turn's key,
// or nil.
//
// Errors: the outcomes have not been counted. The turn must not be carried out then.
func (l *Limiter) Judge(ctx context.Context, m events.Message, turn events.Turn, own metav1.Object) (map[int]plan.Refusal, error) {
	if l == nil || !l.window.Concerns(turn.Commands) {
		return nil, nil
	}
	if err := l.awaitCount(ctx); err != nil {
		return nil, fmt.Errorf("count the writes of %s: %w", turn.Controller, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	decided := func(limit string) (events.Approval, bool, bool) { return events.ApprovalOf(own, limit) }
	held := map[int]plan.Refusal{}
	for i, v := range l.window.Judge(l.now(), m.Sequence, turn.Commands, decided) {
		r := plan.Refusal{Code: events.HeldCode, Reason: events.Held, Cause: v.Limit, Message: v.Message}
		if v.Denied {
			r.Reason = events.Denied
		}
		held[i] = r
	}
	return held, nil
}

// awaitCount waits until all outcomes that are stored now have been counted. Those of another writer,
// from which this one has taken over, are among them.
func (l *Limiter) awaitCount(ctx context.Context) error {
	state, err := l.bus.StreamState(ctx, l.stream)
	if err != nil {
		return err
	}
	for end := time.Now().Add(countPatience); ; sleep.For(ctx, countPoll) {
		l.mu.Lock()
		counted := l.counted
		l.mu.Unlock()
		switch {
		case counted >= state.Last:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(end):
			return fmt.Errorf("outcomes are counted up to %d of %d", counted, state.Last)
		}
	}
}

// Written returns the writes of a turn that count, by its results.
func (l *Limiter) Written(m events.Message, results []events.Result) []events.WriteCount {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.window.Counts(m.Sequence, results)
}
