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
	"github.com/millrace/millrace/pkg/events/subject"
)

// Follower folds one kind's state stream, and then its log, into a memory, and tells the loops
// of the controllers that read the kind.
//
// It verifies the stream. It takes as damage a message whose checksums are wrong, a stream that
// the bus cannot read, and a memory that differs from the watcher's census. Then it shuts the
// engines, forgets what it has folded, and asks the watchers to list again until a census
// agrees.
type Follower struct {
	Bus    bus.Bus
	Memory *Memory
	Kind   kinds.Kind
	Loops  []*Loop
	// Folded is told the age of the newest message of each batch. It is not called before the
	// engines have opened, because the age of old messages says nothing about the present lag.
	// May be nil.
	Folded func(age time.Duration)
	// Troubled is told what is wrong with the kind's streams, and nil when that has been
	// repaired. May be nil.
	Troubled func(error)

	goal        streamEnd // how far the kind reached when following began
	floor       uint64    // sequence up to which this process need not deal with the log
	adopted     bool      // the position that an earlier process had acknowledged has been looked up
	skipping    bool      // folding did not begin with the first message
	mustReadAll bool      // skipping has missed objects once
	opened      bool
	doubt       events.Doubt
	trouble     damageReport

	silence   damageReport // of a silence, not of the messages
	waitTimer *time.Timer  // runs while the session waits for a silence to end
	waiting   bool
	waitEnded bool // the wait has ended, and no watcher had spoken
}

// Follow runs until the context ends or the stream is gone. It opens the engines when the kind
// has been folded as far as it reached at the start, and the watcher has reported once all
// objects that the API server has of it.
//
// Errors: the stream does not exist, or was deleted ([bus.ErrNoStream]). Then its objects are
// forgotten and the engines stay shut.
func (f *Follower) Follow(ctx context.Context) error {
	var reporting sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); reporting.Wait() }()
	reporting.Go(func() { f.trouble.run(ctx, f.Bus) })
	reporting.Go(func() { f.silence.run(ctx, f.Bus) })
	for ctx.Err() == nil {
		err := f.session(ctx)
		if errors.Is(err, events.ErrDamaged) {
			f.reportDamage(ctx, err)
		}
		f.mustReadAll = f.mustReadAll || errors.Is(err, errSkippedObjects)
		if errors.Is(err, bus.ErrOvertaken) || errors.Is(err, bus.ErrNoStream) || errors.Is(err, events.ErrDamaged) || errors.Is(err, errSkippedObjects) {
			f.forget()
		}
		if errors.Is(err, bus.ErrNoStream) {
			f.Memory.Unfollow(f.Kind.Name)
			return fmt.Errorf("follow %s: %w", f.Kind.Name, err)
		}
		f.waitEnded = errors.Is(err, errSilence)
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
	f.Memory.Follow(f.Kind)
	f.opened, f.doubt, f.waiting = false, events.Doubt{}, false
	f.waitTimer = time.AfterFunc(silencePatience, func() { cancel(errSilence) })
	f.waitTimer.Stop()
	defer f.stopWaiting()
	if f.goal, err = kindEnd(ctx, f.Bus, kind); err != nil {
		return err
	}
	if err := f.findFloor(ctx); err != nil {
		return err
	}
	if err := f.open(ctx); err != nil {
		return err
	}
	defer f.trouble.afterLasting(func(err error) { cancel(err) })()
	from, err := f.startSequence(ctx)
	if err != nil {
		return err
	}
	err = f.Bus.Follow(ctx, subject.StateStream(kind), from, func(batch []events.Message) error {
		if err := f.take(ctx, batch); err != nil || !f.canFollowLog() {
			return err
		}
		return errCaughtUp
	})
	if errors.Is(err, errCaughtUp) {
		err = f.followLog(ctx)
	}
	if cause := context.Cause(ctx); err == nil && (errors.Is(cause, events.ErrDamaged) || errors.Is(cause, errSilence)) {
		return cause
	}
	return err
}

// findFloor finds out from which sequence on changes ask for turns, if nothing has been folded yet:
// behind what a process before this one acknowledged, so that each turn names the changes that
// it answers, or else behind the end of the stream when this process started. The engines ask
// about the keys of all existing objects in any case.
func (f *Follower) findFloor(ctx context.Context) error {
	if f.Memory.Position(f.Kind.Name) > 0 {
		return nil
	}
	f.floor = f.goal.sequence
	if !f.adopted {
		left, ok, err := f.Bus.Acknowledged(ctx, subject.LogStream(f.Kind.Name))
		if err != nil && !errors.Is(err, bus.ErrNoStream) {
			return fmt.Errorf("look how far %s was dealt with: %w", f.Kind.Name, err)
		}
		if f.adopted = true; ok && left < f.floor {
			f.floor = left
		}
	}
	f.Memory.Dealt(f.Kind.Name, f.floor)
	return nil
}

// dealt is the sequence up to which every controller has dealt with the log. A loop has not
// dealt with changes of which it has not been told yet.
func (f *Follower) dealt() uint64 {
	least := f.Memory.Position(f.Kind.Name)
	for _, l := range f.Loops {
		least = min(least, l.processedUpTo(f.Kind.Name))
	}
	return max(least, f.floor)
}

