package command

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/busflags"
	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/election"
	"github.com/millrace/millrace/cmd/internal/kubeconfig"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/serviceflags"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// everything are the flags of a process that runs all services.
type everything struct {
	cluster kubeconfig.Options
	ctrl    controllerflags.Options
	bus     busflags.Options
	server  busflags.Server
	service process.Options
	watch   serviceflags.Watcher
	write   serviceflags.Writer
	notary  serviceflags.Notary
	signing serviceflags.SigningDir
	// election is for processes that have a bus each: only the leader acts.
	election election.Options
	// migration is for controllers that kube-controller-manager runs, too, by turns.
	migration serviceflags.Migration
}

func newEverything() *everything {
	o := &everything{
		ctrl: controllerflags.New(), bus: busflags.New(), server: busflags.NewServer(),
		service: process.NewOptions(), write: serviceflags.NewWriter(),
		notary: serviceflags.NewNotary(), election: election.Defaults(),
	}
	o.service.Controllers = &o.ctrl
	return o
}

// check validates the flags before anything is started.
func (o *everything) check() error {
	return errors.Join(o.ctrl.Check(), o.service.Check(), o.write.Check(), o.election.Check(), o.migration.Check(o.election))
}

func (o *everything) flags() []func(*pflag.FlagSet) {
	return []func(*pflag.FlagSet){
		program.Titled("controller", o.ctrl.Add), program.Titled("bus", o.bus.Add), program.Titled("bus server", o.server.Add), program.Titled("serving", o.service.Add),
		program.Titled("tracing", o.service.Tracing.Add), program.Titled("watcher", o.watch.Add), program.Titled("writer", o.write.Add), program.Titled("notary", o.notary.Add),
		program.Titled("signing", o.signing.Add), program.Titled("leader election", func(f *pflag.FlagSet) { addElection(f, &o.election); o.migration.Add(f) }),
	}
}

// newRun is the command that runs all services in one process.
func newRun() *cobra.Command {
	o := newEverything()
	return program.Program{
		Use: "run", Short: "Run all services in one process",
		Long: `Runs watcher, reconcilers and writer in one process on an embedded NATS JetStream
server with a file store, or on the server that --nats-url names. The controllers
that it runs must be off in kube-controller-manager: start that with
--controllers=*,-deployment-controller,... for each of them. Controllers in --shadow must
be on there: here they write nothing, and are compared with it.`,
		Flags: append(o.flags(), program.Titled("API server", o.cluster.Add)), Check: o.check,
		Run: func(ctx context.Context) error {
			config, err := o.cluster.Connect(ctx)
			if err != nil {
				return err
			}
			return o.elected(ctx, config)
		},
	}.Command()
}

// run runs all services against a cluster until the context ends.
func (o *everything) run(ctx context.Context, config *rest.Config) error {
	chosen, err := o.choose(config)
	if err != nil {
		return err
	}
	if err := errors.Join(o.watch.Check(chosen.All()), o.bus.CheckRetention()); err != nil {
		return err
	}
	spans, err := o.service.Tracing.Start(ctx, program.Version)
	if err != nil {
		return err
	}
	var server *embedded.Server
	if o.bus.Connection.URL == "" {
		if server, err = o.server.Start(); err != nil {
			return err
		}
		defer server.Close()
	}
	b, err := o.bus.Open(ctx, "run", server)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := o.bus.Audit(ctx, b); err != nil {
		return err
	}

	watching, err := o.watch.Part(config, b, chosen.All(), spans.Tracer("watcher"))
	if err != nil {
		return err
	}
	watching.Collectors = append(watching.Collectors, o.server.Collectors()...)
	turns, outcomes, err := o.signing.Load(o.server.DataDir)
	if err != nil {
		return err
	}
	deciding, err := serviceflags.Reconcilers(b, chosen, turns, spans.Tracer("reconcilers"))
	if err != nil {
		return err
	}
	var writing []process.Part
	if len(chosen.Acting) > 0 {
		secrets, err := o.ctrl.Secrets()
		if err != nil {
			return err
		}
		if writing, err = one(o.write.Part(config, b, chosen, o.migration.Lease(config, o.election, &o.write, chosen), secrets, outcomes, spans.Tracer("writer"))); err != nil {
			return err
		}
	}
	signing, err := o.notary.Part(b)
	if err != nil {
		return err
	}
	announce(ctx, chosen)
	return o.service.Run(ctx, slices.Concat(deciding, writing, []process.Part{watching}, signing, []process.Part{busflags.ProvisionerPart(b), busflags.AuditPart(b), o.checking(config, b, chosen)}, busflags.StorePart(server, b, o.server.Store), tracingPart(spans)))
}

// choose selects the controllers.
func (o *everything) choose(config *rest.Config) (controllerflags.Choice, error) {
	chosen, err := o.ctrl.ChooseFor(config)
	if err == nil {
		err = o.migration.Divide(&chosen)
	}
	return chosen, err
}

// checking runs the doctor's checks of all services at their start.
func (o *everything) checking(config *rest.Config, b *stream.Bus, chosen controllerflags.Choice) process.Part {
	asked := &doctorOptions{everything: o}
	return doctorPart(atStart(config, asked.needed(chosen), o.waits(), b, &o.bus, chosen))
}

// announce logs the controllers that are about to start.
func announce(ctx context.Context, chosen controllerflags.Choice) {
	for _, name := range chosen.Names() {
		if chosen.Leased != nil && chosen.Leased(name) {
			klog.FromContext(ctx).Info("Starting controller in shadow until this process holds the Lease", "controller", name)
			continue
		}
		klog.FromContext(ctx).Info("Starting controller", "controller", name)
	}
	for _, c := range chosen.Looking {
		klog.FromContext(ctx).Info("Starting controller in shadow", "controller", c.Describe().Name)
	}
}
