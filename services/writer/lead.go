package writer

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/services/writer/claim"
)

// lead carries out the turns of the leased controllers while this writer holds their Lease, until the
// context ends, and then finishes what is in flight; working ends when that has to be broken off, too.
//
// One writer holds the Lease, so nothing is shared with the others. The reconcilers decide about the
// controllers only while the heartbeats of this writer name them, and their turns have the token of
// this term. Turns with another token are refused: they were decided before kube-controller-manager
// had the controllers, and know nothing of what it wrote.
func (s *Service) lead(ctx, working context.Context, leased []*executor, token uint64) error {
	term, cut := context.WithCancel(working)
	defer cut()
	leads := map[string]uint64{}
	for _, x := range leased {
		x.token.Store(token)
		leads[x.profile.Name] = token
	}
	s.inFlight.announceLeads(leads)
	readers, reading := errgroup.WithContext(ctx)
	for _, x := range leased {
		readers.Go(func() error {
			return s.config.Bus.Work(reading, x.work(reading), func(d bus.Delivery) { x.take(reading, term, d) })
		})
	}
	<-reading.Done()
	s.inFlight.announceLeads(nil)
	err := readers.Wait()
	s.drainLeased(leased, cut)
	for _, x := range leased {
		x.token.Store(0)
	}
	return err
}

// drainLeased waits until no turn of the leased controllers is in flight. After [Config].Drain it calls
// cut, which makes the remaining turns give up.
func (s *Service) drainLeased(leased []*executor, cut func()) {
	timer := time.AfterFunc(s.config.Drain, cut)
	defer timer.Stop()
	is := func(controller string) bool {
		return slices.ContainsFunc(leased, func(x *executor) bool { return x.profile.Name == controller })
	}
	for !s.inFlight.empty(is) {
		time.Sleep(claim.Interval / 8)
	}
}

// announceLeads has the next heartbeat, which comes soon, tell which controllers this writer carries
// out as the holder of their Lease.
func (f *inFlightTurns) announceLeads(leads map[string]uint64) {
	f.mu.Lock()
	f.leads = leads
	f.mu.Unlock()
	signal(f.wake)
	signal(f.hurry)
}

// empty reports whether no turn of some controllers is in flight.
func (f *inFlightTurns) empty(of func(controller string) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range f.deliveries {
		if of(at.Controller) {
			return false
		}
	}
	return true
}

// holds reports whether this writer holds the Lease of a leased controller.
func (f *inFlightTurns) holds(controller string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leads[controller] != 0
}
