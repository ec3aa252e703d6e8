// Package reconcilers is the service that decides: it folds the watcher's deltas, asks
// controllers, and stores their turns for the writer. It holds no Kubernetes credential. Any
// number of replicas may run; package engine keeps them from deciding the same thing twice.
package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// Config of the service.
type Config struct {
	Bus         bus.Bus
	Controllers []reconcile.Any
	// Code is the version of the program; it is recorded in every turn.
	Code string
	// ID identifies the replica; empty: a random one.
	ID string
	// Trace creates the spans; nil creates none.
	Trace *trace.Tracer
	// Leased reports whether a controller moves with a Lease: this replica decides about it only while
	// a writer holds that Lease. nil: none does.
	Leased func(controller string) bool
	// Settings of every engine. New fills in Trace, Code, Lost, Leased and the callbacks for metrics.
	// Signatures say what turns are signed with and whose outcomes count.
	Settings shell.Settings
}

// Service is the reconcilers.
type Service struct {
	config  Config
	memory  *cache.Cache
	loops   []*shell.Loop
	members *membership.Membership
	metrics *metrics

	integrity  *integrity
	stalls     *stalls
	signatures *signatures
	leases     leases

	mu       sync.Mutex
	followed map[kinds.Name]bool // kinds that have a follower
	ready    error
}

// New prepares the service; nothing runs before [Service.Run].
//
// Errors: the configuration lacks a bus, or names a controller twice.
func New(config Config) (*Service, error) {
	if config.Bus == nil {
		return nil, errors.New("configure reconcilers: no bus")
	}
	s := &Service{
		config: config, memory: cache.New(), integrity: newIntegrity(), stalls: newStalls(), followed: map[kinds.Name]bool{},
		ready: errors.New("not started"),
	}
	s.metrics = newMetrics(s)
	s.signatures = newSignatures(config.Settings.Signatures, s.busTime)
	s.members = membership.New(membership.Config{
		Bus: config.Bus, Service: report.Reconcilers, ID: config.ID, Fit: s.fit, Sign: s.signatures.sign, Signed: s.signatures.signed,
	})
	known := map[string]bool{}
	for _, c := range config.Controllers {
		d := c.Describe()
		if known[d.Name] {
			return nil, fmt.Errorf("configure reconcilers: controller %s is there twice", d.Name)
		}
		known[d.Name] = true
		s.memory.Register(d)
		settings := config.Settings
		settings.Trace = config.Trace
		settings.Code, settings.Lost = config.Code, s.integrity.lost(d.Name)
		settings.Signatures.Refused = s.integrity.refused(d.Name)
		if config.Leased != nil && config.Leased(d.Name) {
			settings.Leased, settings.Led = true, s.leases.follow(d.Name)
		}
		s.metrics.watch(&settings, d)
		l := shell.NewLoop(config.Bus, c, s.memory, settings, s.metrics.upstream.worked(d.Queue))
		l.Own(0) // before the other replicas are known
		s.loops = append(s.loops, l)
	}
	return s, nil
}

// Run serves until the context ends, and then finishes storing turns.
//
// Errors: the streams of a controller cannot be created, for another reason than an unavailable
// bus.
func (s *Service) Run(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.members.Run(ctx) })
	all.Go(func() { s.watchStalls(ctx) })
	all.Go(func() { s.shareOut(ctx) })
	all.Go(func() { s.followWakes(ctx) })
	all.Go(func() { s.readTime(ctx) })
	all.Go(func() { shell.HearWriters(ctx, s.config.Bus, s.loops) })
	ready := make(chan struct{}, len(s.loops))
	for _, l := range s.loops {
		var once sync.Once
		all.Go(func() { l.Run(ctx) })
		all.Go(func() { l.Serve(ctx, func() { once.Do(func() { ready <- struct{}{} }) }) })
	}
	for range s.loops {
		select {
		case <-ready: // no outcome can be missed any more: decisions may begin
		case <-ctx.Done():
			return nil
		}
	}
	s.become(nil)
	s.discover(ctx, &all)
	s.become(errors.New("ended"))
	return nil
}

