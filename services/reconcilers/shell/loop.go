package shell

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Loop runs one engine against a bus. Everything that happens to the engine goes
// through one channel to one goroutine.
type Loop struct {
	bus     bus.Bus
	engine  *Engine
	inbox   chan func()
	clock   func() time.Time
	settled chan struct{} // closed when Run has returned
	calls   chan struct{} // bounds the calls under way
	ledger  *ledger
	ahead   atomic.Int64 // of the clock of the bus before our own, in nanoseconds

	// sought are lanes that are to be recalled, and seeking is how many recalls are under
	// way. Both are the loop's own.
	sought  []laneOf
	seeking int

	mu       sync.Mutex
	tally    Tally
	dealt    map[kinds.Name]uint64 // up to where each kind has been dealt with
	counted  time.Time             // when that was
	stale    bool                  // it may be further by now
	parked   []Parked
	awake    bool  // the engine has been open
	failure  error // the last one of the loop's own streams
	failedAt time.Time
	failing  time.Time // since when there has been one after the other
	working  bool      // the engine may have work
	busy     time.Time // since when a step is being made; zero between steps
	worked   func(time.Duration)
}

const (
	inboxSize   = 4096
	maxCalls    = 256
	callTimeout = 5 * time.Second
	drainTime   = 3 * time.Second
	// burst is the number of turns that are made before the inbox is read again.
	burst = 64
)

// NewLoop makes the loop of a controller. worked is told how long each turn
// took; it and settings.Waited may be nil.
func NewLoop(b bus.Bus, controller reconcile.Any, memory *Memory, settings Settings, worked func(time.Duration)) *Loop {
	l := &Loop{
		bus: b, inbox: make(chan func(), inboxSize), clock: time.Now,
		settled: make(chan struct{}), calls: make(chan struct{}, maxCalls), worked: worked,
	}
	settings.Suspect = l.suspect
	l.engine = NewEngine(controller, memory, &door{loop: l}, settings, l.clock())
	l.ledger = newLedger(l.Name())
	if l.engine.every {
		l.engine.Shut(unfound) // nothing is decided before it is known what there is
	}
	return l
}

// Name is the controller's.
func (l *Loop) Name() string { return l.engine.Name() }

// Shut keeps the engine from deciding until the kind has been folded. It must not
// be called once Run has begun.
func (l *Loop) Shut(kind kinds.Name) { l.engine.Shut(kind) }

// Shutter shuts the engine while it runs, and waits until it is shut.
func (l *Loop) Shutter(kind kinds.Name) {
	shut := make(chan struct{})
	if !l.Tell(func(d *Engine) { d.Shut(kind); close(shut) }) {
		return
	}
	select {
	case <-shut:
	case <-l.settled:
	}
}

// Own says which keys of the controller fall to this replica.
func (l *Loop) Own(share Share) { l.Tell(func(d *Engine) { d.Own(share) }) }

// Tell has something said to the engine, in order. It gives false when the loop
// has ended.
func (l *Loop) Tell(say func(*Engine)) bool {
	select {
	case l.inbox <- func() { say(l.engine) }:
		return true
	case <-l.settled:
		return false
	}
}

// Run drives the engine until the context ends. Then it makes no more turns, and waits
// a moment for what is being stored.
func (l *Loop) Run(ctx context.Context) {
	defer close(l.settled)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		l.engine.Advance(l.clock())
		l.drain()
		busy := l.steps()
		l.seek()
		l.publish()
		if busy {
			continue
		}
		l.rest(ctx, timer)
	}
	l.end()
}

