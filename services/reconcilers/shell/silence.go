package shell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Silence. Deletions and marks leave a state stream by their age. While a watcher runs, a newer
// mark always follows. If the last messages of a stream have expired, no watcher has reported
// for an hour which objects exist, and the rest cannot be judged: a bus that has lost its index
// has the older messages of deleted objects again, each with a census of its own time, which
// may agree. So a follower that finds silence asks the watchers, and waits.

// silencePatience is how long the follower waits. A kind that no watcher can list any more must
// not block a controller that reads every kind.
const silencePatience = time.Minute

// errSilence ends a session in which no watcher has reported within silencePatience.
var errSilence = errors.New("no watcher has said what there is")

// findSilence tells whether the state stream has held messages behind the last one folded, or now
// ends before what the memory knew. Then it asks the watchers.
func (f *Follower) findSilence(ctx context.Context, position uint64) (bool, error) {
	stream := subject.StateStream(f.Kind.Name)
	state, err := f.Bus.StreamState(ctx, stream)
	if err == nil && f.Memory.BehindKnown(f.Kind.Name) {
		f.silence.begin(fmt.Errorf("%s has lost its end, and no watcher has said since what there is", stream),
			events.Damage{Kind: f.Kind.Name, Hole: events.Hole{Reason: "the state has lost its end"}, End: state.Last})
		return true, nil
	}
	if err != nil || position == 0 || position >= state.Last {
		return false, err
	}
	held, err := streamEndOf(ctx, f.Bus, stream)
	if err != nil || held.sequence > position {
		return false, err
	}
	// A message stored meanwhile may have replaced the last one. It also ends the silence.
	if now, err := f.Bus.StreamState(ctx, stream); err != nil || now.Last > state.Last {
		return false, err
	}
	f.silence.begin(fmt.Errorf("message %d of %s has expired, and no watcher has said since what there is", state.Last, stream),
		events.Damage{Kind: f.Kind.Name, Hole: events.Hole{Reason: "the end of the state has expired"}, End: state.Last})
	return true, nil
}

// waitForWatcher starts the wait for a watcher, at whose end the session breaks off.
func (f *Follower) waitForWatcher() {
	if f.waitTimer != nil && !f.waiting {
		f.waiting = true
		f.waitTimer.Reset(silencePatience)
	}
}

// stopWaiting ends the wait.
func (f *Follower) stopWaiting() {
	f.silence.end()
	if f.waitTimer != nil {
		f.waitTimer.Stop()
	}
}
