package watcher

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Versions are those of the whole storage, so when it is restored from a backup all
// kinds go back, and each that looks soon enough finds that out. A kind whose position
// the storage has passed again before it looked cannot: it is told by the others, of
// this watcher and of every other.

// rewoundTopic is where watchers tell each other that the storage went back.
const rewoundTopic = "rewound"

// rewinding is what is told of a storage that went back.
type rewinding struct {
	Kind kinds.Name `json:"kind"`
	// Since is when the history was last known to be the one that was watched, by the
	// clock of who tells it.
	Since time.Time `json:"since"`
}

// hearsay is what a kind knows of the storage, for others and from them.
type hearsay struct {
	steady time.Time // when the history was last known to be the one that was watched
	proven bool      // what is watched now is the history that was watched before
	opened time.Time // when the listing began that opened this epoch; zero: not known
	quoted bool      // the next epoch is opened because another kind says so

	mu   sync.Mutex
	told *rewinding // by another kind, and not looked at yet
}

// gossip passes on what kinds find out about the storage, until the context ends.
func (s *Service) gossip(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.config.Bus.Listen(ctx, rewoundTopic, func(data []byte) {
			var r rewinding
			if json.Unmarshal(data, &r) != nil {
				return // not ours
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for name, k := range s.kinds {
				if name != r.Kind {
					k.watch.learn(r)
					knock(k.watch.news)
				}
			}
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot hear what other kinds find out about the storage")
			pause(ctx, lookEvery)
		}
	}
}

// learn notes what another kind has found.
func (h *hearsay) learn(r rewinding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told == nil || h.told.Since.Before(r.Since) {
		h.told = &r
	}
}

// attest notes whether the history is known to be the one that was watched, and that
// it is so now.
func (h *hearsay) attest(proven bool) {
	if h.proven = proven; proven {
		h.steady = time.Now()
	}
}

// misled is an error when another kind has found that the storage went back, and this
// one has not opened an epoch since that other was known not to have.
func (h *hearsay) misled() error {
	h.mu.Lock()
	r := h.told
	h.told = nil
	h.mu.Unlock()
	if r == nil || h.opened.After(r.Since) {
		return nil
	}
	h.quoted = true
	return fmt.Errorf("%w, as %s has shown", errRewound, r.Kind)
}

// opens notes that a listing opens an epoch, and tells the other kinds unless it is
// from one of them. Who does not hear it finds out with the next listing, if at all.
func (k *kindWatch) opens(ctx context.Context) {
	now, steady := time.Now(), k.steady
	if steady.IsZero() {
		steady = k.since // what the log says
	}
	quoted := k.quoted
	k.opened, k.steady, k.quoted = now, now, false
	if quoted {
		return
	}
	data, err := json.Marshal(rewinding{Kind: k.kind.Name, Since: steady})
	if err == nil {
		err = k.bus.Say(rewoundTopic, data)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell the other kinds that the storage went back", "kind", k.kind.Name)
	}
}
