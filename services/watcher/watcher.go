package watcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/watcher/causes"
	"github.com/millrace/millrace/services/watcher/reflector"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/versions"
)

var (
	// ErrRefused: the API server does not accept the credentials.
	ErrRefused = errors.New("the API server refuses the watcher's credentials")
	// ErrUnreachable: the API server has not answered since the watcher started.
	ErrUnreachable = errors.New("the API server cannot be reached")
)

const (
	// discoverEvery is the interval between discoveries; an API server without changes answers in a
	// few bytes. It is discoverResting where this watcher is the only one, watches CRDs and
	// APIServices, and none of those has changed for discoverSettled.
	discoverEvery   = 2 * time.Second
	discoverResting = 10 * time.Second
	discoverSettled = time.Minute
	startPatience   = time.Minute
	refusalsBefore  = 8
	requestTimeout  = 10 * time.Second
	reachTimeout    = 2 * time.Second
	// listenAgain is the pause before the next attempt to subscribe to a topic.
	listenAgain = time.Second
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
	// Scope is the share of those kinds that this watcher may watch; empty: all.
	Scope Scope
	// ID distinguishes watchers; empty: membership makes one up.
	ID string
	// Hide is what must not reach the bus. The caller has made sure that no controller decides on
	// it.
	Hide redact.Policy
	// Bound limits the versions of each object; see [versions.Bound].
	Bound versions.Bound
	// Trace makes the spans; nil: there are none.
	Trace *trace.Tracer
}

// Service is a watcher.
type Service struct {
	config  Config
	source  *source.Source
	members *membership.Membership
	metrics *metrics
	writes  *causes.Writes // nil without traces
	epoch   *storageepoch.Tracker

	mu               sync.Mutex
	apiErr           error // of the newest probe; nil: the API server answered
	discoveryErr     error // of the newest discovery; nil: it succeeded
	catalog          source.Catalog
	searched         bool      // discovery has answered, or is not needed
	waiting          bool      // a kind is missing, and may have to be retired
	definerChangedAt time.Time // when a CRD or an APIService last changed (makers)
	reminder         time.Time // when the mark of an unserved kind is due again; zero: none is
	kinds            map[kinds.Name]*running
	taken            map[kinds.Name]bool // watched here although they fall to others; see guard.go
	unshownKinds     int                 // kinds whose watcher has not shown that it watches them
	resuming         resumeQueue

	// missing is since when a kind has not been served, and retired what was recorded about that.
	// Only the loop of Run uses them.
	missing map[kinds.Name]time.Time
	retired map[kinds.Name]retiredKind
	watched int // the last count of watched kinds; likewise
	// ensured are the kinds whose streams are known to exist; likewise.
	ensured        map[kinds.Name]bool
	changed        chan struct{} // the catalog changed
	definerChanged chan struct{} // the catalog is about to change
}

// keeper keeps the log of one kind; see package reflector.
type keeper interface {
	Run(ctx context.Context)
	Status() (synced bool, err error)
	Unwatched(now time.Time) (u report.Unwatched, ok bool)
	Report(d report.Damage)
	CheckEpoch()
	ShowWatched()
}

type running struct {
	reflector keeper
	stop      context.CancelFunc
	done      chan struct{}
}

// New makes a watcher. It does not connect to the API server yet.
func New(config Config) (*Service, error) {
	if config.REST == nil || config.Bus == nil {
		return nil, errors.New("a watcher needs an API server and a bus")
	}
	if config.Scope != "" && !slices.Contains(Scopes, config.Scope) {
		return nil, fmt.Errorf("make a watcher: there is no scope %q, but %v", config.Scope, Scopes)
	}
	config.Kinds = slices.Clone(config.Kinds)
	for i := range config.Kinds {
		config.Kinds[i].Form = translate.FormOf(config.Kinds[i])
	}
	s, err := source.New(config.REST)
	if err != nil {
		return nil, err
	}
	service := &Service{
		config: config, source: s, metrics: newMetrics(), writes: causes.NewWrites(config.Trace), epoch: storageepoch.New(), searched: !config.Every,
		kinds: map[kinds.Name]*running{}, taken: map[kinds.Name]bool{}, missing: map[kinds.Name]time.Time{}, retired: map[kinds.Name]retiredKind{},
		ensured: map[kinds.Name]bool{}, changed: make(chan struct{}, 1), definerChanged: make(chan struct{}, 1), definerChangedAt: time.Now(),
	}
	service.members = membership.New(membership.Config{
		Bus: config.Bus, Service: "watchers", Group: config.Scope.group(), ID: config.ID, Reach: s.Reach,
		Reached: func(ctx context.Context, err error) { service.note(ctx, &service.apiErr, err) },
	})
	return service, nil
}

// Run watches until the context ends; it then returns nil.
//
// Errors: ErrRefused or ErrUnreachable, when the API server could not be used
// from the start.
func (s *Service) Run(ctx context.Context) error {
	if err := s.reach(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Membership ends last: this watcher has stored what it stores before other watchers take its
	// kinds.
	talk, hush := context.WithCancel(context.WithoutCancel(ctx))
	var talking, looking sync.WaitGroup
	talking.Go(func() { s.members.Run(talk) })
	looking.Go(func() { s.discover(ctx) })
	looking.Go(func() { s.listen(ctx) })
	looking.Go(func() { s.shareEpoch(ctx) })
	looking.Go(func() { s.guard(ctx) })
	looking.Go(func() { s.answerGuards(ctx) })
	looking.Go(func() { s.reportUnwatched(ctx) })
	looking.Go(func() { s.writes.Listen(ctx, s.config.Bus, s.watches) })
	for ctx.Err() == nil {
		moved := s.members.Changed()
		_, over := s.epoch.Now()
		s.reconcile(ctx, moved)
		select {
		case <-ctx.Done():
		case <-moved:
		case <-over: // the kinds that are not served need a mark in the new epoch
		case <-s.changed:
		}
	}
	s.stop(func(kinds.Name) bool { return true })
	looking.Wait()
	hush()
	talking.Wait()
	return nil
}

// reach waits until the API server accepts the watcher's credentials.
func (s *Service) reach(ctx context.Context) error {
	var p reflector.RetryPause
	refusals, until := 0, time.Now().Add(startPatience)
	for {
		err := s.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.note(ctx, &s.apiErr, err)
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
		sleep.For(ctx, p.Next(err))
	}
}

func (s *Service) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	return s.source.Reach(ctx)
}

// note keeps the newest error of one respect (api or finding), and logs it when it has changed.
func (s *Service) note(ctx context.Context, respect *error, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	before := *respect
	*respect = err
	s.mu.Unlock()
	switch log := klog.FromContext(ctx); {
	case err != nil && fmt.Sprint(before) != fmt.Sprint(err):
		log.Error(err, "Cannot use the API server")
	case err == nil && before != nil:
		log.Info("The API server answers")
	}
}

func (s *Service) wakeUp() { signal(s.changed) }

// signal sends a token, unless one is pending.
func signal(look chan<- struct{}) {
	select {
	case look <- struct{}{}:
	default:
	}
}