// prepare creates the streams of the controllers, and shuts the engines for every kind that they
// name until that kind has been folded.
func (s *Service) prepare(ctx context.Context) error {
	for _, l := range s.loops {
		if err := s.config.Bus.EnsureController(ctx, l.Name()); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("prepare %s: %w", l.Name(), err)
		}
		for _, in := range l.Description().Inputs {
			if !in.Every {
				l.Shut(in.Kind.Name)
			}
		}
	}
	return nil
}

const (
	// eager is how often the service looks for kinds while some are missing.
	eager = 100 * time.Millisecond
	// patient is how often the service looks for kinds otherwise, while turns are being stored,
	// because some may be about a kind that is not known yet.
	patient = time.Second
	// resting is how often when nothing happens: a new kind needs its first objects folded, but
	// no client waits for them.
	resting = 5 * time.Second
)

// discover starts a follower for each kind that a controller reads, as soon as
// its streams exist.
func (s *Service) discover(ctx context.Context, all *sync.WaitGroup) {
	for ctx.Err() == nil {
		stored, complete := s.stored(), false
		// Only these wait for it. Another one that begins to wait meanwhile waits for the next discovery.
		waiting := s.awaitingDiscovery()
		tell(waiting, (*engine.Engine).Discover)
		if found, err := s.config.Bus.Kinds(ctx); err == nil {
			// Shut all before the first is opened, so that no engine decides on a part of the
			// state.
			var fresh []audience
			for _, kind := range found {
				if a, ok := s.claim(kind); ok {
					fresh = append(fresh, a)
				}
			}
			tell(waiting, (*engine.Engine).Discovered)
			for _, a := range fresh {
				all.Go(func() { s.follow(ctx, a) })
			}
			complete = s.complete()
		}
		if !complete {
			sleep.For(ctx, eager)
			continue
		}
		sleep.For(ctx, patient)
		for at := patient; at < resting && s.stored() == stored; at += patient {
			sleep.For(ctx, patient)
		}
	}
}

// stored is how many turns have been stored.
func (s *Service) stored() (n int) {
	for _, l := range s.loops {
		t := l.Tally()
		n += t.Writes + t.Reports + t.Repeats
	}
	return n
}

// fit: a replica that has not folded the present state leaves the work to replicas that have.
func (s *Service) fit() bool {
	return !slices.ContainsFunc(s.loops, func(l *shell.Loop) bool { return !l.HasOpened() })
}

// busTime is the time by the clock of the bus, as far as known.
func (s *Service) busTime() time.Time {
	if len(s.loops) == 0 {
		return time.Now()
	}
	return s.loops[0].BusTime()
}

// awaitingDiscovery are the loops that wait for a discovery.
func (s *Service) awaitingDiscovery() (waiting []*shell.Loop) {
	for _, l := range s.loops {
		if l.AwaitsDiscovery() {
			waiting = append(waiting, l)
		}
	}
	return waiting
}

func tell(loops []*shell.Loop, say func(*engine.Engine)) {
	for _, l := range loops {
		l.Do(say)
	}
}

// timeRead is how often the clock of the bus is read.
const timeRead = 20 * time.Second

// readTime tells the loops the time of the bus until the context ends: a loop itself asks only when it
// inspects its streams, which is rare at rest.
func (s *Service) readTime(ctx context.Context) {
	for ctx.Err() == nil {
		sleep.For(ctx, timeRead)
		state, err := s.config.Bus.StreamState(ctx, subject.WakeStream)
		if err != nil {
			continue // without the bus there are no turns to sign either
		}
		for _, l := range s.loops {
			l.SetBusTime(state)
		}
	}
}

func (s *Service) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.loops {
		for _, in := range l.Description().Inputs {
			if !in.Every && !s.followed[in.Kind.Name] {
				return false
			}
		}
	}
	return true
}

// following are the kinds that have a follower, sorted.
func (s *Service) following() []kinds.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.followed))
}

// audience holds the loops that read a kind.
type audience struct {
	kind    kinds.Kind
	readers []*shell.Loop
	casual  []*shell.Loop // readers that read every kind and do not name this one
}

