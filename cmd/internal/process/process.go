package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/cmd/internal/program"
)

// Part is a service that runs in this process.
type Part struct {
	// Name is part of the names of its checks, its logs and its errors.
	Name string
	// Run runs the part until the context ends. If it returns before that, the process stops.
	Run func(ctx context.Context) error
	// Checks are those of /readyz, by name.
	Checks map[string]func() error
	// Notes are shown beside the checks, without effect on readiness.
	Notes map[string]func() error
	// Collectors have the part's metrics.
	Collectors []prometheus.Collector
	// Pages are served on the health address, by path.
	Pages map[string]http.Handler
	// Key reports the state of a key of a controller; nil if the part has no keys.
	Key KeyTeller
	// Logins admit further users to single pages, by path.
	Logins map[string]health.Login
}

// Run runs parts until the context ends or one of them fails, and serves their
// health and metrics. It stops parts in the order in which they are given, each after the one
// before it has finished what it had in flight.
//
// Errors: a part fails, or ends by itself; the health address cannot be served.
func (o *Options) Run(ctx context.Context, parts []Part) error {
	log := klog.FromContext(ctx)
	registry := prometheus.NewRegistry()
	registry.MustRegister(health.Build(program.Version)...)
	ready, notes := map[string]health.Check{}, map[string]health.Check{}
	for _, p := range parts {
		for name, check := range p.Checks {
			if !strings.HasPrefix(name, p.Name) {
				name = p.Name + "-" + name
			}
			ready[name] = check
		}
		for name, note := range p.Notes {
			notes[p.Name+"-"+name] = note
		}
		for _, c := range p.Collectors {
			if err := registry.Register(c); err != nil {
				return fmt.Errorf("register the metrics of the %s: %w", p.Name, err)
			}
		}
	}
	live := map[string]health.Check{"ping": func() error { return nil }}

	stopping, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	limitGarbage(os.LookupEnv)
	go returnIdleMemory(stopping, readHeap, debug.FreeOSMemory)
	over, err := o.serve(stopping, health.New(live, ready, registry).Notes(notes), parts, stop)
	if err != nil {
		return err
	}
	defer over()
	started := make([]*running, 0, len(parts))
	for _, p := range parts {
		started = append(started, p.start(ctx, stop))
	}
	<-stopping.Done()
	log.Info("Stopping")
	deadline := time.Now().Add(o.grace)
	for _, r := range started {
		r.stop(log, time.Until(deadline))
	}
	if cause := context.Cause(stopping); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// serve serves the health and metrics of parts until over is called, also while they stop. An
// error of the server stops the process.
func (o *Options) serve(ctx context.Context, server *health.Server, parts []Part, fail context.CancelCauseFunc) (over func(), err error) {
	address, secure, err := o.Address()
	if err != nil || address == "" {
		return func() {}, err
	}
	if server, err = o.HealthServer(ctx, server, secure); err != nil {
		return nil, err
	}
	for _, p := range parts {
		server.Serves(p.Pages).Admits(p.Logins)
	}
	server.Serves(keysPages(parts))
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(serving, address); err != nil {
			fail(err)
		}
	}()
	return func() { end(); <-ended }, nil
}

// running is a part that has been started.
type running struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

// start runs a part on a context of its own, so that run decides when it stops. If the part
// fails, it stops the process.
func (p Part) start(ctx context.Context, fail context.CancelCauseFunc) *running {
	ctx = klog.NewContext(context.WithoutCancel(ctx), klog.FromContext(ctx).WithName(p.Name))
	ctx, cancel := context.WithCancel(ctx)
	r := &running{name: p.Name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		err := p.Run(ctx)
		switch {
		case err != nil && !errors.Is(err, context.Canceled):
			fail(fmt.Errorf("%s: %w", p.Name, err))
		case ctx.Err() == nil:
			fail(fmt.Errorf("%s: ended without being asked to", p.Name))
		}
	}()
	return r
}

func (r *running) stop(log klog.Logger, patience time.Duration) {
	r.cancel()
	select {
	case <-r.done:
	case <-time.After(max(patience, 0)):
		log.Info("Did not finish in time; the bus will redeliver its messages in flight", "service", r.name)
	}
}
