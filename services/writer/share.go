package writer

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/subject"
)

// heardBy is when the other writers have heard that this one is of no use, and ask for
// its turns.
const heardBy = 300 * time.Millisecond

// share is a writer's share of the turns: those of the controllers that fall to
// it. A writer that is cut off from the API server leaves the turns to those that
// are not, also those that it has in flight.
type share struct {
	membership.Ranked

	mu   sync.Mutex
	left bool            // the turns are left to others
	hand context.Context // of the turns in flight; nil before the first
	drop context.CancelFunc
}

// newShare shares with the other writers that the membership hears. The service and the bus of its
// configuration are filled in.
func newShare(b bus.Bus, config membership.Config) *share {
	config.Bus, config.Service = b, events.Writers
	return &share{Ranked: membership.Ranked{Bus: b, Of: func(w bus.Work) string { return w.Stream }, Membership: membership.New(config)}}
}

// run takes part until the context ends.
func (s *share) run(ctx context.Context) {
	var talking sync.WaitGroup
	defer talking.Wait()
	talking.Go(func() { s.Membership.Run(ctx) })
	for ctx.Err() == nil {
		changed := s.Membership.Changed()
		s.leave(s.Membership.Unfit() && s.Membership.Others() > 0)
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// leave says whether the turns are left to others. What is in flight is interrupted, so
// that it is handed back. The writer that gets it finds out first what has been done of
// it.
func (s *share) leave(left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = left
	if left && s.drop != nil {
		s.drop()
		s.hand, s.drop = nil, nil
	}
}

// holding is the context of a turn that is taken now. It ends with all, or when
// the turns in flight are left to others. While they are, there is none: a turn that was
// on its way here is not to be taken.
func (s *share) holding(all context.Context) (hand context.Context, takes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return nil, false
	}
	if s.hand == nil {
		s.hand, s.drop = context.WithCancel(all)
	}
	return s.hand, true
}

// back is when a turn that is handed back should come again: not before it comes to
// another writer.
func (s *share) back() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return heardBy
	}
	return 0
}

// activity tells which controllers fall to this writer.
type activity struct {
	share       *share
	controllers []Profile
}

var membersDesc = prometheus.NewDesc("millrace_writer_members", "Writers that this one hears on the bus, itself among them; 33 at most. Where there are keys, those whose heartbeats are signed.", nil, nil)

var activeDesc = prometheus.NewDesc("millrace_writer_active", "1 while the controller's turns fall to this writer.", []string{"controller"}, nil)

// Describe implements [prometheus.Collector].
func (a activity) Describe(out chan<- *prometheus.Desc) {
	out <- membersDesc
	out <- activeDesc
}

// Collect implements [prometheus.Collector].
func (a activity) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(membersDesc, prometheus.GaugeValue, float64(a.share.Membership.Members()))
	for _, p := range a.controllers {
		value := 0.0
		if a.share.Membership.First(subject.TurnStream(p.Name)) {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(activeDesc, prometheus.GaugeValue, value, p.Name)
	}
}
