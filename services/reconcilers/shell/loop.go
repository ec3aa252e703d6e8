package shell

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/growstack"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shard"
)

// Loop runs one engine against a bus. All events of the engine go through one channel to one
// goroutine.
type Loop struct {
	bus       bus.Bus
	engine    *engine.Engine
	settings  Settings
	inbox     chan func()
	clock     func() time.Time
	settled   chan struct{} // closed when Run has returned
	calls     chan struct{} // bounds the calls in flight
	witnesses *witnesses
	busAhead  atomic.Int64 // how far the bus's clock is ahead of ours, in nanoseconds

	// sought are the lanes to be recalled, recalls counts the recalls in flight, and storing the
	// turns and wakes that are being stored. Only the loop's goroutine uses them.
	sought  []laneOf
	recalls int
	storing int

	heard time.Time // when the engine was last told of a heartbeat; only HearWriters uses it

	mu       sync.Mutex
	tally    engine.Tally
	dealt    map[kinds.Name]uint64 // by kind: the sequence up to which the engine has dealt with changes
	counted  time.Time             // when dealt was last computed
	stale    bool                  // dealt may be out of date
	parked   []engine.Parked
	opened   bool  // the engine has been open once
	failure  error // the last error of the loop's own streams
	failedAt time.Time
	failing  time.Time // since when errors have followed one another
	working  bool      // the engine may have work
	busy     time.Time // when the present step began; zero between steps
	worked   func(time.Duration)
	// undiscovered: the engine waits for a discovery of the kinds.
	undiscovered bool
}

// Settings are a loop's settings: those of its engine, and what the loop alone needs. The zero
// value means the defaults. The loop sets Suspect itself.
type Settings struct {
	engine.Settings
	// Signatures sign turns and verify outcomes.
	Signatures Signatures
	// Lost is told that a stream of the controller has lost messages that the bus had
	// acknowledged, and what; may be nil.
	Lost func(stream string, what error)
}

const (
	inboxSize = 4096
	maxCalls  = 256
	// maxStoring is how many turns and wakes the loop stores at the same time. Beyond that it makes
	// no more turns: on a slow bus they would grow old while they wait ([CheckAge]).
	maxStoring  = maxCalls / 2
	callTimeout = 5 * time.Second
	drainTime   = 3 * time.Second
	// burst is the number of turns between two reads of the inbox.
	burst = 64
)

// NewLoop makes the loop of a controller. It calls worked with how long each turn took; worked
// and settings.Waited may be nil.
func NewLoop(b bus.Bus, controller reconcile.Any, c *cache.Cache, settings Settings, worked func(time.Duration)) *Loop {
	l := &Loop{
		bus: b, inbox: make(chan func(), inboxSize), clock: time.Now,
		settled: make(chan struct{}), calls: make(chan struct{}, maxCalls), worked: worked,
	}
	settings.Suspect = l.suspect
	l.settings = settings
	l.engine = engine.New(controller, c, &busIO{loop: l}, settings.Settings, l.clock())
	l.witnesses = newWitnesses(l.Name())
	l.engine.AwaitDiscovery()
	l.note()
	return l
}

// Name is the controller's.
func (l *Loop) Name() string { return l.engine.Name() }

// Description is the description of the controller. It never changes.
func (l *Loop) Description() reconcile.Description { return l.engine.Description() }

// Shut keeps the engine from deciding until the kind has been folded. It must not be called
// once Run has begun; [Loop.ShutNow] may be.
func (l *Loop) Shut(kind kinds.Name) {
	l.engine.Shut(kind)
	l.note()
}

// note notes what the engine says before the loop runs.
func (l *Loop) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working, l.undiscovered = l.engine.Working(), l.engine.AwaitsDiscovery()
}

// ShutNow shuts the engine for a kind while it runs, and waits until it is shut or the loop has
// ended.
func (l *Loop) ShutNow(kind kinds.Name) {
	shut := make(chan struct{})
	if !l.Do(func(d *engine.Engine) { d.Shut(kind); close(shut) }) {
		return
	}
	select {
	case <-shut:
	case <-l.settled:
	}
}

// Own sets the share of the controller's keys that this replica owns.
func (l *Loop) Own(share shard.Set) { l.Do(func(d *engine.Engine) { d.Own(share) }) }

// Do runs f on the loop's goroutine, in the order of the calls. It returns false when the loop
// has ended.
func (l *Loop) Do(f func(*engine.Engine)) bool {
	select {
	case l.inbox <- func() { f(l.engine) }:
		return true
	case <-l.settled:
		return false
	}
}

// Run drives the engine until the context ends. Then it makes no more turns, and waits up to
// drainTime for the stores, schedules and recalls in flight.
func (l *Loop) Run(ctx context.Context) {
	defer close(l.settled)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		l.engine.Advance(l.clock())
		l.drain()
		busy := l.runTurns()
		l.recallSought()
		l.publish()
		if busy {
			continue
		}
		l.waitForEvent(ctx, timer)
	}
	l.finishCalls()
}

func (l *Loop) waitForEvent(ctx context.Context, timer *time.Timer) {
	wait := time.Hour
	if next, ok := l.engine.Next(); ok {
		wait = max(next.Sub(l.clock()), 0)
	}
	if l.stale {
		wait = min(wait, countEvery)
	}
	timer.Reset(wait)
	select {
	case <-ctx.Done():
	case say := <-l.inbox:
		say()
	case <-timer.C:
	}
}

