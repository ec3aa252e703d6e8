package command

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/telemetry"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
	"github.com/millrace/millrace/services/watcher"
	"github.com/millrace/millrace/services/writer"
	"github.com/millrace/millrace/services/writer/apply/typecheck"
)

// newServices are the commands of one service each.
func newServices() []*cobra.Command {
	return []*cobra.Command{newWatcher(), newReconcilers(), newWriter()}
}

func newWatcher() *cobra.Command {
	s, watch := newLone(), watcherOptions{}
	s.connects = true
	return s.cobra(program{
		use: "watcher", short: "Turn list/watch deltas of the API server into streams",
		long: `Watches every kind that the controllers need and appends what it sees to the kind's
log. Any number may run, all of them active: they share out the kinds.`,
		flags: []func(*pflag.FlagSet){s.cluster.add, watch.add},
		run: func(ctx context.Context) error {
			return s.run(ctx, "watcher", func(b *stream.Bus, chosen choice, tracer *trace.Tracer) ([]part, error) {
				config, err := s.cluster.connect(ctx)
				if err != nil {
					return nil, err
				}
				if err := ensureShadows(ctx, b, chosen.looking); err != nil {
					return nil, err
				}
				return one(watch.part(config, b, chosen.all(), tracer))
			})
		},
	})
}

func newReconcilers() *cobra.Command {
	s, keys := newLone(), signingOptions{own: "turn", theirs: "outcome"}
	return s.cobra(program{
		use: "reconcilers", short: "Decide: from deltas to turns",
		long: `Runs the controllers' decisions on the streams. It has no Kubernetes credentials.
Any number may run, all of them active: they share out the controllers.`,
		flags: []func(*pflag.FlagSet){keys.add},
		run: func(ctx context.Context) error {
			return s.run(ctx, "reconcilers", func(b *stream.Bus, chosen choice, tracer *trace.Tracer) ([]part, error) {
				signed, err := keys.load(len(chosen.acting) > 0)
				if err != nil {
					return nil, err
				}
				return reconcilersParts(b, chosen, signed.deciding(), tracer)
			})
		},
	})
}

func newWriter() *cobra.Command {
	s, write, keys := newLone(), newWriterOptions(), signingOptions{own: "outcome", theirs: "turn"}
	s.connects = true
	return s.cobra(program{
		use: "writer", short: "Apply: from turns to API requests",
		long: `Carries out the turns of the controllers with each controller's own identity, and
publishes what became of every command. Any number may run, all of them active: they
share out the controllers.`,
		flags: []func(*pflag.FlagSet){s.cluster.add, write.add, keys.add},
		run: func(ctx context.Context) error {
			return s.run(ctx, "writer", func(b *stream.Bus, chosen choice, tracer *trace.Tracer) ([]part, error) {
				if len(chosen.acting) == 0 {
					return []part{idle("writer")}, nil
				}
				signed, err := keys.load(true)
				if err != nil {
					return nil, err
				}
				config, err := s.cluster.connect(ctx)
				if err != nil {
					return nil, err
				}
				secrets, err := s.ctrl.secrets()
				if err != nil {
					return nil, err
				}
				return one(write.part(config, b, chosen.acting, secrets, signed, tracer))
			})
		},
	})
}

// lone is a service in a process of its own.
type lone struct {
	cluster clusterOptions // of those that have to do with the API server
	ctrl    controllerOptions
	at      busOptions
	service serviceOptions
	// connects is true for those.
	connects bool
}

func newLone() *lone {
	return &lone{ctrl: newControllerOptions(), at: newBusOptions(), service: newServiceOptions()}
}

// cobra adds the flags that every service has.
func (s *lone) cobra(p program) *cobra.Command {
	p.flags = append(p.flags, s.ctrl.add, s.at.add, s.service.add, s.service.tracing.Add)
	p.check = s.ctrl.check
	return p.cobra()
}

