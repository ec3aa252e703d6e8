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

// A follower that has caught up continues with the log. The state stream has the same messages
// under the same sequences, but only the last one of each object: it is quick to read from the
// start, but a follower that lags a little misses changes that have been overwritten, and sees
// a state that never was until it reaches the later change (consistent.go). The log lacks
// nothing, and has each change before its mirror does. When the log does lack a message, the
// follower reads the state again.

var (
	// errCaughtUp ends the reading of the state stream at its end.
	errCaughtUp = errors.New("the state has been read to its end")
	// errLogGap ends the reading of the log when a message that has not been read is missing.
	errLogGap = errors.New("the log has a hole")
)

// stateCheckEvery is how often a follower of the log checks that the state stream is complete,
// because other followers will start from it. Where the kind has not changed since the last
// check, it waits idleStateCheckEvery: most kinds are at rest most of the time.
const (
	stateCheckEvery     = 15 * time.Second
	idleStateCheckEvery = 2 * time.Minute
)

// canFollowLog tells whether the follower can continue with the log: nothing is in doubt.
func (f *Follower) canFollowLog() bool {
	return f.opened && !f.waiting && f.doubt.Settled() && f.trouble.current() == nil
}

// followLog folds the messages of the log until the context ends.
//
// Errors: ErrDamaged when a message or the state stream is damaged; ErrOvertaken when the log
// was deleted or recreated, so that positions mean nothing any more; any other error when the
// followLog cannot be used, and the state is to be read again.
func (f *Follower) followLog(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go f.checkState(ctx, cancel)
	next, own := f.Memory.Position(f.Kind.Name)+1, error(nil)
	err := f.Bus.Consume(ctx, subject.LogStream(f.Kind.Name), next, f.dealt, func(batch []events.Message) error {
		if last := batch[len(batch)-1].Sequence; batch[0].Sequence != next || last-next != uint64(len(batch)-1) {
			own = errLogGap
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
	return fmt.Errorf("follow the log of %s: %v", f.Kind.Name, err) // damage of the log is none of the state
}

// checkState ends the reading with ErrDamaged when the state stream has fewer messages than the
// objects at the last check and the objects now: each object, or its deletion, has one message.
func (f *Follower) checkState(ctx context.Context, stop context.CancelCauseFunc) {
	stream := subject.StateStream(f.Kind.Name)
	tick := time.NewTicker(stateCheckEvery)
	defer tick.Stop()
	before, looked := f.Memory.completeness(f.Kind.Name), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := f.Memory.completeness(f.Kind.Name)
		if now.position == before.position && time.Since(looked) < idleStateCheckEvery {
			continue
		}
		looked = time.Now()
		state, err := f.Bus.StreamState(ctx, stream)
		switch {
		case errors.Is(err, bus.ErrNoStream):
			stop(err)
			return
		case err == nil && state.Last >= before.position && state.Messages < before.held.Objects && state.Messages < now.held.Objects:
			stop(fmt.Errorf("%w: %s has %d messages, and there are %d objects", events.ErrDamaged, stream, state.Messages, now.held.Objects))
			return
		}
		before = now
	}
}
