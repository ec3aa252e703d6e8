package shell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/engine"
)

// Follower folds one kind's log into a memory, and tells the loops of the controllers that read
// the kind.
//
// It begins with the message since which every existing object has been recorded, which the
// last mark of the log names. From the message that was the last one then, what it holds is
// exactly what existed at each message. It verifies that: it takes as damage a message whose
// checksums are wrong, a stream that the bus cannot read, and a memory that differs from the
// watcher's census. Then it shuts the engines, forgets what it has folded, and asks the watchers
// to list again until a census agrees.
type Follower struct {
	Bus   bus.Bus
	Cache *cache.Cache
	Kind  kinds.Kind
	Loops []*Loop
	// Folded is told the age of the newest message of each batch. It is not called before the
	// engines have opened, because the age of old messages says nothing about the present lag.
	// May be nil.
	Folded func(age time.Duration)
	// Troubled is told what is wrong with the kind's log, and nil when that has been repaired.
	// May be nil.
	Troubled func(error)

	goal    uint64 // the last message of the log when following began
	floor   uint64 // sequence up to which this process need not deal with the log
	adopted bool   // the position that an earlier process had acknowledged has been looked up
	opened  bool
	trouble damageReport

	lostEnd   damageReport // the log ends before what the memory knew
	waitTimer *time.Timer  // runs while the session waits for a watcher
	waiting   bool
	waitEnded bool // the wait has ended, and no watcher had spoken
}

// Follow runs until the context ends or the log is gone. It opens the engines when the kind has
// been folded as far as it reached at the start, and the watcher has reported once all objects
// that the API server has of it.
//
// Errors: the log does not exist, or was deleted ([bus.ErrNoStream]). Then its objects are
// forgotten and the engines stay shut.
func (f *Follower) Follow(ctx context.Context) error {
	var reporting sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); reporting.Wait() }()
	reporting.Go(func() { f.trouble.run(ctx, f.Bus) })
	reporting.Go(func() { f.lostEnd.run(ctx, f.Bus) })
	for ctx.Err() == nil {
		err := f.session(ctx)
		if errors.Is(err, events.ErrDamaged) {
			f.reportDamage(err)
		}
		if errors.Is(err, bus.ErrOvertaken) || errors.Is(err, bus.ErrNoStream) || errors.Is(err, events.ErrDamaged) {
			f.forget()
		}
		if errors.Is(err, bus.ErrNoStream) {
			f.Cache.Unfollow(f.Kind.Name)
			return fmt.Errorf("follow %s: %w", f.Kind.Name, err)
		}
		f.waitEnded = errors.Is(err, errNoWatcher)
		if err != nil {
			pause(ctx)
		}
	}
	return nil
}

func (f *Follower) session(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	kind := f.Kind.Name
	f.Cache.Follow(f.Kind)
	f.opened, f.waiting = false, false
	f.waitTimer = time.AfterFunc(lostEndPatience, func() { cancel(errNoWatcher) })
	f.waitTimer.Stop()
	defer f.stopWaiting()
	if f.goal, err = logEnd(ctx, f.Bus, kind); err != nil {
		return err
	}
	if err := f.findFloor(ctx); err != nil {
		return err
	}
	f.open()
	defer f.trouble.afterLasting(func(err error) { cancel(err) })()
	from, err := f.startSequence(ctx)
	if err != nil {
		return err
	}
	err = f.Bus.Consume(ctx, subject.LogStream(kind), from, f.dealt, f.take)
	if cause := context.Cause(ctx); err == nil && (errors.Is(cause, events.ErrDamaged) || errors.Is(cause, errNoWatcher)) {
		return cause
	}
	return err
}

// startSequence returns the sequence of the log to begin with: the one behind what has been
// folded. A follower that has folded nothing begins with the message since which every existing
// object has been recorded.
func (f *Follower) startSequence(ctx context.Context) (uint64, error) {
	if at := f.Cache.Position(f.Kind.Name); at > 0 {
		return at + 1, nil
	}
	return bus.RecordedSince(ctx, f.Bus, f.Kind.Name)
}

// findFloor finds out from which sequence on changes ask for turns, if nothing has been folded yet:
// behind what a process before this one acknowledged, so that each turn names the changes that
// it answers, or else behind the end of the stream when this process started. The engines ask
// about the keys of all existing objects in any case.
func (f *Follower) findFloor(ctx context.Context) error {
	if f.Cache.Position(f.Kind.Name) > 0 {
		return nil
	}
	f.floor = f.goal
	if !f.adopted {
		left, ok, err := f.Bus.Acknowledged(ctx, subject.LogStream(f.Kind.Name))
		if err != nil && !errors.Is(err, bus.ErrNoStream) {
			return fmt.Errorf("look how far %s was dealt with: %w", f.Kind.Name, err)
		}
		if f.adopted = true; ok && left < f.floor {
			f.floor = left
		}
	}
	f.Cache.Dealt(f.Kind.Name, f.floor)
	return nil
}

