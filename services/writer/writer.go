package writer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/writer/announce"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/ask"
	"github.com/millrace/millrace/services/writer/apply/authority"
	"github.com/millrace/millrace/services/writer/apply/eventrecorder"
	"github.com/millrace/millrace/services/writer/apply/mint"
	"github.com/millrace/millrace/services/writer/kindlog"
	"github.com/millrace/millrace/services/writer/limits"
)

// Mode is how far the writer goes in carrying out turns.
type Mode string

// The modes. The zero value is Apply.
const (
	// Apply makes the requests.
	Apply Mode = "apply"
	// DryRun makes the requests as dry runs: the API server stores nothing.
	DryRun Mode = "dry-run"
	// Off makes no request: every command is refused.
	Off Mode = "off"
)

// Profile is what the writer knows of a controller. It comes from a table in the program, never
// from a message.
type Profile struct {
	// Name is the controller's name, which names its streams.
	Name string
	// Identity is its service account in kube-system; empty means Name.
	Identity string
	// Source is the component name on its Kubernetes Events; empty means Name.
	Source string
	// Owns is the kind of the objects that the controller's keys name; empty if they name none, or
	// have a kind themselves.
	Owns kinds.Name
	// Allowed reports whether the controller has promised to issue a command; nil allows nothing.
	Allowed func(events.Command) bool
	// Fits returns the check of a turn's commands: whether the object and the content that a
	// command writes are within the controller's promise. own returns the key's own object from
	// the state, or nil; read returns any other object, or nil. The command that the check gets
	// has its body. A nil Fits accepts everything that is allowed.
	Fits func(t events.Turn, own func() metav1.Object, read func(events.Ref) metav1.Object) func(events.Command) error
	// Leased: the writer carries out the controller's turns only while it holds the Lease
	// ([Config.Lease]).
	Leased bool
}

// Config is what a writer needs.
type Config struct {
	// REST is how to reach the API server.
	REST *rest.Config
	// Bus is where turns come from and outcomes go.
	Bus bus.Bus
	// Controllers are the controllers whose turns it carries out.
	Controllers []Profile
	// Mode is how far it goes.
	Mode Mode
	// Impersonate makes each request as the controller's service account.
	Impersonate bool
	// MaxInFlight bounds the requests in flight; 0 means 200.
	MaxInFlight int
	// QPS bounds each controller's requests per second, and Burst its requests at once; a QPS of 0
	// or less is no bound.
	QPS   float32
	Burst int
	// Limits bound what the controllers may write; nil limits nothing.
	Limits *limits.Set
	// Lease holds the Lease with which the leased controllers move between Millrace and
	// kube-controller-manager, until its context ends. It calls lead whenever this writer holds the
	// Lease, with the fencing token of that term; lead returns once its context has ended and
	// everything in flight is over. An error, such as that the Lease is lost, stops the writer at
	// once. nil: no controller is leased.
	Lease func(ctx context.Context, lead func(ctx context.Context, token uint64) error) error
	// Concurrent bounds the turns of a controller that are carried out at once; a controller
	// without an entry has 50.
	Concurrent map[string]int
	// MaxAge is how old a turn may be and still be carried out; 0 means 2 minutes.
	MaxAge time.Duration
	// Since is how far back the bus delivers turns when it has lost the state of the consumer; 0
	// means 30 s. A reconciler that waits for the outcome of an older turn stores that turn again.
	Since time.Duration
	// Patience is how long a command is retried; 0 means 30 s.
	Patience time.Duration
	// Drain is how long the turns in flight may take when the writer stops; 0
	// means 10 s.
	Drain time.Duration
	// Mint signs the tokens of service accounts; with nil their commands are refused.
	Mint *mint.Mint
	// Authority signs the requested certificates; with nil their commands are refused.
	Authority *authority.Authority
	// Types finds expressions of admission policies with type errors; with nil their asks fail.
	Types ask.TypeCheck
	// Turns are the keys with which reconcilers sign turns; with nil the writer carries out
	// unsigned ones.
	Turns *sign.Trust
	// Sign signs the outcomes; nil signs none.
	Sign *sign.Signer
	// Outcomes are the keys of all writers; nil means those that Sign has had.
	Outcomes *sign.Trust
	// Trace makes the spans; nil makes none.
	Trace *trace.Tracer
	// Log is the logger; nil means the default one.
	Log *slog.Logger
	// Clock gives the time of the outcomes; nil means the system's. The age of a turn goes by the
	// clock of the bus.
	Clock clock.PassiveClock
}

