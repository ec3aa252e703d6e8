package command

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/cmd/internal/busflags"
	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/election"
	"github.com/millrace/millrace/cmd/internal/kubeconfig"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/serviceflags"
	"github.com/millrace/millrace/cmd/internal/telemetry"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/trace"
)

// newServices are the commands that run one service each.
func newServices() []*cobra.Command {
	return []*cobra.Command{newWatcher(), newReconcilers(), newWriter()}
}

func newWatcher() *cobra.Command {
	s, watch := newLone(), serviceflags.Watcher{}
	s.connects = true
	s.needed = func(chosen controllerflags.Choice, _ bool) []doctor.Needed {
		return []doctor.Needed{watch.Needed(chosen, nil)}
	}
	return s.cobra(program.Program{
		Use: "watcher", Short: "Turn list/watch deltas of the API server into streams",
		Long: `Watches every kind that the controllers need and appends what it sees to the kind's
log. Any number may run, all of them active: they share the kinds.`,
		Flags: []func(*pflag.FlagSet){program.Titled("API server", s.cluster.Add), program.Titled("watcher", watch.Add)},
		Run: func(ctx context.Context) error {
			return s.run(ctx, "watcher", func(b *stream.Bus, chosen controllerflags.Choice, tracer *trace.Tracer) ([]process.Part, error) {
				config, err := s.cluster.Connect(ctx)
				if err != nil {
					return nil, err
				}
				if err := serviceflags.EnsureShadows(ctx, b, chosen.Compared()); err != nil {
					return nil, err
				}
				return one(watch.Part(config, b, chosen.All(), tracer))
			})
		},
	})
}

func newReconcilers() *cobra.Command {
	s, keys := newLone(), serviceflags.Signing{Own: "turn", Theirs: "outcome"}
	return s.cobra(program.Program{
		Use: "reconcilers", Short: "Decide: from deltas to turns",
		Long: `Runs the controllers' decisions on the streams. It has no Kubernetes credentials.
Any number may run, all of them active: they share the keys of each controller.`,
		Flags: []func(*pflag.FlagSet){program.Titled("signing", keys.Add)},
		Run: func(ctx context.Context) error {
			return s.run(ctx, "reconcilers", func(b *stream.Bus, chosen controllerflags.Choice, tracer *trace.Tracer) ([]process.Part, error) {
				signed, err := keys.Load(len(chosen.Acting) > 0)
				if err != nil {
					return nil, err
				}
				return serviceflags.Reconcilers(b, chosen, signed.Deciding(), tracer)
			})
		},
	})
}

func newWriter() *cobra.Command {
	s, write, keys := newLone(), serviceflags.NewWriter(), serviceflags.Signing{Own: "outcome", Theirs: "turn"}
	s.connects = true
	s.needed = func(chosen controllerflags.Choice, constrains bool) []doctor.Needed {
		all := []doctor.Needed{write.Needed(chosen, nil, constrains)}
		if s.migration.Enabled {
			all = append(all, leaderNeeded(s.election.LeaseNamespace, []string{s.migration.LeaseName}))
		}
		return all
	}
	return s.cobra(program.Program{
		Use: "writer", Short: "Apply: from turns to API requests",
		Long: `Carries out the turns of the controllers with each controller's own identity, and
publishes the outcome of every command. Any number may run, all of them active: they
share the controllers.`,
		Flags: []func(*pflag.FlagSet){program.Titled("API server", s.cluster.Add), program.Titled("writer", write.Add), program.Titled("signing", keys.Add)}, Check: write.Check,
		Run: func(ctx context.Context) error {
			return s.run(ctx, "writer", func(b *stream.Bus, chosen controllerflags.Choice, tracer *trace.Tracer) ([]process.Part, error) {
				if len(chosen.Acting) == 0 {
					return []process.Part{serviceflags.Idle("writer")}, nil
				}
				signed, err := keys.Load(true)
				if err != nil {
					return nil, err
				}
				config, err := s.cluster.Connect(ctx)
				if err != nil {
					return nil, err
				}
				secrets, err := s.ctrl.Secrets()
				if err != nil {
					return nil, err
				}
				return one(write.Part(config, b, chosen, s.migration.Lease(config, s.election, &write, chosen), secrets, signed, tracer))
			})
		},
	})
}

