package watcher

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/subject"
)

// share tells the others which epoch the storage is in, and looks into what they tell,
// until the context ends.
func (s *Service) share(ctx context.Context) {
	log := klog.FromContext(ctx)
	s.epoch.Share(ctx, storageepoch.Config{
		Bus: s.config.Bus, ID: s.members.ID(), Check: s.epochSeen,
		Trouble: func(err error) { log.Error(err, "Cannot talk about the storage's epoch") },
		Judged: func(c storageepoch.Claim, v storageepoch.Verdict) {
			s.metrics.claims.WithLabelValues(string(v)).Inc()
			if v != storageepoch.Confirmed {
				log.Error(nil, "Another process says that the API server's storage went back, and nothing here shows it; nothing is listed anew",
					"epoch", c.Epoch, "by", c.By, "verdict", v)
			}
		},
	})
}

// looksAtOnce is how many logs are looked at together.
const looksAtOnce = 16

// epochSeen is the newest epoch in the logs, which are fenced. At the first look at a
// claim the API server is asked as well, for the position of one kind that is watched
// here: that of which the newest change is told, since the storage has most likely not
// passed it again. Its watch finds out, and begins the epoch.
func (s *Service) epochSeen(ctx context.Context, first bool) (epoch uint64, err error) {
	all, err := s.config.Bus.Kinds(ctx)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var latest events.Delta
	looking, ctx := errgroup.WithContext(ctx)
	looking.SetLimit(looksAtOnce)
	for _, kind := range all {
		looking.Go(func() error {
			d, err := lastTold(ctx, s.config.Bus, kind.Name)
			mu.Lock()
			defer mu.Unlock()
			epoch = max(epoch, d.Epoch)
			if s.watches(kind.Name) && !d.Sync && (latest.Kind == "" || kinds.CompareVersions(d.ResourceVersion, latest.ResourceVersion) > 0) {
				latest = d
			}
			return err
		})
	}
	err = looking.Wait()
	if first && latest.Kind != "" {
		s.mu.Lock()
		if r := s.kinds[latest.Kind]; r != nil {
			knock(r.watch.doubts)
		}
		s.mu.Unlock()
	}
	return epoch, err
}

// lastTold is the newest delta of a log; the zero value where there is none that can be
// read.
func lastTold(ctx context.Context, b bus.Bus, kind kinds.Name) (events.Delta, error) {
	log, err := b.StreamState(ctx, subject.LogStream(kind))
	var d events.Delta
	if err == nil && log.Messages > 0 {
		d, _, err = stored(ctx, b, subject.LogStream(kind), log.Last)
	}
	switch {
	case errors.Is(err, bus.ErrNoStream), errors.Is(err, events.ErrDamaged):
		return events.Delta{}, nil
	case err != nil:
		return events.Delta{}, fmt.Errorf("look at the log of %s: %w", kind, err)
	}
	d.Kind = kind
	return d, nil
}

// errOutlived: another kind has found out that the storage went back.
var errOutlived = fmt.Errorf("%w, as another kind has shown", errRewound)

// outlived tells whether the epoch of a kind has ended.
func (k *kindWatch) outlived() bool {
	epoch, _ := k.epoch.Now()
	return epoch > k.cursor.Epoch
}
