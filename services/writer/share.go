package writer

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/roster"
)

const (
	// probeEvery and probeTimeout bound how long a writer that has lost the API
	// server keeps turns from those that have not.
	probeEvery   = time.Second
	probeTimeout = 2 * time.Second
)

// share is a writer's share of the turns: those of the controllers that fall to
// it. A writer that cannot reach the API server leaves the turns to those that
// can, also those that it has in hand.
type share struct {
	roster.Ranked
	probe func(context.Context) error

	mu    sync.Mutex
	lost  error // the API server, as of the newest probe
	drop  context.CancelFunc
	hands context.Context // of the turns in hand
}

func newShare(b bus.Bus, id string, probe func(context.Context) error) *share {
	s := &share{probe: probe}
	s.Ranked = roster.Ranked{
		Bus: b, Of: func(w bus.Work) string { return w.Stream },
		Roster: roster.New(roster.Config{Bus: b, Service: "writers", ID: id, Fit: s.fit}),
	}
	return s
}

// run takes part until the first context ends. The second one is that of all
// turns in hand.
func (s *share) run(ctx, all context.Context) {
	s.renew(all)
	var talking sync.WaitGroup
	defer talking.Wait()
	talking.Go(func() { s.Roster.Run(ctx) })
	for ctx.Err() == nil {
		s.look(ctx)
		if !s.fit() && s.Roster.Others() > 0 {
			// By now the others have heard that they come first.
			s.renew(all)
		}
		wait(ctx, probeEvery)
	}
}

func (s *share) look(ctx context.Context) {
	probe, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := s.probe(probe)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.lost = err
	}
}