// drain handles everything that has arrived, so that many changes of a key make one turn.
func (l *Loop) drain() {
	for range inboxSize {
		select {
		case say := <-l.inbox:
			say()
		default:
			return
		}
	}
}

func (l *Loop) runTurns() (busy bool) {
	for range burst {
		if !l.engine.Busy() || l.storing >= maxStoring {
			return false
		}
		start := time.Now()
		l.setBusy(start)
		l.engine.Step()
		if l.worked != nil {
			l.worked(time.Since(start))
		}
	}
	return l.engine.Busy() && l.storing < maxStoring
}

func (l *Loop) setBusy(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = since
}

func (l *Loop) publish() {
	tally, parked, awake, working, undiscovered := l.engine.Tally(), l.engine.Parked(), l.engine.HasOpened(), l.engine.Working(), l.engine.AwaitsDiscovery()
	var dealt map[kinds.Name]uint64
	now := time.Now()
	if l.stale = now.Sub(l.counted) < countEvery; !l.stale && awake {
		dealt, l.counted = l.engine.Dealt(), now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally, l.parked, l.opened, l.working, l.undiscovered, l.busy = tally, parked, awake, working, undiscovered, time.Time{}
	if dealt != nil {
		l.dealt = dealt
	}
}

// countEvery is the least time between two computations of how far the engine has dealt with
// changes.
const countEvery = 100 * time.Millisecond

// processedUpTo is the sequence up to which the engine has dealt with the changes of a kind.
func (l *Loop) processedUpTo(kind kinds.Name) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dealt[kind]
}

func (l *Loop) finishCalls() {
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	for l.engine.Storing() > 0 {
		l.recallSought()
		select {
		case say := <-l.inbox:
			say()
		case <-limit.C:
			return
		}
	}
}

// Tally is what the engine has done so far.
func (l *Loop) Tally() engine.Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally
}

// Backlog is, by kind, the oldest change that waits for its turn. ok is false when the loop
// does not answer before the context ends.
func (l *Loop) Backlog(ctx context.Context) (backlog map[kinds.Name]cache.Backlog, ok bool) {
	return ask(ctx, l, (*engine.Engine).Backlog)
}

// queue queues say for the loop's goroutine. It returns false when the loop has ended, or has
// no room before the context ends.
func (l *Loop) queue(ctx context.Context, say func()) bool {
	select {
	case l.inbox <- say:
		return true
	case <-l.settled:
	case <-ctx.Done():
	}
	return false
}

// HasOpened reports whether the engine is open, or has been open once.
func (l *Loop) HasOpened() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened
}

// Parked are the parked keys and messages, sorted by key.
func (l *Loop) Parked() []engine.Parked {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parked
}

// Busy is how long the present turn has taken so far; 0 between turns.
func (l *Loop) Busy() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy.IsZero() {
		return 0
	}
	return time.Since(l.busy)
}

// call runs a blocking operation on its own goroutine, at most maxCalls at once, and passes its
// answer to the engine.
func (l *Loop) call(run func(ctx context.Context) func(*engine.Engine)) {
	go func() {
		growstack.Grow()
		l.calls <- struct{}{}
		defer func() { <-l.calls }()
		l.respond(run)
	}()
}

// store is a call that counts as storing until the engine has its answer.
func (l *Loop) store(run func(ctx context.Context) func(*engine.Engine)) {
	l.storing++
	l.call(func(ctx context.Context) func(*engine.Engine) {
		answer := run(ctx)
		return func(d *engine.Engine) {
			l.storing--
			answer(d)
		}
	})
}

// respond runs a blocking operation and passes its answer to the engine.
func (l *Loop) respond(run func(ctx context.Context) func(*engine.Engine)) {
	// A turn in flight is stored even while the process is ending.
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	l.Do(run(ctx))
}

// suspect asks the watchers to compare a kind with the API server.
func (l *Loop) suspect(d report.Damage) {
	d.By = l.Name()
	l.call(func(ctx context.Context) func(*engine.Engine) {
		if err := suspect(ctx, l.bus, d); err != nil {
			l.fail(err)
		}
		return func(*engine.Engine) {}
	})
}

// busIO is the IO of an engine on a bus.
type busIO struct{ loop *Loop }

var _ engine.IO = (*busIO)(nil)

func (o *busIO) Store(t events.Turn, expect uint64) {
	o.loop.store(func(ctx context.Context) func(*engine.Engine) {
		sequence, err := o.loop.sendTurn(ctx, t, expect)
		if err == nil {
			o.loop.witnesses.observe(subject.TurnStream(t.Controller), sequence, subject.Turn(t.Controller, t.Lane, t.Key))
		}
		return func(d *engine.Engine) { d.Stored(t.Key, t.Lane, sequence, err) }
	})
}

func (o *busIO) Recall(key events.Key, lane events.Lane) {
	o.loop.sought = append(o.loop.sought, laneOf{key, lane})
}

func (o *busIO) Schedule(w events.Wake) {
	o.loop.store(func(ctx context.Context) func(*engine.Engine) {
		err := o.loop.bus.Schedule(ctx, w)
		return func(d *engine.Engine) { d.Scheduled(w.Key, w.At, err) }
	})
}

func (o *busIO) Reach(kind kinds.Name) {
	o.loop.call(func(ctx context.Context) func(*engine.Engine) {
		found, err := logEnd(ctx, o.loop.bus, kind)
		return func(d *engine.Engine) { d.Reached(kind, found, err) }
	})
}
