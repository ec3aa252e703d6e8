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
	// discoverEvery is cheap: an API server with no news answers in a few bytes.
	discoverEvery  = 2 * time.Second
	startPatience  = time.Minute
	refusalsBefore = 8
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
	waiting  bool // a kind is missing, and may have to be retired
	kinds    map[kinds.Name]*running

	// missing is since when a kind has not been served, and retired whether that
	// has been said; only the loop of Run uses them.
	missing map[kinds.Name]time.Time
	retired map[kinds.Name]bool
	// warm are the kinds whose streams were seen to be there; likewise.
	warm    map[kinds.Name]bool
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
		kinds: map[kinds.Name]*running{}, missing: map[kinds.Name]time.Time{}, retired: map[kinds.Name]bool{},
		warm: map[kinds.Name]bool{}, changed: make(chan struct{}, 1),
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
	parts.Go(func() { s.peers.run(talk, s.config.Bus, func(active bool) { s.activate(talk, active) }) })
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
	var p patience
	refusals, until := 0, time.Now().Add(startPatience)
	for {
		err := s.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.noteAPI(ctx, err)
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
		pause(ctx, p.next(err))
	}
}

func (s *Service) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.source.Reach(ctx)
}

// noteAPI keeps how the API server does, and says it when it is news.
func (s *Service) noteAPI(ctx context.Context, err error) {
	s.mu.Lock()
	before := s.api
	s.api = err
	s.mu.Unlock()
	switch log := klog.FromContext(ctx); {
	case err != nil && fmt.Sprint(before) != fmt.Sprint(err):
		log.Error(err, "The API server is of no use at the moment")
	case err == nil && before != nil:
		log.Info("The API server answers")
	}
}

func (s *Service) activate(ctx context.Context, active bool) {
	s.mu.Lock()
	changed := s.active != active
	s.active = active
	s.mu.Unlock()
	if changed {
		says, value := "Standing by", 0.0
		if active {
			says, value = "Watching, as the oldest watcher", 1
		}
		klog.FromContext(ctx).Info(says, "id", s.config.ID)
		s.metrics.active.Set(value)
		s.wakeUp()
	}
}

func (s *Service) wakeUp() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
