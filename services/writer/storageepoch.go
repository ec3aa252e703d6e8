package writer

import (
	"context"

	"github.com/millrace/millrace/pkg/events/storageepoch"
)

// shareEpochs announces the storage's epoch to the other processes, and checks what they announce,
// until the context ends. During a check turns of an earlier epoch wait; the writer refuses them
// if a log shows the later epoch.
func (s *Service) shareEpochs(ctx context.Context) {
	s.epochs.epoch.Share(ctx, storageepoch.Config{
		Bus: s.config.Bus, ID: s.share.Membership.ID(),
		Check:   func(ctx context.Context, _ bool) (uint64, error) { return s.epochs.check(ctx) },
		Trouble: func(err error) { s.config.Log.Warn("cannot exchange the storage epoch", "err", err) },
		Judged: func(c storageepoch.Claim, v storageepoch.Verdict) {
			s.metrics.claims.WithLabelValues(string(v)).Inc()
			if v != storageepoch.Confirmed {
				s.config.Log.Error("ignored a claim that the API server's storage was restored: no log shows it",
					"epoch", c.Epoch, "by", c.By, "verdict", v)
			}
		},
	})
}