const (
	durable = "writer"
	// heartbeatTimeout is how long the writer stays ready without hearing its own heartbeats.
	heartbeatTimeout  = 5 * time.Second
	defaultConcurrent = 50
	// maxPending is the number of turns in flight for each slot of Concurrent.
	maxPending = 2
)

// Service is a writer.
type Service struct {
	config    Config
	api       *apply.Client
	recorder  *eventrecorder.Recorder
	metrics   *metrics
	inFlight  *inFlightTurns
	announcer *announce.Announcer // nil without traces
	epochs    *kindlog.Epochs
	time      busTime
	share     *share
	failing   repeatedFailures
	unsigned  rate.Sometimes // bounds the log lines about ignored heartbeats

	mu   sync.Mutex
	idle error // why the writer takes no turns; nil while it does
}

// New makes a writer. It sends nothing before Run.
//
// Errors: the configuration is incomplete or contradicts itself.
func New(c Config) (*Service, error) {
	if c.Bus == nil {
		return nil, errors.New("make a writer: no bus given")
	}
	switch c.Mode {
	case Apply, DryRun, Off:
	case "":
		c.Mode = Apply
	default:
		return nil, fmt.Errorf("make a writer: mode %q is not %s, %s or %s", c.Mode, Apply, DryRun, Off)
	}
	c = c.withDefaults()
	actors, known := make([]apply.Actor, 0, len(c.Controllers)), map[string]bool{}
	for i := range c.Controllers {
		p := &c.Controllers[i]
		if p.Name == "" || known[p.Name] {
			return nil, fmt.Errorf("make a writer: controller %q is nameless or named twice", p.Name)
		}
		if p.Leased && c.Lease == nil {
			return nil, fmt.Errorf("make a writer: controller %q moves with a Lease, and no Lease is given", p.Name)
		}
		known[p.Name] = true
		p.complete()
		actors = append(actors, p.actor())
	}
	m, id := newMetrics(c.Controllers...), rand.Text()
	announcer := announce.New(announce.Config{Bus: c.Bus, ID: id, Trace: c.Trace, Log: c.Log})
	door, err := apply.New(apply.Config{
		REST: c.REST, Impersonate: c.Impersonate, DryRun: c.Mode == DryRun,
		MaxInFlight: c.MaxInFlight, QPS: c.QPS, Burst: c.Burst, Patience: c.Patience, Known: kindlog.PreviousObjects(c.Bus), Metrics: m.api,
		Trace: c.Trace, Announce: announcer.Func(), Mint: c.Mint, Authority: c.Authority, Types: c.Types, Hides: kindlog.Hides(c.Bus, c.Clock), Panicked: m.panicked(c.Log),
	}, actors)
	if err != nil {
		return nil, fmt.Errorf("make a writer: %w", err)
	}
	probe := door.Ready
	if c.Mode == Off {
		probe = func(context.Context) error { return nil } // it makes no requests
	}
	recorder := eventrecorder.New(eventrecorder.Config{Do: door.Do, Clock: c.Clock, Metrics: m.kubeEvents, Panicked: m.panicked(c.Log)})
	s := &Service{
		unsigned: rate.Sometimes{Interval: 10 * time.Second}, config: c, api: door, recorder: recorder, metrics: m, inFlight: newInFlightTurns(id, m), announcer: announcer,
		epochs: kindlog.NewEpochs(c.Bus), idle: errors.New("not started"),
	}
	replicas := membership.Config{ID: id, Reach: probe, Sign: s.signHeartbeat}
	if s.inFlight.sign = s.signHeartbeat; c.Sign != nil || c.Outcomes != nil {
		s.inFlight.signed, replicas.Signed = s.signedHeartbeat, s.signedHeartbeat
	}
	s.share = newShare(c.Bus, replicas)
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.MaxAge <= 0 {
		c.MaxAge = sign.TurnWithin
	}
	if c.Since <= 0 {
		c.Since = 30 * time.Second
	}
	if c.Drain <= 0 {
		c.Drain = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Controllers = append([]Profile(nil), c.Controllers...)
	return c
}

func (p *Profile) complete() {
	if p.Identity == "" {
		p.Identity = p.Name
	}
	if p.Source == "" {
		p.Source = p.Name
	}
	if p.Allowed == nil {
		p.Allowed = func(events.Command) bool { return false }
	}
}

func (p *Profile) actor() apply.Actor {
	return apply.Actor{Controller: p.Name, Identity: p.Identity}
}

// Run carries out turns until the context ends, then finishes what is in flight.
//
// Errors: the bus cannot be used.
func (s *Service) Run(ctx context.Context) error {
	// The turns in flight may outlive ctx by the drain.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	sharing, leave := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { s.recorder.Run(working) })
	background.Go(func() { s.share.run(sharing) })
	background.Go(func() { s.epochs.Run(working) })
	background.Go(func() { s.epochs.Share(working, s.share.Membership.ID(), s.config.Log, s.metrics.claims) })
	background.Go(func() { s.inFlight.run(working, s.config.Bus, s.config.Log) })
	background.Go(func() { s.announcer.Run(working) })
	defer background.Wait()
	defer stop()
	defer leave()

	for _, p := range s.config.Controllers {
		if err := s.config.Bus.EnsureController(ctx, p.Name); err != nil {
			return s.setIdle(fmt.Errorf("make the streams of %s: %w", p.Name, err))
		}
	}
	for _, p := range s.config.Controllers[:min(1, len(s.config.Controllers))] {
		stream := subject.TurnStream(p.Name)
		if err := s.time.begin(ctx, s.config.Bus, stream, s.config.Log); err != nil {
			return s.setIdle(fmt.Errorf("read the clock of the bus: %w", err))
		}
		background.Go(func() { s.time.run(working, s.config.Bus, stream) })
	}
	s.setIdle(nil)
	err := s.takeTurns(ctx, working, stop, &background)
	s.setIdle(errors.New("stopped"))
	s.inFlight.drain(s.config.Drain, stop)
	if err != nil {
		return fmt.Errorf("read turns: %w", err)
	}
	return nil
}

// takeTurns takes turns of all controllers until the context ends, and of the leased ones while this
// writer holds their Lease. The turns are carried out until working ends, at the latest when stop is
// called.
//
// Errors: a stream cannot be read; the Lease is lost.
func (s *Service) takeTurns(ctx, working context.Context, stop func(), background *sync.WaitGroup) error {
	readers, reading := errgroup.WithContext(ctx)
	var leased []*executor
	for i := range s.config.Controllers {
		x := s.executor(&s.config.Controllers[i])
		if x.limiter != nil {
			background.Go(func() { x.limiter.Run(working) })
		}
		s.inFlight.limit(x.profile.Name, maxPending*cap(x.slots))
		if x.profile.Leased {
			leased = append(leased, x)
			continue
		}
		readers.Go(func() error {
			return s.share.Work(reading, x.work(reading), func(d bus.Delivery) {
				if hand, takes := s.share.turnContext(working); takes {
					x.take(reading, hand, d)
				} else {
					d.NakWithDelay(unfitKnownAfter)
				}
			})
		})
	}
	if len(leased) > 0 {
		readers.Go(func() error {
			err := s.config.Lease(reading, func(ctx context.Context, token uint64) error { return s.lead(ctx, working, leased, token) })
			if err != nil {
				stop() // another process may act from now on
			}
			return err
		})
	}
	return readers.Wait()
}

// setIdle remembers why the writer takes no turns, and returns that.
func (s *Service) setIdle(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = err
	return err
}

// Checks returns the health checks: the bus, the API server, the other replicas, and whether the
// writer takes turns.
func (s *Service) Checks() map[string]func() error {
	return map[string]func() error{
		"writer": func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.idle == nil && s.inFlight.unheardFor() {
				return fmt.Errorf("does not hear its own heartbeats on %q: is the bus away, or may this writer not publish and subscribe there?", report.Writers)
			}
			return s.idle
		},
		"writer-bus":      s.config.Bus.Healthy,
		"writer-replicas": s.share.Membership.Check,
		"writer-api": func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			return s.api.Ready(ctx)
		},
	}
}

// Key returns the turns of a controller's key that this writer has in flight, the oldest first.
func (s *Service) Key(controller string, key events.Key) []report.TurnState {
	return s.inFlight.ofKey(controller, key)
}

// Collectors returns the metrics.
func (s *Service) Collectors() []prometheus.Collector {
	return append(s.metrics.collectors(), activity{s.share, s.inFlight, s.config.Controllers})
}