// claim returns the audience of a kind that has no follower yet, and shuts its engines until the
// kind has been folded.
func (s *Service) claim(kind kinds.Kind) (a audience, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followed[kind.Name] {
		return a, false
	}
	a.kind = kind
	for _, l := range s.loops {
		reads, named, _ := uses(l.Description(), kind.Name)
		if reads {
			a.readers = append(a.readers, l)
		}
		if reads && !named {
			a.casual = append(a.casual, l)
		}
	}
	if len(a.readers) == 0 {
		return a, false
	}
	s.followed[kind.Name] = true
	for _, l := range a.readers {
		l.Do(func(d *engine.Engine) { d.Shut(kind.Name) })
	}
	return a, true
}

// follow serves a kind until its stream is deleted; discover then starts again.
func (s *Service) follow(ctx context.Context, a audience) {
	follower := shell.Follower{
		Bus: s.config.Bus, Cache: s.memory, Kind: a.kind, Loops: a.readers, Folded: s.metrics.folded(a.kind.Name),
		Troubled: s.integrity.troubled(ctx, a.kind.Name),
	}
	if err := follower.Follow(ctx); err != nil {
		for _, l := range a.casual { // these loops can do without the kind
			l.Do(func(d *engine.Engine) { d.Open(a.kind.Name) })
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.followed, a.kind.Name)
}

// uses reports whether a controller reads a kind, whether it names it, and whether changes of the
// kind cause turns.
func uses(d reconcile.Description, kind kinds.Name) (reads, named, maps bool) {
	for _, in := range d.Inputs {
		if in.Every || in.Kind.Name == kind {
			reads, named, maps = true, named || !in.Every, maps || in.Keys != nil
		}
	}
	return reads, named, maps
}

// attends reports whether changes of a kind cause turns of a loop's controller.
func attends(l *shell.Loop, kind kinds.Name) bool {
	_, _, maps := uses(l.Description(), kind)
	return maps
}

func (s *Service) become(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = err
}

// Checks are the health checks: the bus, and whether every kind that the controllers name has a
// follower.
func (s *Service) Checks() map[string]func() error {
	return map[string]func() error{
		"reconcilers": func() error {
			s.mu.Lock()
			ready := s.ready
			s.mu.Unlock()
			if ready == nil && !s.complete() {
				ready = errors.New("a kind has no stream yet; is the watcher running?")
			}
			if err := s.integrity.check(); ready == nil {
				ready = err
			}
			for _, l := range s.loops {
				if err := l.Trouble(); ready == nil && err != nil {
					ready = fmt.Errorf("%s: %w", l.Name(), err)
				}
			}
			return ready
		},
		"reconcilers-bus":      s.config.Bus.Healthy,
		"reconcilers-replicas": s.members.Check,
	}
}

// Notes are checks, one for each controller, of whether it has work and decides nothing. None of
// them makes the process unready, because a stall comes from something else that is missing,
// which no restart brings back, and the replica goes on with its other controllers. An unready
// replica would only delay the rollout that fixes the cause.
func (s *Service) Notes() map[string]func() error {
	notes := map[string]func() error{}
	for _, l := range s.loops {
		notes["stalled-"+l.Name()] = func() error { return s.stalls.check(l.Name()) }
	}
	return notes
}

// Collectors are the metrics.
func (s *Service) Collectors() []prometheus.Collector {
	return slices.Concat(s.metrics.collectors(), s.integrity.collectors(), []prometheus.Collector{s.signatures.unproven})
}

// Parked are the parked keys and messages, by controller.
func (s *Service) Parked() map[string][]engine.Parked {
	out := map[string][]engine.Parked{}
	for _, l := range s.loops {
		if parked := l.Parked(); len(parked) > 0 {
			out[l.Name()] = parked
		}
	}
	return out
}

// Key is the state of a controller's key in this process; ok is false if the controller does not
// run here, or does not answer before the context ends.
func (s *Service) Key(ctx context.Context, controller string, key events.Key) (k report.KeyState, ok bool) {
	for _, l := range s.loops {
		if l.Name() == controller {
			return l.Key(ctx, key)
		}
	}
	return k, false
}

// Unpark retries a parked key.
func (s *Service) Unpark(controller string, key events.Key) {
	for _, l := range s.loops {
		if l.Name() == controller {
			l.Do(func(d *engine.Engine) { d.Unpark(key) })
		}
	}
}
