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

// Follower folds one kind's state stream, and its log from there on, into a memory
// and tells the loops of the controllers that read the kind.
//
// It does not believe the stream blindly: a message whose sums do not hold, a
// stream that the bus cannot read, or a memory that is not what the watcher's
// census says is damage. The engines are shut then, what was folded is forgotten,
// and the watchers are asked to look again until a census agrees.
type Follower struct {
	Bus    bus.Bus
	Memory *Memory
	Kind   kinds.Kind
	Loops  []*Loop
	// Folded is told how old the newest message of each batch was; not before
	// the engines have been opened, since what was stored long ago says nothing
	// about now. May be nil.
	Folded func(age time.Duration)
	// Troubled is told what is wrong with the kind's streams, and nil when that
	// has been mended. May be nil.
	Troubled func(error)

	goal     edge   // of the kind when following began
	floor    uint64 // up to where the log need not be dealt with by this process
	adopted  bool   // it was looked up how far a process before this one had dealt with it
	skipping bool   // what was folded does not begin with the first message
	misled   bool   // that was a mistake once
	opened   bool
	doubt    events.Doubt
	trouble  trouble

	asking   trouble     // not with what there is: with a silence
	patience *time.Timer // of the session, while it bears the silence
	bearing  bool
	resigned bool // no watcher has ended the silence
}

// Follow goes on until the context ends or the stream is gone. The engines are
// opened when the kind has been folded as far as it reached at the start, and
// everything that the API server has of it has been told once.
//
// Errors: the stream is not there, or is gone ([bus.ErrNoStream]); its objects
// are forgotten then and the engines stay shut.
func (f *Follower) Follow(ctx context.Context) error {
	var complaining sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); complaining.Wait() }()
	complaining.Go(func() { f.trouble.complain(ctx, f.Bus) })
	complaining.Go(func() { f.asking.complain(ctx, f.Bus) })
	for ctx.Err() == nil {
		err := f.session(ctx)
		if errors.Is(err, events.ErrDamaged) {
			f.damaged(ctx, err)
		}
		f.misled = f.misled || errors.Is(err, errMisled)
		if errors.Is(err, bus.ErrOvertaken) || errors.Is(err, bus.ErrNoStream) || errors.Is(err, events.ErrDamaged) || errors.Is(err, errMisled) {
			f.forget()
		}
		if errors.Is(err, bus.ErrNoStream) {
			f.Memory.Unfollow(f.Kind.Name)
			return fmt.Errorf("follow %s: %w", f.Kind.Name, err)
		}
		f.resigned = errors.Is(err, errSilence)
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
	f.opened, f.doubt, f.bearing = false, events.Doubt{}, false
	f.patience = time.AfterFunc(silencePatience, func() { cancel(errSilence) })
	f.patience.Stop()
	defer f.spoken()
	if f.goal, err = end(ctx, f.Bus, kind); err != nil {
		return err
	}
	if err := f.adopt(ctx); err != nil {
		return err
	}
	if err := f.open(ctx); err != nil {
		return err
	}
	defer f.trouble.lasting(func(err error) { cancel(err) })()
	from, err := f.begin(ctx)
	if err != nil {
		return err
	}
	err = f.Bus.Follow(ctx, subject.StateStream(kind), from, func(batch []events.Message) error {
		if err := f.take(ctx, batch); err != nil || !f.abreast() {
			return err
		}
		return errAbreast
	})
	if errors.Is(err, errAbreast) {
		err = f.log(ctx)
	}
	if cause := context.Cause(ctx); err == nil && (errors.Is(cause, events.ErrDamaged) || errors.Is(cause, errSilence)) {
		return cause
	}
	return err
}

