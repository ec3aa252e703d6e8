package watcher

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/services/watcher/kindlog"
)

// shareEpoch tells other processes which epoch the storage is in, and checks their claims, until the
// context ends.
func (s *Service) shareEpoch(ctx context.Context) {
	log := klog.FromContext(ctx)
	s.epoch.Share(ctx, storageepoch.Config{
		Bus: s.config.Bus, ID: s.members.ID(), Check: s.epochSeen,
		Trouble: func(err error) { log.Error(err, "Cannot exchange the storage epoch") },
		Judged: func(c storageepoch.Claim, v storageepoch.Verdict) {
			s.metrics.claims.WithLabelValues(string(v)).Inc()
			if v != storageepoch.Confirmed {
				log.Error(nil, "Ignored a claim that the API server's storage was restored: this watcher has found no sign of it",
					"epoch", c.Epoch, "by", c.By, "verdict", v)
			}
		},
	})
}

// maxLogReads bounds the logs that are read at the same time.
const maxLogReads = 16

// epochSeen returns the newest epoch in the logs, which are fenced. At the first check of a claim,
// one watch of this watcher also asks the API server for its position: that of the kind with the
// newest recorded change, since the storage has most likely not passed that again. If the storage
// went back, that watch finds out, and begins the epoch.
func (s *Service) epochSeen(ctx context.Context, first bool) (epoch uint64, err error) {
	all, err := s.config.Bus.Kinds(ctx)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var latest events.Delta
	looking, ctx := errgroup.WithContext(ctx)
	looking.SetLimit(maxLogReads)
	for _, kind := range all {
		looking.Go(func() error {
			d, err := kindlog.Newest(ctx, s.config.Bus, kind.Name)
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
			r.reflector.CheckEpoch()
		}
		s.mu.Unlock()
	}
	return epoch, err
}
