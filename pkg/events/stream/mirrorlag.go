package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A state stream copies its log through a consumer at the log's leader. In a cluster, when that
// server dies, the state notices after 10 to 20 s. If the state lost its leader too, and its
// new leader found the log without one, its request is lost, and it repeats the request only
// after 40 s. A state stream with a new leader sends a request at once. So the publisher of a
// log checks whether the state keeps up, and makes it change its leader when it does not.
const (
	mirrorCheckEvery = time.Second
	// stuckChecks is how many checks in a row may find the state at the same place behind its log
	// before it counts as stuck, and stuckCheckEvery the interval of those checks: a copy takes
	// milliseconds.
	stuckChecks     = 2
	stuckCheckEvery = 300 * time.Millisecond
	// mirrorCheckIdle is how long a new leader may take to catch up.
	mirrorCheckIdle = 5 * time.Second
)

// keepMirrorMoving keeps the state stream of a kind moving until the context ends; stored is the last
// sequence that is known to be in the log.
func (b *Bus) keepMirrorMoving(ctx context.Context, kind kinds.Name, stored *atomic.Uint64) {
	p := mirrorLag{}
	next := time.NewTimer(mirrorCheckEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.closed:
			return
		case <-next.C:
		}
		if p.needsCheck(stored.Load()) {
			state, err := b.StreamState(ctx, subject.StateStream(kind))
			if err == nil && p.isStuck(state.Last) {
				err := b.make.stepDown(ctx, kind)
				b.options.Log.Info("a state stream stood still behind its log: its leader is changed", "stream", subject.StateStream(kind), "error", err)
			}
		}
		next.Reset(p.untilNextCheck())
	}
}

// mirrorLag judges how a state stream follows its log.
type mirrorLag struct {
	want       uint64 // the sequence that the state should have reached
	at         uint64 // the state's sequence at the last check
	unchanged  int    // for how many checks in a row it was there
	ledChanged bool   // it has just been given a new leader
}

// needsCheck tells whether to check: the log has more than the state is known to have.
func (p *mirrorLag) needsCheck(stored uint64) bool {
	p.want = stored
	return stored > p.at
}

// isStuck tells whether the state is stuck behind its log.
func (p *mirrorLag) isStuck(at uint64) bool {
	if at != p.at || at >= p.want {
		p.at, p.unchanged = at, 0
		return false
	}
	p.unchanged++
	p.ledChanged = p.unchanged >= stuckChecks
	if p.ledChanged {
		p.unchanged = 0
	}
	return p.ledChanged
}

// untilNextCheck is the time until the next check.
func (p *mirrorLag) untilNextCheck() time.Duration {
	switch {
	case p.ledChanged:
		p.ledChanged = false
		return mirrorCheckIdle
	case p.at < p.want:
		return stuckCheckEvery
	default:
		return mirrorCheckEvery
	}
}

// stepDown makes the state stream of a kind change its leader, in a cluster.
func (b direct) stepDown(ctx context.Context, kind kinds.Name) error {
	stream := subject.StateStream(kind)
	request, done := b.guarded(ctx, stream)
	defer done()
	request, cancel := context.WithTimeout(request, b.options.Timeout)
	defer cancel()
	answer, err := b.conn.RequestWithContext(request, b.api("STREAM.LEADER.STEPDOWN."+stream), nil)
	if err == nil {
		var said struct {
			Error *struct {
				Description string `json:"description"`
			} `json:"error"`
		}
		if err = json.Unmarshal(answer.Data, &said); err == nil && said.Error != nil {
			err = errors.New(said.Error.Description)
		}
	}
	if err != nil {
		return fmt.Errorf("change the leader of %s: %w", stream, translated(request, err))
	}
	return nil
}

// api is the subject of a JetStream API request.
func (b *Bus) api(request string) string {
	if b.options.APIPrefix != "" {
		return b.options.APIPrefix + "." + request
	}
	return "$JS.API." + request
}
