package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/election"
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

// newServices are the commands that run one service each.
func newServices() []*cobra.Command {
	return []*cobra.Command{newWatcher(), newReconcilers(), newWriter()}
}

func newWatcher() *cobra.Command {
	s, watch := newLone(), watcherOptions{}
	s.connects = true
	s.needed = func(chosen choice, _ bool) []doctor.Needed {
		return []doctor.Needed{watch.needed(chosen, nil)}
	}
	return s.cobra(program{
		use: "watcher", short: "Turn list/watch deltas of the API server into streams",
		long: `Watches every kind that the controllers need and appends what it sees to the kind's
log. Any number may run, all of them active: they share the kinds.`,
		flags: []func(*pflag.FlagSet){titled("API server", s.cluster.add), titled("watcher", watch.add)},
		run: func(ctx context.Context) error {
			return s.run(ctx, "watcher", func(b *stream.Bus, chosen choice, tracer *trace.Tracer) ([]part, error) {
				config, err := s.cluster.connect(ctx)
				if err != nil {
					return nil, err
				}
				if err := ensureShadows(ctx, b, chosen.compared()); err != nil {
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
Any number may run, all of them active: they share the keys of each controller.`,
		flags: []func(*pflag.FlagSet){titled("signing", keys.add)},
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
	s.needed = func(chosen choice, constrains bool) []doctor.Needed {
		all := []doctor.Needed{write.needed(chosen, nil, constrains)}
		if s.migration.enabled {
			all = append(all, leaderNeeded(s.election.LeaseNamespace, []string{s.migration.leaseName}))
		}
		return all
	}
	return s.cobra(program{
		use: "writer", short: "Apply: from turns to API requests",
		long: `Carries out the turns of the controllers with each controller's own identity, and
publishes the outcome of every command. Any number may run, all of them active: they
share the controllers.`,
		flags: []func(*pflag.FlagSet){titled("API server", s.cluster.add), titled("writer", write.add), titled("signing", keys.add)}, check: write.check,
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
				return one(write.part(config, b, chosen, s.migration.lease(config, s.election, &write, chosen), secrets, signed, tracer))
			})
		},
	})
}

// lone is a service in a process of its own.
type lone struct {
	cluster clusterOptions // for services that connect to the API server
	ctrl    controllerOptions
	at      busOptions
	service serviceOptions
	// connects is true for services that connect to the API server; needed are their RBAC rights.
	connects bool
	needed   func(chosen choice, constrains bool) []doctor.Needed
	// election says how a writer holds the Lease of migration. Otherwise it has no effect, since the
	// replicas of a service share the work.
	election  election.Options
	migration migrationOptions
}

func newLone() *lone {
	s := &lone{ctrl: newControllerOptions(), at: newBusOptions(), service: newServiceOptions(), election: election.Defaults()}
	s.service.ctrl = &s.ctrl
	return s
}

// cobra adds the flags that every service has.
func (s *lone) cobra(p program) *cobra.Command {
	p.flags = append(p.flags, titled("controller", s.ctrl.add), titled("bus", s.at.add), titled("serving", s.service.add), titled("tracing", s.service.tracing.Add),
		titled("leader election", func(f *pflag.FlagSet) { addElection(f, &s.election); s.migration.add(f) }))
	check := p.check
	p.check = func() error {
		all := errors.Join(s.ctrl.check(), s.service.check(), s.election.Check(), s.migration.check(s.election))
		if check != nil {
			all = errors.Join(all, check())
		}
		return all
	}
	return p.cobra()
}

// run opens the bus, builds the service and runs it.
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
	if err == nil {
		err = s.migration.divide(&chosen)
	}
	if err != nil {
		return err
	}
	parts, err := build(b, chosen, spans.Tracer(name))
	if err != nil {
		return err
	}
	return s.service.run(ctx, slices.Concat(parts, []part{auditPart(b), s.checking(b, chosen)}, tracingPart(spans)))
}

// checking runs the doctor's checks of the service at its start. It does not check rights on
// custom kinds, because it does not know which of them the roles name.
func (s *lone) checking(b *stream.Bus, chosen choice) part {
	var config *rest.Config
	var needed func(bool) []doctor.Needed
	waits := ""
	if s.migration.enabled {
		waits = waitsForLease
	}
	if s.connects {
		if loaded, err := s.cluster.load(); err == nil {
			config = loaded
			config.UserAgent = "millrace/" + Version
			needed = func(constrains bool) []doctor.Needed { return s.needed(chosen, constrains) }
		}
	}
	return doctorPart(atStart(config, needed, waits, b, &s.at, chosen))
}

// choose selects the controllers of the process. A kubeconfig that cannot be loaded is no error
// here: connect reports it.
func (s *lone) choose() (choice, error) {
	if s.connects {
		if config, err := s.cluster.load(); err == nil {
			return s.ctrl.chooseFor(config)
		}
	}
	return s.ctrl.choose()
}

// chooseFor selects the controllers of a process that has a kubeconfig.
func (o *controllerOptions) chooseFor(config *rest.Config) (choice, error) {
	if err := o.trust(config); err != nil {
		return choice{}, err
	}
	return o.choose()
}

// choose selects the controllers that the flags ask for. It logs those that are off because
// a flag is not set, and those that only a cloud-controller-manager runs.
//
// Upstream: cmd/kube-controller-manager/app, BuildController, for the words of the latter.
func (o *controllerOptions) choose() (choice, error) {
	chosen, lacking, err := o.pick()
	if err != nil {
		return choice{}, err
	}
	for _, e := range lacking {
		klog.Background().Info("Controller is off because a flag is not set", "controller", e.Name, "flag", "--"+e.Needs)
	}
	for _, e := range controllers.Skipped(o.selection()) {
		klog.Background().Info("Skipping a cloud provider controller", "controller", e.Name)
	}
	o.chosen = chosen
	return o.chosen, nil
}

// pick is choose without logs. lacking are the controllers that are off because a flag is not set.
func (o *controllerOptions) pick() (chosen choice, lacking []controllers.Entry, err error) {
	config, err := o.config()
	if err != nil {
		return choice{}, nil, err
	}
	all, err := controllers.Select(o.selection(), config)
	if err != nil {
		return choice{}, nil, fmt.Errorf("read --controllers: %w", err)
	}
	chosen, err = o.divide(all, config)
	return chosen, controllers.Lacking(o.selection(), config), err
}

// one wraps the only part of a service in a slice, or passes the error on.
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

// reconcilersParts are the parts of the acting controllers and of those in shadow.
func reconcilersParts(b *stream.Bus, chosen choice, signatures shell.Signatures, tracer *trace.Tracer) ([]part, error) {
	if len(chosen.acting) == 0 {
		return shadowPart(b, chosen, nil)
	}
	service, err := reconcilers.New(reconcilers.Config{Bus: b, Controllers: chosen.acting, Leased: chosen.leased, Code: Version, Trace: tracer, Settings: shell.Settings{Signatures: signatures}})
	if err != nil {
		return nil, err
	}
	parts, err := shadowPart(b, chosen, service)
	if err != nil {
		return nil, err
	}
	return append(parts, part{name: "reconcilers", key: decidingKey(service), run: service.Run, checks: service.Checks(), notes: service.Notes(), collectors: append(service.Collectors(), unsignedCollector(signatures.Sign)...)}), nil
}

func (o *writerOptions) part(config *rest.Config, b bus.Bus, chosen choice, lease leaseOf, with secrets, keys signed, tracer *trace.Tracer) (part, error) {
	bounds, err := o.limits()
	if err != nil {
		return part{}, err
	}
	service, err := writer.New(writer.Config{
		REST: config, Limits: bounds, Bus: b, Controllers: profiles(chosen), Lease: lease, Mode: writer.Mode(o.mode),
		Impersonate: o.impersonate, MaxInFlight: o.maxInFlight, QPS: o.qps, Burst: o.burst, Concurrent: o.concurrent.byName(),
		Mint: with.tokens, Authority: with.certificates, Types: typecheck.Check, Trace: tracer,
		Turns: keys.theirs, Sign: keys.signer, Outcomes: keys.kin,
	})
	if err != nil {
		return part{}, err
	}
	return part{name: "writer", key: writingKey(service, chosen.acting), run: service.Run, checks: service.Checks(), collectors: append(service.Collectors(), unsignedCollector(keys.signer)...)}, nil
}

// decidingKey reports the reconcilers' state of a key.
func decidingKey(s *reconcilers.Service) keyTeller {
	return func(ctx context.Context, r *events.KeyReport) bool {
		state, ok := s.Key(ctx, r.Controller, r.Key)
		if ok {
			r.Reconcilers = &state
		}
		return ok
	}
}

// writingKey reports what the writer has in flight for a key.
func writingKey(s *writer.Service, chosen []reconcile.Any) keyTeller {
	return func(_ context.Context, r *events.KeyReport) bool {
		r.Writer = s.Key(r.Controller, r.Key)
		return slices.ContainsFunc(chosen, func(c reconcile.Any) bool { return c.Describe().Name == r.Controller })
	}
}

// tracingPart exports spans. It comes last, so that it stops after the services that make them.
func tracingPart(t *telemetry.Telemetry) []part {
	if t == nil {
		return nil
	}
	return []part{{name: "tracing", run: t.Run, collectors: t.Collectors()}}
}

// profiles are what the writer needs to know about each controller.
func profiles(chosen choice) []writer.Profile {
	out := make([]writer.Profile, 0, len(chosen.acting))
	for _, c := range chosen.acting {
		d := c.Describe()
		p := writer.Profile{Name: d.Name, Leased: chosen.leased != nil && chosen.leased(d.Name), Identity: d.Identity, Source: d.Source, Allowed: d.Writes.Allows, Fits: d.Fits}
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

// watcherOptions are the flags of the watcher.
type watcherOptions struct {
	kinds  []string
	redact redaction
	scope  scope
	bound  objectBound
}

func (o *watcherOptions) add(f *pflag.FlagSet) {
	f.Var(&o.redact, "redact",
		"values that are not recorded, such as pods:.spec.containers[*].env[*].value. By default the data of ConfigMaps is hidden, except of those that controllers read; 'configmaps:' records it. The content of Secrets is never recorded")
	o.scope.add(f)
	o.bound.add(f)
	f.StringSliceVar(&o.kinds, "kinds", o.kinds, "additional kinds to record, besides those that controllers need; '*' for the metadata of all (default: none)")
}

// check refuses unknown values of --kinds, and redactions of values that running controllers
// read, before anything is started.
func (o *watcherOptions) check(chosen []reconcile.Any) error {
	for _, k := range o.kinds {
		if k != "*" {
			return fmt.Errorf("read --kinds: %q is not '*', which is all that can be asked for", k)
		}
	}
	return o.redact.check(chosen)
}
