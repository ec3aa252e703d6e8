package beside

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// Bus is what the service needs of a bus. It reads logs and states, and publishes
// on the subjects of shadows.
type Bus interface {
	bus.ShadowBus
	bus.Archive
}

// Config of the service.
type Config struct {
	Bus         Bus
	Controllers []reconcile.Any
	// Code is the version of the program; it is recorded in every turn.
	Code string
	// ID identifies the replica; empty: a random one.
	ID string
	// Delay is how far the comparison stays behind the present, so that the logs of
	// all kinds have caught up; 0 means a second.
	Delay time.Duration
	// Settings of the comparison.
	Settings shadow.Settings
}

// Service compares controllers with KCM. Every replica compares, and for each
// controller one of them reports the findings.
type Service struct {
	config  Config
	members *membership.Membership
	first   func(work string) bool // whether this replica does the work
	metrics *metrics

	mu      sync.Mutex
	state   error
	left    map[string]bool // controllers that are not compared at present
	changed chan struct{}   // closed and replaced when left changes
}

// New prepares the service; nothing runs before [Service.Run].
//
// Errors: the configuration lacks a bus, or names a controller twice.
func New(config Config) (*Service, error) {
	if config.Bus == nil {
		return nil, errors.New("configure shadows: no bus")
	}
	if config.Delay == 0 {
		config.Delay = time.Second
	}
	known := map[string]bool{}
	for _, c := range config.Controllers {
		name := c.Describe().Name
		if known[name] {
			return nil, fmt.Errorf("configure shadows: controller %s is there twice", name)
		}
		known[name] = true
	}
	all := membership.New(membership.Config{Bus: config.Bus, Service: company(known), ID: config.ID})
	return &Service{
		config: config, metrics: newMetrics(config.Controllers), state: errors.New("not started"),
		members: all, first: all.First, changed: make(chan struct{}),
	}, nil
}

// company is the group of replicas that share work: those that compare the same
// controllers.
func company(controllers map[string]bool) string {
	sum := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(controllers)) {
		_, _ = sum.Write([]byte(name + "\x00")) // a hash never fails
	}
	return fmt.Sprintf("shadows.%x", sum.Sum64())
}

// again is the pause before a session that broke off is followed by a new one.
const again = time.Second

// Run compares until the context ends.
//
// Errors: the streams of the shadows cannot be created, for another reason than an
// unavailable bus.
func (s *Service) Run(ctx context.Context) error {
	for _, c := range s.config.Controllers {
		if err := s.config.Bus.EnsureShadow(ctx, c.Describe().Name); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("prepare the shadow: %w", err)
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.members.Run(ctx) })
	for ctx.Err() == nil {
		err := s.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errOthers) {
			continue
		}
		s.become(err)
		s.metrics.restarts.Inc()
		klog.FromContext(ctx).Error(err, "Restarting the comparison")
		sleep.For(ctx, again)
	}
	s.become(errors.New("ended"))
	return nil
}

// errOthers ends a session that compares other controllers than are to be compared now.
var errOthers = errors.New("other controllers are to be compared")

// LeaveOut sets the controllers that are not compared at present, because kube-controller-manager does
// not run them. A change begins the comparison anew.
func (s *Service) LeaveOut(controllers map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.Equal(s.left, controllers) {
		s.left = maps.Clone(controllers)
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// compared are the controllers that are compared at present; changed is closed when others are.
func (s *Service) compared() (all []reconcile.Any, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.config.Controllers {
		if !s.left[c.Describe().Name] {
			all = append(all, c)
		}
	}
	return all, s.changed
}

// session is one comparison, until other controllers are to be compared. A panic ends the session, but
// not the other services of the process.
//
// Errors: errOthers; the context ends; the comparison cannot go on.
func (s *Service) session(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("compare: panic: %v\n%s", p, debug.Stack())
		}
	}()
	controllers, changed := s.compared()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-changed:
			end(errOthers)
		case <-ctx.Done():
		}
	}()
	if len(controllers) == 0 {
		s.become(nil)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err = newSession(s, controllers).run(ctx); errors.Is(context.Cause(ctx), errOthers) {
		return errOthers // whatever was broken off
	}
	return err
}

func (s *Service) become(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = err
}

// Checks are the health checks: the bus, and whether the comparison has begun.
func (s *Service) Checks() map[string]func() error {
	return map[string]func() error{
		"shadows": func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.state
		},
		"shadows-bus": s.config.Bus.Healthy,
	}
}

// Collectors are the metrics.
func (s *Service) Collectors() []prometheus.Collector { return s.metrics.collectors() }
