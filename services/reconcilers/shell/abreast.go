package shell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A reader that has caught up goes on with the log. The state has the same messages
// under the same sequences, one for each object: it is short to read from the start,
// but a reader that lags a little misses what has changed again meanwhile, and sees
// something that never was, until it gets to the change (consistent.go). The log
// lacks nothing, and tells of a change before its mirror does. As soon as the log
// does lack something, the state is read again.

var (
	// errAbreast ends reading the state, of which nothing is left to be read.
	errAbreast = errors.New("the state has been read to its end")
	// errHole ends reading the log, of which something is gone that has not been read.
	errHole = errors.New("the log has a hole")
)

// glanceEvery is how often a reader of the log looks whether the state is
// still there: others will begin with that. Where nothing has been said since the last
// look it is done every glanceResting: most kinds are at rest most of the time.
const (
	glanceEvery   = 15 * time.Second
	glanceResting = 2 * time.Minute
)

// abreast tells whether the log can take over: nothing is in doubt.
func (f *Follower) abreast() bool {
	return f.opened && !f.bearing && f.doubt.Settled() && f.trouble.what() == nil
}

// log folds what the log tells, until the context ends.
//
// Errors: what was read is damaged, or the state is; ErrOvertaken when the log is no
// more or has been made anew, so that positions mean nothing any more; another one when
// the log cannot be gone by, and the state is to be read again.
func (f *Follower) log(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go f.glance(ctx, cancel)
	next, own := f.Memory.Position(f.Kind.Name)+1, error(nil)
	err := f.Bus.Consume(ctx, subject.LogStream(f.Kind.Name), next, f.dealt, func(batch []events.Message) error {
		if last := batch[len(batch)-1].Sequence; batch[0].Sequence != next || last-next != uint64(len(batch)-1) {
			own = errHole
			return own
		}
		next += uint64(len(batch))
		own = f.take(ctx, batch)
		return own
	})
	if cause := context.Cause(ctx); err == nil && errors.Is(cause, events.ErrDamaged) {
		return cause
	}
	switch {
	case err == nil || own != nil:
		return own
	case errors.Is(err, bus.ErrNoStream) || errors.Is(err, bus.ErrOvertaken):
		return fmt.Errorf("%w: follow the log of %s: %v", bus.ErrOvertaken, f.Kind.Name, err)
	}
	return fmt.Errorf("follow the log of %s: %v", f.Kind.Name, err) // damage of the log says nothing of the state
}

// glance has the reading end with ErrDamaged when the state has fewer messages than
// it must have for the objects that were there a while ago: each has one, or its end has.
func (f *Follower) glance(ctx context.Context, stop context.CancelCauseFunc) {
	stream := subject.StateStream(f.Kind.Name)
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	before, looked := f.Memory.wholeness(f.Kind.Name), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := f.Memory.wholeness(f.Kind.Name)
		if now.position == before.position && time.Since(looked) < glanceResting {
			continue
		}
		looked = time.Now()
		state, err := f.Bus.StreamState(ctx, stream)
		switch {
		case errors.Is(err, bus.ErrNoStream):
			stop(err)
			return
		case err == nil && state.Last >= before.position && state.Messages < before.has.Objects && state.Messages < now.has.Objects:
			stop(fmt.Errorf("%w: %s has %d messages, and there are %d objects", events.ErrDamaged, stream, state.Messages, now.has.Objects))
			return
		}
		before = now
	}
}
