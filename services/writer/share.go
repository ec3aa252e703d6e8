package writer

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/roster"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// probeEvery and probeTimeout bound how long a writer that has lost the API
	// server keeps turns from those that have not. Where there are no others it is
	// looked for the sake of readiness alone, every probeAlone.
	probeEvery   = time.Second
	probeAlone   = 5 * time.Second
	probeTimeout = 2 * time.Second
	// heardBy is when the other writers have heard that this one is of no use.
	heardBy = 300 * time.Millisecond
)

// share is a writer's share of the turns: those of the controllers that fall to
// it. A writer that cannot reach the API server leaves the turns to those that
// can, also those that it has in hand.
type share struct {
	roster.Ranked
	probe func(context.Context) error

	mu   sync.Mutex
	lost error           // the API server, as of the newest probe
	hand context.Context // of the turns in hand; nil before the first
	drop context.CancelFunc
}

func newShare(b bus.Bus, id string, probe func(context.Context) error) *share {
	s := &share{probe: probe}
	s.Ranked = roster.Ranked{
		Bus: b, Of: func(w bus.Work) string { return w.Stream },
		Roster: roster.New(roster.Config{Bus: b, Service: "writers", ID: id, Fit: s.fit}),
	}
	return s
}

func (s *share) fit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost == nil
}

// run takes part until the context ends.
func (s *share) run(ctx context.Context) {
	var talking sync.WaitGroup
	defer talking.Wait()
	talking.Go(func() { s.Roster.Run(ctx) })
	for ctx.Err() == nil {
		if s.look(ctx); !s.fit() {
			wait(ctx, heardBy)
			if s.Roster.Others() > 0 {
				s.release()
			}
		}
		if s.fit() && s.Roster.Others() == 0 {
			wait(ctx, probeAlone)
			continue
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

// holding is the context of a turn that is taken in hand now. It ends with all,
// or when the turns in hand are left to others.
func (s *share) holding(all context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hand == nil {
		s.hand, s.drop = context.WithCancel(all)
	}
	return s.hand
}

// release interrupts what is in hand, so that it is handed back. Whoever gets it
// finds out first what has been done of it.
func (s *share) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop != nil {
		s.drop()
	}
	s.hand, s.drop = nil, nil
}

// activity tells which controllers fall to this writer.
type activity struct {
	share       *share
	controllers []Profile
}

var activeDesc = prometheus.NewDesc("millrace_writer_active", "1 while the controller's turns fall to this writer.", []string{"controller"}, nil)

// Describe implements [prometheus.Collector].
func (a activity) Describe(out chan<- *prometheus.Desc) { out <- activeDesc }

// Collect implements [prometheus.Collector].
func (a activity) Collect(out chan<- prometheus.Metric) {
	for _, p := range a.controllers {
		value := 0.0
		if a.share.Roster.First(subject.TurnStream(p.Name)) {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(activeDesc, prometheus.GaugeValue, value, p.Name)
	}
}
