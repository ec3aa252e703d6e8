package writer

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
)

// unfitKnownAfter is when the other writers have heard that this one is unfit, and ask for its turns.
const unfitKnownAfter = 300 * time.Millisecond

// share is a writer's share of the work: the turns of the controllers for which this writer ranks
// first. A writer that is cut off from the API server leaves its turns, also those in flight, to
// writers that are not.
type share struct {
	membership.Ranked

	mu          sync.Mutex
	left        bool            // this writer leaves its turns to others
	turnsCtx    context.Context // the context of the turns in flight; nil before the first
	cancelTurns context.CancelFunc
}

// newShare shares the work with the other writers of the membership. It fills in the bus and the
// service of the configuration.
func newShare(b bus.Bus, config membership.Config) *share {
	config.Bus, config.Service = b, report.Writers
	return &share{Ranked: membership.Ranked{Bus: b, Of: func(w bus.Work) string { return w.Stream }, Membership: membership.New(config)}}
}

// run takes part in the membership until the context ends.
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

// leave sets whether this writer leaves its turns to others. Leaving interrupts the turns in
// flight, so that they are handed back; the next writer finds out first which effects are there.
func (s *share) leave(left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = left
	if left && s.cancelTurns != nil {
		s.cancelTurns()
		s.turnsCtx, s.cancelTurns = nil, nil
	}
}

// turnContext returns the context for a turn that is taken now. It ends with all, or when this writer
// leaves its turns to others. takes is false while it does, for a turn that was on its way.
func (s *share) turnContext(all context.Context) (hand context.Context, takes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return nil, false
	}
	if s.turnsCtx == nil {
		s.turnsCtx, s.cancelTurns = context.WithCancel(all)
	}
	return s.turnsCtx, true
}

// redeliveryDelay returns the redelivery delay of a turn that is handed back: while this writer leaves its
// turns to others, long enough for another one to ask for them.
func (s *share) redeliveryDelay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return unfitKnownAfter
	}
	return 0
}

// activity is the collector of the membership and of the controllers that this writer carries out.
type activity struct {
	share       *share
	inFlight    *inFlightTurns
	controllers []Profile
}

var membersDesc = prometheus.NewDesc("millrace_writer_members", "Writers whose heartbeats this one receives, itself included; 33 at most. With signing keys, only those with a trusted signature.", nil, nil)

var activeDesc = prometheus.NewDesc("millrace_writer_active", "1 while the controller is assigned to this writer.", []string{"controller"}, nil)

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
		if p.Leased && a.inFlight.holds(p.Name) || !p.Leased && a.share.Membership.First(subject.TurnStream(p.Name)) {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(activeDesc, prometheus.GaugeValue, value, p.Name)
	}
}