// take folds the next messages of the kind, and tells the engines.
func (f *Follower) take(ctx context.Context, batch []events.Message) error {
	stored := batch[len(batch)-1].Time
	f.Memory.Fold(f.Kind.Name, batch)
	f.tell(func(d *Engine) { d.Folded(f.Kind.Name) })
	if err := f.checkCensus(ctx); err != nil {
		return err
	}
	if err := f.open(ctx); err != nil {
		return err
	}
	if f.opened && f.Folded != nil {
		f.Folded(time.Since(stored))
	}
	return nil
}

// checkCensus returns ErrDamaged when what has been folded is wrong. While there is trouble already
// the follower goes on folding, because the repair arrives through the same stream.
func (f *Follower) checkCensus(ctx context.Context) error {
	w := f.Memory.completeness(f.Kind.Name)
	if w.broken != nil && f.trouble.current() == nil {
		return w.broken
	}
	if w.position < f.goal.sequence {
		return nil
	}
	verdict, err := f.doubt.Judge(w.told, w.held, w.position, f.reach(ctx))
	if verdict != events.Unsure && f.Memory.caughtUp(f.Kind.Name) {
		f.tell(func(d *Engine) { d.Folded(f.Kind.Name) })
	}
	switch {
	case err != nil:
		return fmt.Errorf("look whether %s is whole: %w", f.Kind.Name, err)
	case verdict == events.Whole:
		if f.skipping = false; f.trouble.end() {
			f.Memory.clearDamage(f.Kind.Name)
			f.troubled(nil)
		}
	case verdict == events.Wrong && f.skipping:
		return errSkippedObjects
	case verdict == events.Wrong:
		err := fmt.Errorf("%w: message %d of %s says that there are %d objects, and those folded are %d (%v, %v)", events.ErrDamaged,
			w.position, subject.StateStream(f.Kind.Name), w.told.Objects, w.held.Objects, w.told, w.held)
		if f.trouble.current() == nil {
			return err
		}
		f.reportDamage(ctx, err)
	}
	return nil
}

// reach returns a function that looks up the last message that the kind's state stream holds,
// and the stream's last sequence.
func (f *Follower) reach(ctx context.Context) func() (held, last uint64, err error) {
	return func() (held, last uint64, err error) {
		stream := subject.StateStream(f.Kind.Name)
		found, err := streamEndOf(ctx, f.Bus, stream)
		if err != nil {
			return 0, 0, err
		}
		state, err := f.Bus.StreamState(ctx, stream)
		return found.sequence, state.Last, err
	}
}

// reportDamage asks the watchers to list the kind again.
func (f *Follower) reportDamage(ctx context.Context, err error) {
	state, _ := f.Bus.StreamState(ctx, subject.StateStream(f.Kind.Name)) // 0 on error: the report looks again
	f.trouble.begin(err, events.Damage{Kind: f.Kind.Name, Hole: events.Hole{Reason: err.Error()}, End: state.Last})
	f.troubled(err)
}

func (f *Follower) troubled(err error) {
	if f.Troubled != nil {
		f.Troubled(err)
	}
}

// listedBefore is the least age of the last change of a kind without a mark, to take the kind
// as listed. The watcher marks a kind when it has listed it, and then with every few bookmarks.
// Marks expire after an hour, and a kind without bookmarks has none afterwards.
const listedBefore = 2 * time.Hour

// listed tells whether a kind without a mark was listed completely long ago.
func (e streamEnd) listed(now time.Time) bool {
	return e.spent || e.sequence > 0 && now.Sub(e.stored) > listedBefore
}

// open opens the engines as soon as the memory is complete: while the watcher reports the first
// list of a kind, an object that is missing may only be unreported, and no controller may
// create it again.
func (f *Follower) open(ctx context.Context) error {
	position, marked := f.Memory.progress(f.Kind.Name)
	if f.opened || position < f.goal.sequence || !marked && !f.goal.listed(time.Now()) || !f.isConsistent(ctx) {
		return nil
	}
	if !f.waitEnded {
		silent, err := f.findSilence(ctx, position)
		if err != nil {
			return fmt.Errorf("look how far %s reaches: %w", f.Kind.Name, err)
		}
		if silent {
			f.waitForWatcher()
			return nil
		}
	}
	f.stopWaiting()
	f.opened = true
	f.tell(func(d *Engine) { d.Open(f.Kind.Name) })
	return nil
}

// isConsistent tells whether nothing contradicts what has been folded: no damage, no relist in
// progress, and no census that differs. After damage a census has to confirm it.
func (f *Follower) isConsistent(ctx context.Context) bool {
	if f.trouble.current() != nil {
		return false
	}
	w := f.Memory.completeness(f.Kind.Name)
	if w.listing {
		return false
	}
	doubt := f.doubt // a copy: judge counts batches in its own
	verdict, err := doubt.Judge(w.told, w.held, w.position, f.reach(ctx))
	return err == nil && (verdict == events.Whole || verdict == events.Untold)
}

// forget drops the objects of a stream that is gone or was recreated. It shuts the engines
// first: an engine must not decide while the memory is half forgotten.
func (f *Follower) forget() {
	for _, l := range f.Loops {
		l.ShutNow(f.Kind.Name)
	}
	keys := f.Memory.Forget(f.Kind.Name)
	for _, l := range f.Loops {
		l.Tell(func(d *Engine) { d.Forgot(f.Kind.Name, keys[l.Name()]) })
	}
}

func (f *Follower) tell(say func(*Engine)) {
	for _, l := range f.Loops {
		l.Tell(say)
	}
}