func (l *Loop) rest(ctx context.Context, timer *time.Timer) {
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

// drain takes everything that has arrived, so that many changes of a key make
// one turn.
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

func (l *Loop) steps() (busy bool) {
	for range burst {
		if !l.engine.Busy() {
			return false
		}
		start := time.Now()
		l.mark(start)
		l.engine.Step()
		if l.worked != nil {
			l.worked(time.Since(start))
		}
	}
	return l.engine.Busy()
}

func (l *Loop) mark(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = since
}

func (l *Loop) publish() {
	tally, parked, awake, working := l.engine.Tally(), l.engine.Parked(), l.engine.Awake(), l.engine.Working()
	var dealt map[kinds.Name]uint64
	now := time.Now()
	if l.stale = now.Sub(l.counted) < countEvery; !l.stale && awake {
		dealt, l.counted = l.engine.Dealt(), now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally, l.parked, l.awake, l.working, l.busy = tally, parked, awake, working, time.Time{}
	if dealt != nil {
		l.dealt = dealt
	}
}

// countEvery is how often it is counted how far the engine has dealt with what it was told.
const countEvery = 100 * time.Millisecond

// dealtWith is up to where the engine has dealt with the changes of a kind.
func (l *Loop) dealtWith(kind kinds.Name) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dealt[kind]
}

func (l *Loop) end() {
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	for l.engine.Storing() > 0 {
		l.seek()
		select {
		case say := <-l.inbox:
			say()
		case <-limit.C:
			return
		}
	}
}

// Tally is what the engine did so far.
func (l *Loop) Tally() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally
}

// Backlog is, by kind, what waits longest for its turn; ok is false when the loop
// does not say so in time.
func (l *Loop) Backlog(ctx context.Context) (backlog map[kinds.Name]Backlog, ok bool) {
	return ask(ctx, l, (*Engine).Backlog)
}

// offer has something done by the loop, if it has room for it in time.
func (l *Loop) offer(ctx context.Context, say func()) bool {
	select {
	case l.inbox <- say:
		return true
	case <-l.settled:
	case <-ctx.Done():
	}
	return false
}

// Awake tells whether the engine is open, or has been.
func (l *Loop) Awake() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.awake
}

// Parked is what is set aside, sorted by key.
func (l *Loop) Parked() []Parked {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parked
}

// Busy is for how long the present turn has been going on; 0 between turns.
func (l *Loop) Busy() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy.IsZero() {
		return 0
	}
	return time.Since(l.busy)
}

// call runs what may block beside the engine, bounded in number. The answer is
// told to the engine.
func (l *Loop) call(run func(ctx context.Context) func(*Engine)) {
	go func() {
		l.calls <- struct{}{}
		defer func() { <-l.calls }()
		l.answer(run)
	}()
}

// answer runs what may block, and tells the engine what came of it.
func (l *Loop) answer(run func(ctx context.Context) func(*Engine)) {
	// A turn under way is finished even while the process is ending.
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	l.Tell(run(ctx))
}

// suspect has the watchers compare a kind with the API server.
func (l *Loop) suspect(d events.Damage) {
	d.By = l.Name()
	l.call(func(ctx context.Context) func(*Engine) {
		if err := suspect(ctx, l.bus, d); err != nil {
			l.fail(err)
		}
		return func(*Engine) {}
	})
}

// door is the Door of an engine on a bus.
type door struct{ loop *Loop }

var _ Door = (*door)(nil)

func (o *door) Store(t events.Turn, expect uint64) {
	o.loop.call(func(ctx context.Context) func(*Engine) {
		sequence, err := o.loop.sendTurn(ctx, t, expect)
		if err == nil {
			o.loop.ledger.saw(subject.TurnStream(t.Controller), sequence, subject.Turn(t.Controller, t.Lane, t.Key))
		}
		return func(d *Engine) { d.Stored(t.Key, t.Lane, sequence, err) }
	})
}

func (o *door) Recall(key events.Key, lane events.Lane) {
	o.loop.sought = append(o.loop.sought, laneOf{key, lane})
}

func (o *door) Schedule(w events.Wake) {
	o.loop.call(func(ctx context.Context) func(*Engine) {
		err := o.loop.bus.Schedule(ctx, w)
		return func(d *Engine) { d.Scheduled(w.Key, w.At, err) }
	})
}

func (o *door) Reach(kind kinds.Name) {
	o.loop.call(func(ctx context.Context) func(*Engine) {
		found, err := end(ctx, o.loop.bus, kind)
		return func(d *Engine) { d.Reached(kind, found.sequence, err) }
	})
}
