// Package watcher turns what the API server reports into the logs on the bus:
// one list and watch per kind, however many read the log.
//
// Any number of watchers may run. The oldest is active, the others stand by and
// take over within a second; if two believe to be active, the log refuses one.
//
// An object whose whole body is larger than a message may be is reported in
// metadata form, and its delta's Form says so: nothing is dropped, and whoever
// needs the rest knows that it is not there.
package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
)

var (
	// ErrRefused: the API server does not accept the credentials.
	ErrRefused = errors.New("the API server refuses the watcher's credentials")
	// ErrUnreachable: the API server did not answer at all since the start.
	ErrUnreachable = errors.New("the API server cannot be reached")
)

const (
	discoverEvery  = 2 * time.Second
	startPatience  = time.Minute
	refusalsBefore = 5
	defaultLogAge  = 24 * time.Hour
	requestTimeout = 10 * time.Second
	// goneAfter is how long a kind must be missing before its objects are
	// reported gone: an API server that has just started serves custom kinds a
	// little later than the others.
	goneAfter = 10 * time.Second
)

// Config of a watcher.
type Config struct {
	REST *rest.Config
	Bus  bus.Bus
	// Kinds are watched in the form that they ask for; Secrets only ever in
	// metadata form.
	Kinds []kinds.Kind
	// Every asks for the metadata of every other kind that discovery finds.
	Every bool
	// ID tells watchers apart; empty: host name and process.
	ID string
	// LogAge is how long the bus keeps logs, which sets the pace of keyframes;
	// 0 means 24 h.
	LogAge time.Duration
}

// Service is a watcher.
type Service struct {
	config  Config
	source  *source.Source
	peers   *peers
	metrics *metrics

	mu       sync.Mutex
	api      error
	active   bool
	catalog  source.Catalog
	searched bool // discovery has answered, or is not needed
	kinds    map[kinds.Name]*running

	// missing is since when a kind has not been served, and retired whether that
	// has been said; only the loop of Run uses them.
	missing map[kinds.Name]time.Time
	retired map[kinds.Name]bool
	changed chan struct{} // active or catalog changed
}

type running struct {
	watch *kindWatch
	stop  context.CancelFunc
	done  chan struct{}
}

// New makes a watcher. It does not connect to the API server yet.
func New(config Config) (*Service, error) {
	if config.REST == nil || config.Bus == nil {
		return nil, errors.New("a watcher needs an API server and a bus")
	}
	if config.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name this watcher: %w", err)
		}
		config.ID = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	config.LogAge = cmp.Or(config.LogAge, defaultLogAge)
	config.Kinds = slices.Clone(config.Kinds)
	for i := range config.Kinds {
		config.Kinds[i].Form = translate.FormOf(config.Kinds[i])
	}
	s, err := source.New(config.REST)
	if err != nil {
		return nil, err
	}
	return &Service{
		config: config, source: s, metrics: newMetrics(), searched: !config.Every,
		kinds: map[kinds.Name]*running{}, missing: map[kinds.Name]time.Time{}, retired: map[kinds.Name]bool{}, changed: make(chan struct{}, 1),
	}, nil
}

