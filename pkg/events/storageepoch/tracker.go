// Package storageepoch knows which epoch the storage behind the API server is in, and shares
// that with everybody who has to know: the watchers, who find out, and the writers.
//
// Versions are those of the whole storage, so when it is restored from a backup all
// kinds go back. Each that looks soon enough finds that out; a kind whose position the
// storage has passed again before it looked cannot. So epochs are of the storage too:
// who finds out begins the next one, tells the others, and they begin the same. Where
// all kinds are in one epoch, readers can tell which of them has not been told again
// yet.
//
// Nothing is stored. The epoch is in the logs of the kinds, and what was told and has
// not come there is told again by everybody who heard it.
//
// What others tell is a hint; see [Claim].
package storageepoch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

const (
	// topic is where the epoch is told.
	topic = "epoch"
	// again is how often one that is not the first is told: a listener may have been
	// away, and a kind may have begun without having heard.
	again = 10 * time.Second
	// rest is how long to wait for a bus that is away.
	rest = time.Second
)

// Tracker is the epoch that the storage is in, as far as this process has seen. Its methods
// may be called by many goroutines.
type Tracker struct {
	mu    sync.Mutex
	epoch uint64
	over  chan struct{} // closed when the epoch is
	trial trial
}

// New is the first epoch, which is 0.
func New() *Tracker {
	return &Tracker{over: make(chan struct{}), trial: trial{begun: make(chan struct{}, 1)}}
}

// Now is the epoch, and what is closed when there is a later one.
func (e *Tracker) Now() (epoch uint64, over <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch, e.over
}

// Begin takes an epoch in that this process has seen itself, in the API server's
// history or in a log, if it is later than the one that is known. One beyond
// [events.MaxEpoch] is not taken.
func (e *Tracker) Begin(epoch uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch <= e.epoch || epoch > events.MaxEpoch {
		return
	}
	e.epoch = epoch
	close(e.over)
	e.over = make(chan struct{})
}

// Config of what is shared.
type Config struct {
	// Bus carries the claims.
	Bus bus.Peers
	// ID is this process's, and tells others whose claim it is.
	ID string
	// Check tells in which epoch the storage is, by what this process can see itself:
	// the logs, or the API server. first is true of the first look at a claim; others
	// follow within seconds. What an error hides counts as not seen.
	Check func(ctx context.Context, first bool) (uint64, error)
	// Judged is told what came of a claim; may be nil.
	Judged func(Claim, Verdict)
	// Trouble is told what is in the way; may be nil.
	Trouble func(error)
}

func (c Config) trouble(what string, err error) {
	if c.Trouble != nil && err != nil {
		c.Trouble(fmt.Errorf("%s: %w", what, err))
	}
}

// Share tells others of each new epoch, and checks what they tell, until the context
// ends.
func (e *Tracker) Share(ctx context.Context, c Config) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { e.listen(ctx, c) })
	beside.Go(func() { e.try(ctx, c) })
	for ctx.Err() == nil {
		epoch, over := e.Now()
		if epoch > 0 { // the first one is not taken for another
			c.trouble(fmt.Sprintf("tell that the storage is in epoch %d", epoch), Say(c.Bus, Claim{Epoch: epoch, By: c.ID}))
		}
		wait(ctx, over, again)
	}
}

// Say tells everybody of an epoch.
func Say(b bus.Peers, claim Claim) error {
	data, _ := json.Marshal(claim) // a number and a string always have a JSON form
	return b.Say(topic, data)
}

func (e *Tracker) listen(ctx context.Context, c Config) {
	for ctx.Err() == nil {
		err := c.Bus.Listen(ctx, topic, func(data []byte) {
			if claim, ok := decode(data); ok && (c.ID == "" || claim.By != c.ID) {
				e.hear(claim, c)
			}
		})
		if err != nil {
			c.trouble("hear which epoch the storage is in", err)
			wait(ctx, nil, rest)
		}
	}
}

// wait waits for a while, or until something is over.
func wait(ctx context.Context, over <-chan struct{}, while time.Duration) {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-over:
	case <-timer.C:
	}
}
