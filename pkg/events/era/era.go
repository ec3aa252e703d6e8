// Package era knows which epoch the storage behind the API server is in, and shares
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
package era

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

const (
	// topic is where the epoch is told.
	topic = "epoch"
	// again is how often one that is not the first is told: somebody may have been
	// away, and a kind may have begun without having heard.
	again = 10 * time.Second
	// rest is how long to wait for a bus that is away.
	rest = time.Second
)

// Era is the epoch that the storage is in, as far as anybody has found out. Its
// methods may be called by many goroutines.
type Era struct {
	mu    sync.Mutex
	epoch uint64
	over  chan struct{} // closed when the epoch is
}

// word is what is told.
type word struct {
	Epoch uint64 `json:"epoch"`
}

// New is the first epoch, which is 0.
func New() *Era { return &Era{over: make(chan struct{})} }

// Now is the epoch, and what is closed when there is a later one.
func (e *Era) Now() (epoch uint64, over <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch, e.over
}

// Begin takes an epoch in, if it is later than the one that is known.
func (e *Era) Begin(epoch uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch <= e.epoch {
		return
	}
	e.epoch = epoch
	close(e.over)
	e.over = make(chan struct{})
}

// Share tells others of each new epoch, and takes in what they tell, until the context
// ends. trouble is told what is in the way meanwhile.
func (e *Era) Share(ctx context.Context, b bus.Peers, trouble func(error)) {
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { e.listen(ctx, b, trouble) })
	for ctx.Err() == nil {
		epoch, over := e.Now()
		if epoch > 0 { // nobody takes the first one for another
			if err := Say(b, epoch); err != nil {
				trouble(fmt.Errorf("tell that the storage is in epoch %d: %w", epoch, err))
			}
		}
		wait(ctx, over, again)
	}
}

// Say tells everybody that the storage is in an epoch.
func Say(b bus.Peers, epoch uint64) error {
	data, err := json.Marshal(word{epoch})
	if err != nil {
		return err
	}
	return b.Say(topic, data)
}

func (e *Era) listen(ctx context.Context, b bus.Peers, trouble func(error)) {
	for ctx.Err() == nil {
		err := b.Listen(ctx, topic, func(data []byte) {
			var told word
			if json.Unmarshal(data, &told) == nil {
				e.Begin(told.Epoch)
			}
		})
		if err != nil {
			trouble(fmt.Errorf("hear which epoch the storage is in: %w", err))
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
