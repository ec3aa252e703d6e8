package shell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Follower folds one kind's state stream into a memory and tells the loops of
// the controllers that read the kind.
type Follower struct {
	Bus    bus.Bus
	Memory *Memory
	Kind   kinds.Kind
	Loops  []*Loop
	// Folded is told how old the newest message of each batch was; not before
	// the desks have been opened, since what was stored long ago says nothing
	// about now. May be nil.
	Folded func(age time.Duration)

	goal   edge // of the kind when following began
	opened bool
}

// Follow goes on until the context ends or the stream is no more. The desks are
// opened when the kind has been folded as far as it reached at the start, and
// everything that the API server has of it has been told once.
//
// Errors: the stream is not there, or is no more ([bus.ErrNoStream]); its objects
// are forgotten then and the desks stay shut.
func (f *Follower) Follow(ctx context.Context) error {
	for ctx.Err() == nil {
		err := f.session(ctx)
		if errors.Is(err, bus.ErrOvertaken) || errors.Is(err, bus.ErrNoStream) {
			f.forget()
		}
		if errors.Is(err, bus.ErrNoStream) {
			f.Memory.Unfollow(f.Kind.Name)
			return fmt.Errorf("follow %s: %w", f.Kind.Name, err)
		}
		if err != nil {
			pause(ctx)
		}
	}
	return nil
}

func (f *Follower) session(ctx context.Context) (err error) {
	kind := f.Kind.Name
	f.Memory.Follow(f.Kind)
	f.opened = false
	if f.goal, err = end(ctx, f.Bus, kind); err != nil {
		return err
	}
	f.open()
	return f.Bus.Follow(ctx, subject.StateStream(kind), f.Memory.Position(kind)+1, func(batch []events.Message) error {
		stored := batch[len(batch)-1].Time
		f.Memory.Fold(kind, batch)
		f.tell(func(d *Desk) { d.Folded(kind) })
		f.open()
		if f.opened && f.Folded != nil {
			f.Folded(time.Since(stored))
		}
		return nil
	})
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

// open opens the desks as soon as the memory is whole: while the first list of a
// kind is being told, what is missing may only be untold, and nothing may be
// born in its place.
func (f *Follower) open() {
	position, marked := f.Memory.stand(f.Kind.Name)
	if f.opened || position < f.goal.sequence || !marked && !f.goal.listed(time.Now()) {
		return
	}
	f.opened = true
	f.tell(func(d *Desk) { d.Open(f.Kind.Name) })
}

// forget lets go of a stream that is no more or has been made anew. A desk must
// not decide on what is half forgotten.
func (f *Follower) forget() {
	for _, l := range f.Loops {
		l.Shutter(f.Kind.Name)
	}
	keys := f.Memory.Forget(f.Kind.Name)
	for _, l := range f.Loops {
		l.Tell(func(d *Desk) { d.Forgot(f.Kind.Name, keys[l.Name()]) })
	}
}

func (f *Follower) tell(say func(*Desk)) {
	for _, l := range f.Loops {
		l.Tell(say)
	}
}