// Run watches until the context ends; it then returns nil.
//
// Errors: ErrRefused or ErrUnreachable, when the API server could not be used
// from the start.
func (s *Service) Run(ctx context.Context) error {
	if err := s.reach(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	s.peers = newPeers(s.config.ID, time.Now())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	// Goodbye is said when the last watch has ended: watches end first.
	talk, hush := context.WithCancel(context.WithoutCancel(ctx))
	parts.Go(func() { s.peers.run(talk, s.config.Bus, s.activate) })
	var searching sync.WaitGroup
	searching.Go(func() { s.discover(ctx) })
	for ctx.Err() == nil {
		s.reconcile(ctx)
		select {
		case <-ctx.Done():
		case <-s.changed:
		}
	}
	s.stopAll()
	searching.Wait()
	hush()
	parts.Wait()
	return nil
}

// reach waits for an API server that lets us in.
func (s *Service) reach(ctx context.Context) error {
	wait, refusals, until := newBackoff(), 0, time.Now().Add(startPatience)
	for {
		err := s.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.noteAPI(err)
		switch {
		case err == nil:
			return nil
		case source.Refused(err):
			if refusals++; refusals >= refusalsBefore {
				return fmt.Errorf("%w: %w", ErrRefused, err)
			}
		case time.Now().After(until):
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		klog.FromContext(ctx).Info("Waiting for the API server", "because", err)
		pause(ctx, wait.NextBackOff())
	}
}

func (s *Service) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.source.Reach(ctx)
}

func (s *Service) noteAPI(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.api = err
}

func (s *Service) activate(active bool) {
	s.mu.Lock()
	changed := s.active != active
	s.active = active
	s.mu.Unlock()
	if changed {
		s.metrics.active.Set(map[bool]float64{true: 1}[active])
		s.wakeUp()
	}
}

func (s *Service) wakeUp() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// discover keeps the catalog, and with it the API server's health, up to date.
func (s *Service) discover(ctx context.Context) {
	for ctx.Err() == nil {
		if s.config.Every {
			catalog, err := s.source.Discover(ctx)
			s.noteAPI(err)
			if err == nil {
				s.mu.Lock()
				s.catalog, s.searched = catalog, true
				s.mu.Unlock()
				s.wakeUp()
			}
		} else {
			s.noteAPI(s.ask(ctx))
		}
		pause(ctx, discoverEvery)
	}
}

// wanted are the kinds to watch, in a fixed order.
func (s *Service) wanted() (want []kinds.Kind, catalog source.Catalog, active, searched bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want = slices.Clone(s.config.Kinds)
	for _, k := range s.catalog.Kinds {
		if !slices.ContainsFunc(want, func(w kinds.Kind) bool { return w.Name == k.Name }) {
			want = append(want, k)
		}
	}
	return want, s.catalog, s.active, s.searched
}

// reconcile starts and stops watches as they are wanted.
func (s *Service) reconcile(ctx context.Context) {
	want, catalog, active, searched := s.wanted()
	if !active {
		s.stopAll()
		return
	}
	for _, kind := range want {
		s.start(ctx, kind)
	}
	if !s.config.Every || !searched {
		return
	}
	stored, err := s.config.Bus.Kinds(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot look for kinds that are served no more")
		return
	}
	for _, kind := range stored {
		served := slices.ContainsFunc(want, func(w kinds.Kind) bool { return w.Name == kind.Name })
		if served || catalog.Silent[kind.Name.Group()] || kind.Form == kinds.Full {
			delete(s.missing, kind.Name)
			delete(s.retired, kind.Name)
			continue
		}
		if _, known := s.missing[kind.Name]; !known {
			s.missing[kind.Name] = time.Now()
		}
		if s.retired[kind.Name] || time.Since(s.missing[kind.Name]) < goneAfter {
			continue
		}
		s.stop(kind.Name)
		if err := s.retire(ctx, kind); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot retire a kind that is served no more", "kind", kind.Name)
			continue
		}
		s.retired[kind.Name] = true
	}
}

func (s *Service) start(ctx context.Context, kind kinds.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds[kind.Name] != nil {
		return
	}
	reader, err := s.source.Kind(kind)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch", "kind", kind.Name)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	r := &running{stop: stop, done: make(chan struct{}), watch: &kindWatch{
		kind: kind, bus: s.config.Bus, source: reader, metrics: s.metrics, age: s.config.LogAge,
	}}
	s.kinds[kind.Name] = r
	go func() {
		defer close(r.done)
		r.watch.run(ctx)
	}()
}

func (s *Service) stop(name kinds.Name) {
	s.mu.Lock()
	r := s.kinds[name]
	delete(s.kinds, name)
	s.mu.Unlock()
	if r != nil {
		r.stop()
		<-r.done
	}
}

func (s *Service) stopAll() {
	s.mu.Lock()
	all := s.kinds
	s.kinds = map[kinds.Name]*running{}
	s.mu.Unlock()
	for _, r := range all {
		r.stop()
	}
	for _, r := range all {
		<-r.done
	}
}

// retire reports the end of every object of a kind that is served no more. The
// streams stay; the last finding makes a kind that comes back relist.
func (s *Service) retire(ctx context.Context, kind kinds.Kind) error {
	appender, err := s.config.Bus.Append(ctx, kind.Name)
	if err != nil {
		return err
	}
	defer appender.Close()
	state, err := readState(ctx, s.config.Bus, kind.Name, appender.Last())
	if err != nil || state.Empty() {
		return err
	}
	r := state.Compare("")
	k := &kindWatch{kind: kind, bus: s.config.Bus, metrics: s.metrics, appender: appender, cursor: translate.Cursor{Epoch: r.Epoch()}}
	for _, sequence := range r.Missing() {
		if err := k.bury(ctx, sequence); err != nil {
			return err
		}
	}
	return k.flush(ctx)
}

// Synced is true when every kind has been listed once; a standby is synced when
// it knows which kinds there are.
func (s *Service) Synced() bool { return s.checkSynced() == nil }

func (s *Service) checkSynced() error {
	want, _, active, searched := s.wanted()
	if !searched {
		return errors.New("discovery has not answered yet")
	}
	if !active {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range want {
		r := s.kinds[kind.Name]
		if r == nil {
			return fmt.Errorf("%s: not started", kind.Name)
		}
		if synced, err := r.watch.status(); err != nil || !synced {
			return fmt.Errorf("%s: not listed or degraded: %w", kind.Name, cmp.Or(err, errNotListed))
		}
	}
	return nil
}

var errNotListed = errors.New("the first list has not ended")

// Checks are the watcher's health by name: api, bus, synced.
func (s *Service) Checks() map[string]func() error {
	return map[string]func() error{
		"api": func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.api
		},
		"bus":    s.config.Bus.Healthy,
		"synced": s.checkSynced,
	}
}

// Collectors are the watcher's metrics.
func (s *Service) Collectors() []prometheus.Collector { return s.metrics.collectors() }