// lone is a service in a process of its own.
type lone struct {
	cluster kubeconfig.Options // for services that connect to the API server
	ctrl    controllerflags.Options
	at      busflags.Options
	service process.Options
	// connects is true for services that connect to the API server; needed are their RBAC rights.
	connects bool
	needed   func(chosen controllerflags.Choice, constrains bool) []doctor.Needed
	// election says how a writer holds the Lease of migration. Otherwise it has no effect, since the
	// replicas of a service share the work.
	election  election.Options
	migration serviceflags.Migration
}

func newLone() *lone {
	s := &lone{ctrl: controllerflags.New(), at: busflags.New(), service: process.NewOptions(), election: election.Defaults()}
	s.service.Controllers = &s.ctrl
	return s
}

// cobra adds the flags that every service has.
func (s *lone) cobra(p program.Program) *cobra.Command {
	p.Flags = append(p.Flags, program.Titled("controller", s.ctrl.Add), program.Titled("bus", s.at.Add), program.Titled("serving", s.service.Add), program.Titled("tracing", s.service.Tracing.Add),
		program.Titled("leader election", func(f *pflag.FlagSet) { addElection(f, &s.election); s.migration.Add(f) }))
	check := p.Check
	p.Check = func() error {
		all := errors.Join(s.ctrl.Check(), s.service.Check(), s.election.Check(), s.migration.Check(s.election))
		if check != nil {
			all = errors.Join(all, check())
		}
		return all
	}
	return p.Command()
}

// run opens the bus, builds the service and runs it.
func (s *lone) run(ctx context.Context, name string, build func(*stream.Bus, controllerflags.Choice, *trace.Tracer) ([]process.Part, error)) error {
	spans, err := s.service.Tracing.Start(ctx, program.Version)
	if err != nil {
		return err
	}
	b, err := s.at.Open(ctx, name, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := s.at.Audit(ctx, b); err != nil {
		return err
	}
	chosen, err := s.choose()
	if err == nil {
		err = s.migration.Divide(&chosen)
	}
	if err != nil {
		return err
	}
	parts, err := build(b, chosen, spans.Tracer(name))
	if err != nil {
		return err
	}
	return s.service.Run(ctx, slices.Concat(parts, []process.Part{busflags.AuditPart(b), s.checking(b, chosen)}, tracingPart(spans)))
}

// checking runs the doctor's checks of the service at its start. It does not check rights on
// custom kinds, because it does not know which of them the roles name.
func (s *lone) checking(b *stream.Bus, chosen controllerflags.Choice) process.Part {
	var config *rest.Config
	var needed func(bool) []doctor.Needed
	waits := ""
	if s.migration.Enabled {
		waits = waitsForLease
	}
	if s.connects {
		if loaded, err := s.cluster.Load(); err == nil {
			config = loaded
			config.UserAgent = "millrace/" + program.Version
			needed = func(constrains bool) []doctor.Needed { return s.needed(chosen, constrains) }
		}
	}
	return doctorPart(atStart(config, needed, waits, b, &s.at, chosen))
}

// choose selects the controllers of the process. A kubeconfig that cannot be loaded is no error
// here: connect reports it.
func (s *lone) choose() (controllerflags.Choice, error) {
	if s.connects {
		if config, err := s.cluster.Load(); err == nil {
			return s.ctrl.ChooseFor(config)
		}
	}
	return s.ctrl.Choose()
}

// one wraps the only part of a service in a slice, or passes the error on.
func one(p process.Part, err error) ([]process.Part, error) {
	if err != nil {
		return nil, err
	}
	return []process.Part{p}, nil
}

// tracingPart exports spans. It comes last, so that it stops after the services that make them.
func tracingPart(t *telemetry.Telemetry) []process.Part {
	if t == nil {
		return nil
	}
	return []process.Part{{Name: "tracing", Run: t.Run, Collectors: t.Collectors()}}
}