// run opens the bus, makes the service and runs it.
func (s *lone) run(ctx context.Context, name string, build func(*stream.Bus, choice, *trace.Tracer) ([]part, error)) error {
	spans, err := s.service.tracing.Start(ctx, Version)
	if err != nil {
		return err
	}
	b, err := s.at.open(ctx, name, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := s.at.audit(ctx, b); err != nil {
		return err
	}
	chosen, err := s.choose()
	if err != nil {
		return err
	}
	parts, err := build(b, chosen, spans.Tracer(name))
	if err != nil {
		return err
	}
	return s.service.run(ctx, slices.Concat(parts, []part{auditPart(b)}, tracingPart(spans)))
}

// choose gives the controllers of the process. What has no cluster as yet says so when
// it connects.
func (s *lone) choose() (choice, error) {
	if s.connects {
		if config, err := s.cluster.load(); err == nil {
			return s.ctrl.chooseFor(config)
		}
	}
	return s.ctrl.choose()
}

// chooseFor gives the controllers of a process that has a cluster.
func (o *controllerOptions) chooseFor(config *rest.Config) (choice, error) {
	if err := o.trust(config); err != nil {
		return choice{}, err
	}
	return o.choose()
}

// choose gives the controllers that the flags ask for, and says which are off because
// a flag is not set.
func (o *controllerOptions) choose() (choice, error) {
	config, err := o.config()
	if err != nil {
		return choice{}, err
	}
	chosen, err := controllers.Select(o.selection(), config)
	if err != nil {
		return choice{}, fmt.Errorf("read --controllers: %w", err)
	}
	for _, e := range controllers.Lacking(o.selection(), config) {
		klog.Background().Info("Controller is off because a flag is not set", "controller", e.Name, "flag", "--"+e.Needs)
	}
	return o.divide(chosen, config)
}

// one is the only part of a service, if it could be made.
func one(p part, err error) ([]part, error) {
	if err != nil {
		return nil, err
	}
	return []part{p}, nil
}

func (o *watcherOptions) part(config *rest.Config, b bus.Bus, chosen []reconcile.Any, tracer *trace.Tracer) (part, error) {
	full, every := controllers.Kinds(chosen)
	if err := o.check(chosen); err != nil {
		return part{}, err
	}
	service, err := watcher.New(watcher.Config{
		REST: config, Bus: b, Kinds: full, Every: every || len(o.kinds) > 0, Scope: o.scope.of, Bound: watcher.Bound(o.bound), Hide: o.redact.policy(), Trace: tracer,
	})
	if err != nil {
		return part{}, err
	}
	run := func(ctx context.Context) error {
		o.redact.remark(ctx, chosen)
		return service.Run(ctx)
	}
	return part{name: "watcher", run: run, checks: service.Checks(), collectors: service.Collectors()}, nil
}

// reconcilersParts are the controllers that act, and those that only look on.
func reconcilersParts(b *stream.Bus, chosen choice, signatures shell.Signatures, tracer *trace.Tracer) ([]part, error) {
	parts, err := shadowPart(b, chosen.looking)
	if err != nil || len(chosen.acting) == 0 {
		return parts, err
	}
	service, err := reconcilers.New(reconcilers.Config{Bus: b, Controllers: chosen.acting, Code: Version, Trace: tracer, Settings: shell.Settings{Signatures: signatures}})
	if err != nil {
		return nil, err
	}
	return append(parts, part{name: "reconcilers", key: decidingKey(service), run: service.Run, checks: service.Checks(), notes: service.Notes(), collectors: append(service.Collectors(), unsignedCollector(signatures.Sign)...)}), nil
}

func (o *writerOptions) part(config *rest.Config, b bus.Bus, chosen []reconcile.Any, with secrets, keys signed, tracer *trace.Tracer) (part, error) {
	service, err := writer.New(writer.Config{
		REST: config, Bus: b, Controllers: profiles(chosen), Mode: writer.Mode(o.mode),
		Impersonate: o.impersonate, MaxInFlight: o.maxInFlight, Concurrent: o.concurrent.byName(),
		Mint: with.tokens, Authority: with.certificates, Types: typecheck.Check, Trace: tracer,
		Turns: keys.theirs, Sign: keys.signer, Outcomes: keys.kin,
	})
	if err != nil {
		return part{}, err
	}
	return part{name: "writer", key: writingKey(service, chosen), run: service.Run, checks: service.Checks(), collectors: append(service.Collectors(), unsignedCollector(keys.signer)...)}, nil
}

// decidingKey is how the reconcilers stand with a key.
func decidingKey(s *reconcilers.Service) keyTeller {
	return func(ctx context.Context, r *events.KeyReport) bool {
		state, ok := s.Key(ctx, r.Controller, r.Key)
		if ok {
			r.Reconcilers = &state
		}
		return ok
	}
}

// writingKey is what the writer has in flight of a key.
func writingKey(s *writer.Service, chosen []reconcile.Any) keyTeller {
	return func(_ context.Context, r *events.KeyReport) bool {
		r.Writer = s.Key(r.Controller, r.Key)
		return slices.ContainsFunc(chosen, func(c reconcile.Any) bool { return c.Describe().Name == r.Controller })
	}
}

// tracingPart is the export of spans, which stops after whoever makes them.
func tracingPart(t *telemetry.Telemetry) []part {
	if t == nil {
		return nil
	}
	return []part{{name: "tracing", run: t.Run, collectors: t.Collectors()}}
}

// profiles are what the writer must know of the controllers.
func profiles(chosen []reconcile.Any) []writer.Profile {
	out := make([]writer.Profile, 0, len(chosen))
	for _, c := range chosen {
		d := c.Describe()
		p := writer.Profile{Name: d.Name, Identity: d.Identity, Source: d.Source, Allowed: d.Writes.Allows, Fits: d.Fits}
		if d.Owns != nil {
			p.Owns = d.Owns.Name
		}
		out = append(out, p)
	}
	return out
}

func (c concurrency) byName() map[string]int {
	turns := make(map[string]int, len(c))
	for _, l := range c {
		turns[l.controller] = l.turns
	}
	return turns
}

// watcherOptions are the watcher's.
type watcherOptions struct {
	kinds  []string
	redact redaction
	scope  scope
	bound  objectBound
}

func (o *watcherOptions) add(f *pflag.FlagSet) {
	f.Var(&o.redact, "redact",
		"values that are hidden before anything is recorded, such as pods:.spec.containers[*].env[*].value; the data of ConfigMaps is hidden unless something else is said of them (configmaps: hides nothing), but of those that controllers read; the content of Secrets is never recorded")
	o.scope.add(f)
	o.bound.add(f)
	f.StringSliceVar(&o.kinds, "kinds", o.kinds, "kinds to record besides those that the controllers need: '*' for the metadata of all (default none)")
}

// check finds kinds that cannot be asked for, and values that cannot be hidden from
// the controllers that run, before anything is started.
func (o *watcherOptions) check(chosen []reconcile.Any) error {
	for _, k := range o.kinds {
		if k != "*" {
			return fmt.Errorf("read --kinds: %q is not '*', which is all that can be asked for", k)
		}
	}
	return o.redact.check(chosen)
}