// dealt is the sequence up to which every controller has dealt with the log. A loop has not
// dealt with changes of which it has not been told yet.
func (f *Follower) dealt() uint64 {
	least := f.Cache.Position(f.Kind.Name)
	for _, l := range f.Loops {
		least = min(least, l.processedUpTo(f.Kind.Name))
	}
	return max(least, f.floor)
}

// take folds the next messages of the kind, and tells the engines.
func (f *Follower) take(batch []events.Message) error {
	stored := batch[len(batch)-1].Time
	f.Cache.Fold(f.Kind.Name, batch)
	f.tell(func(d *engine.Engine) { d.Folded(f.Kind.Name) })
	if err := f.checkCensus(); err != nil {
		return err
	}
	f.open()
	if f.opened && f.Folded != nil {
		f.Folded(time.Since(stored))
	}
	return nil
}

// checkCensus returns ErrDamaged when what has been folded is wrong. Up to the goal it cannot tell:
// the log may begin later than some of the objects that it tells of, and damage there may have been
// repaired by then. While there is trouble already the follower goes on folding, because the repair
// arrives through the same log.
func (f *Follower) checkCensus() error {
	w := f.Cache.Completeness(f.Kind.Name)
	if w.Position < f.goal {
		return nil
	}
	err := w.Broken
	if err == nil && w.Told.Known && w.Told != w.Held {
		err = fmt.Errorf("%w: message %d of %s says that there are %d objects, and those folded are %d (%v, %v)", events.ErrDamaged,
			w.Position, subject.LogStream(f.Kind.Name), w.Told.Objects, w.Held.Objects, w.Told, w.Held)
	}
	switch {
	case f.trouble.current() == nil:
		return err
	case err != nil:
		f.report(err, w.Position)
	case w.Told.Known && f.trouble.end():
		f.troubled(nil)
	}
	return nil
}

// reportDamage asks the watchers to list the kind again. The damage is not later than what has been
// read, or than the log's end when the session began: what has been repaired since may be it.
func (f *Follower) reportDamage(err error) {
	f.report(err, max(f.goal, f.Cache.Position(f.Kind.Name)))
}

func (f *Follower) report(err error, end uint64) {
	f.trouble.begin(err, report.Damage{Kind: f.Kind.Name, Hole: events.Hole{Reason: err.Error()}, End: end})
	f.troubled(err)
}

func (f *Follower) troubled(err error) {
	if f.Troubled != nil {
		f.Troubled(err)
	}
}

// open opens the engines as soon as the memory is complete: while the watcher reports the first
// list of a kind, an object that is missing may only be unreported, and no controller may
// create it again.
func (f *Follower) open() {
	position, listed := f.Cache.Progress(f.Kind.Name)
	if f.opened || position < f.goal || !listed || !f.isConsistent() {
		return
	}
	if !f.waitEnded && f.Cache.BehindKnown(f.Kind.Name) {
		f.waitForWatcher(position)
		return
	}
	f.stopWaiting()
	f.opened = true
	f.tell(func(d *engine.Engine) { d.Open(f.Kind.Name) })
}

// isConsistent reports whether nothing contradicts what has been folded: no damage, no relist in
// progress, and no census that differs. After damage a census has to confirm it.
func (f *Follower) isConsistent() bool {
	w := f.Cache.Completeness(f.Kind.Name)
	return f.trouble.current() == nil && w.Broken == nil && !w.Listing && (!w.Told.Known || w.Told == w.Held)
}

// forget drops the objects of a stream that is gone or was recreated. It shuts the engines
// first: an engine must not decide while the memory is half forgotten.
func (f *Follower) forget() {
	for _, l := range f.Loops {
		l.ShutNow(f.Kind.Name)
	}
	keys := f.Cache.Forget(f.Kind.Name)
	for _, l := range f.Loops {
		l.Do(func(d *engine.Engine) { d.Forgot(f.Kind.Name, keys[l.Name()]) })
	}
}

func (f *Follower) tell(say func(*engine.Engine)) {
	for _, l := range f.Loops {
		l.Do(say)
	}
}