// adopt finds out from where on changes ask for turns, if nothing has been folded yet: behind
// what a process before this one had dealt with, so that each turn names what it is of, or
// else behind what was there when this one began. The keys of all that is there are asked
// about in any case.
func (f *Follower) adopt(ctx context.Context) error {
	if f.Memory.Position(f.Kind.Name) > 0 {
		return nil
	}
	f.floor = f.goal.sequence
	if !f.adopted {
		left, ok, err := f.Bus.Left(ctx, subject.LogStream(f.Kind.Name))
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

// dealt is up to where every controller has dealt with the log. What a loop has not been told
// of yet, it has not dealt with.
func (f *Follower) dealt() uint64 {
	least := f.Memory.Position(f.Kind.Name)
	for _, l := range f.Loops {
		least = min(least, l.dealtWith(f.Kind.Name))
	}
	return max(least, f.floor)
}

// take folds what comes next of the kind, and tells the engines.
func (f *Follower) take(ctx context.Context, batch []events.Message) error {
	stored := batch[len(batch)-1].Time
	f.Memory.Fold(f.Kind.Name, batch)
	f.tell(func(d *Engine) { d.Folded(f.Kind.Name) })
	if err := f.judge(ctx); err != nil {
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

// judge is ErrDamaged when what has been folded cannot be the truth. While there
// is trouble already the fold goes on, for what mends it comes through it.
func (f *Follower) judge(ctx context.Context) error {
	w := f.Memory.wholeness(f.Kind.Name)
	if w.broken != nil && f.trouble.what() == nil {
		return w.broken
	}
	if w.position < f.goal.sequence {
		return nil
	}
	verdict, err := f.doubt.Judge(w.said, w.has, w.position, f.reach(ctx))
	if verdict != events.Unsure && f.Memory.caughtUp(f.Kind.Name) {
		f.tell(func(d *Engine) { d.Folded(f.Kind.Name) })
	}
	switch {
	case err != nil:
		return fmt.Errorf("look whether %s is whole: %w", f.Kind.Name, err)
	case verdict == events.Whole:
		if f.skipping = false; f.trouble.end() {
			f.Memory.absolve(f.Kind.Name)
			f.troubled(nil)
		}
	case verdict == events.Wrong && f.skipping:
		return errMisled
	case verdict == events.Wrong:
		err := fmt.Errorf("%w: message %d of %s says that there are %d objects, and those folded are %d (%v, %v)", events.ErrDamaged,
			w.position, subject.StateStream(f.Kind.Name), w.said.Objects, w.has.Objects, w.said, w.has)
		if f.trouble.what() == nil {
			return err
		}
		f.damaged(ctx, err)
	}
	return nil
}

// reach tells how far the kind's state stream reaches.
func (f *Follower) reach(ctx context.Context) func() (held, last uint64, err error) {
	return func() (held, last uint64, err error) {
		stream := subject.StateStream(f.Kind.Name)
		found, err := edgeOf(ctx, f.Bus, stream)
		if err != nil {
			return 0, 0, err
		}
		state, err := f.Bus.StreamState(ctx, stream)
		return found.sequence, state.Last, err
	}
}

// damaged has the watchers asked to look again.
func (f *Follower) damaged(ctx context.Context, err error) {
	state, _ := f.Bus.StreamState(ctx, subject.StateStream(f.Kind.Name)) // 0: whenever that was mended, look again
	f.trouble.begin(err, events.Damage{Kind: f.Kind.Name, Hole: events.Hole{Reason: err.Error()}, End: state.Last})
	f.troubled(err)
}

func (f *Follower) troubled(err error) {
	if f.Troubled != nil {
		f.Troubled(err)
	}
}

// listedBefore is how long ago a kind that bears no mark must have been changed
// last, to be taken as listed. The watcher marks a kind when it has been listed,
// and then with every few bookmarks. Marks expire after an hour, and a kind
// without bookmarks has none afterwards.
const listedBefore = 2 * time.Hour

// listed tells whether a kind without a mark has been told whole long ago.
func (e edge) listed(now time.Time) bool {
	return e.spent || e.sequence > 0 && now.Sub(e.stored) > listedBefore
}

// open opens the engines as soon as the memory is whole: while the first list of a
// kind is being told, what is missing may only be untold, and nothing may be
// created in its place.
func (f *Follower) open(ctx context.Context) error {
	position, marked := f.Memory.stand(f.Kind.Name)
	if f.opened || position < f.goal.sequence || !marked && !f.goal.listed(time.Now()) || !f.believed(ctx) {
		return nil
	}
	if !f.resigned {
		silent, err := f.silent(ctx, position)
		if err != nil {
			return fmt.Errorf("look how far %s reaches: %w", f.Kind.Name, err)
		}
		if silent {
			f.bear()
			return nil
		}
	}
	f.spoken()
	f.opened = true
	f.tell(func(d *Engine) { d.Open(f.Kind.Name) })
	return nil
}

// believed tells whether nothing speaks against what has been folded: damage, a
// relist that has not ended, or a census. After damage a census has to speak for
// it.
func (f *Follower) believed(ctx context.Context) bool {
	if f.trouble.what() != nil {
		return false
	}
	w := f.Memory.wholeness(f.Kind.Name)
	if w.listing {
		return false
	}
	doubt := f.doubt // the judge's own goes by batches
	verdict, err := doubt.Judge(w.said, w.has, w.position, f.reach(ctx))
	return err == nil && (verdict == events.Whole || verdict == events.Untold)
}

// forget lets go of a stream that is gone or has been made anew. An engine must
// not decide on what is half forgotten.
func (f *Follower) forget() {
	for _, l := range f.Loops {
		l.Shutter(f.Kind.Name)
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
