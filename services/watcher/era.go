package watcher

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
)

// Versions are those of the whole storage, so when it is restored from a backup all
// kinds go back. Each that looks soon enough finds that out; a kind whose position the
// storage has passed again before it looked cannot. So epochs are of the storage too:
// who finds out begins the next one, tells the others, of this watcher and of every
// other, and they begin the same. Where all kinds are in one epoch, readers can tell
// which of them has not been told again yet.

// eraRepeated is how often the others are told of an epoch that is not the first one:
// one of them may have been away, and a kind may have begun without having heard.
const eraRepeated = 10 * time.Second

// era is the epoch that the storage is in, as far as anybody has found out. All
// kinds of a watcher share one.
type era struct {
	mu    sync.Mutex
	epoch uint64
	over  chan struct{} // closed when the epoch is
}

func newEra() *era { return &era{over: make(chan struct{})} }

// now is the epoch, and what is closed when there is a later one.
func (e *era) now() (epoch uint64, over <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch, e.over
}

// begin takes an epoch in, and tells whether that is news.
func (e *era) begin(epoch uint64) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch <= e.epoch {
		return false
	}
	e.epoch = epoch
	close(e.over)
	e.over = make(chan struct{})
	return true
}

// gossip takes in what other watchers find out about the storage, until the context ends.
func (s *Service) gossip(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.config.Bus.Listen(ctx, events.EpochTopic, func(data []byte) {
			var told events.StorageEpoch
			if json.Unmarshal(data, &told) == nil {
				s.era.begin(told.Epoch)
			}
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot hear what other watchers find out about the storage")
			pause(ctx, lookEvery)
		}
	}
}

// repeat tells the other watchers of each new epoch, and again and again of the one
// that is, until the context ends.
func (s *Service) repeat(ctx context.Context) {
	for ctx.Err() == nil {
		epoch, over := s.era.now()
		if epoch > 0 {
			data, err := json.Marshal(events.StorageEpoch{Epoch: epoch})
			if err == nil {
				err = s.config.Bus.Say(events.EpochTopic, data)
			}
			if err != nil {
				klog.FromContext(ctx).Error(err, "Cannot tell the other watchers which epoch the storage is in", "epoch", epoch)
			}
		}
		again := time.NewTimer(eraRepeated)
		select {
		case <-ctx.Done():
		case <-over:
		case <-again.C:
		}
		again.Stop()
	}
}

// outlived is an error when the epoch of a kind has ended, and what is closed when
// it does.
func (k *kindWatch) outlived() (over <-chan struct{}, err error) {
	epoch, over := k.era.now()
	if epoch > k.cursor.Epoch {
		return nil, fmt.Errorf("%w, as another kind has shown", errRewound)
	}
	return over, nil
}
