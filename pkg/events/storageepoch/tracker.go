// Package storageepoch tracks which epoch the API server's storage is in, and shares that among
// the processes that have to know: the watchers, which detect it, and the writers.
//
// resourceVersions belong to the whole storage, so a restore from a backup sets all kinds back.
// A watcher that checks a kind soon enough notices; it cannot notice for a kind whose position
// the storage has passed again before the check. So an epoch, too, belongs to the whole storage:
// the process that notices begins the next epoch and announces it, and the others begin the same
// one. Because all kinds share one epoch, readers can tell which kinds have not been published
// again yet.
//
// Nothing is stored here. The logs of the kinds contain the epoch; every process that has heard
// of an epoch announces it again and again, until it is in the logs.
//
// What other processes announce is only a hint; see [Claim].
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
	// topic is the topic of claims.
	topic = "epoch"
	// again is how often an epoch other than 0 is announced: a listener may have been
	// disconnected, and a kind may have begun without having heard.
	again = 10 * time.Second
	// rest is how long to wait while the bus is away.
	rest = time.Second
)

// Tracker is the storage epoch, as far as this process has seen. It is safe for concurrent use.
type Tracker struct {
	mu    sync.Mutex
	epoch uint64
	over  chan struct{} // closed when the epoch is over
	trial trial
}

// New returns a tracker in epoch 0.
func New() *Tracker {
	return &Tracker{over: make(chan struct{}), trial: trial{begun: make(chan struct{}, 1)}}
}

// Now is the current epoch, and a channel that is closed when a later one begins.
func (e *Tracker) Now() (epoch uint64, over <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch, e.over
}

// Begin records an epoch that this process has seen itself, in the API server's history or in a
// log, if it is later than the known one. It ignores epochs beyond [events.MaxEpoch].
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

// Config configures [Tracker.Share].
type Config struct {
	// Bus carries the claims.
	Bus bus.Peers
	// ID identifies this process as the sender of its claims.
	ID string
	// Check determines the storage epoch by what this process can see itself: the logs, or the
	// API server. first is true for the first check of a claim; others follow within seconds.
	// After an error, the epoch counts as not seen.
	Check func(ctx context.Context, first bool) (uint64, error)
	// Judged receives the verdict on a claim; may be nil.
	Judged func(Claim, Verdict)
	// Trouble receives errors; may be nil.
	Trouble func(error)
}

func (c Config) trouble(what string, err error) {
	if c.Trouble != nil && err != nil {
		c.Trouble(fmt.Errorf("%s: %w", what, err))
	}
}

// Share announces each new epoch, and checks the claims of others, until the context ends.
func (e *Tracker) Share(ctx context.Context, c Config) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { e.listen(ctx, c) })
	beside.Go(func() { e.try(ctx, c) })
	for ctx.Err() == nil {
		epoch, over := e.Now()
		if epoch > 0 { // epoch 0 needs no announcement
			c.trouble(fmt.Sprintf("tell that the storage is in epoch %d", epoch), Say(c.Bus, Claim{Epoch: epoch, By: c.ID}))
		}
		wait(ctx, over, again)
	}
}

// Say publishes a claim.
func Say(b bus.Peers, claim Claim) error {
	data, _ := json.Marshal(claim) // a number and a string always have a JSON form
	return b.Broadcast(topic, data)
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

// wait waits for a while, or until over is closed.
func wait(ctx context.Context, over <-chan struct{}, while time.Duration) {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-over:
	case <-timer.C:
	}
}
