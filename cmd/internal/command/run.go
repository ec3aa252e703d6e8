package command

import (
	"context"
	"errors"
	"slices"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/election"
	"github.com/millrace/millrace/pkg/events/stream"
)

// everything are the flags of a process that runs all services.
type everything struct {
	cluster clusterOptions
	ctrl    controllerOptions
	bus     busOptions
	server  serverOptions
	service serviceOptions
	watch   watcherOptions
	write   writerOptions
	notary  notaryOptions
	signing signingDir
	// election is for processes that have a bus each: only the leader acts.
	election election.Options
	// migration is for controllers that kube-controller-manager runs, too, by turns.
	migration migrationOptions
}

func newEverything() *everything {
	o := &everything{
		ctrl: newControllerOptions(), bus: newBusOptions(), server: newServerOptions(),
		service: newServiceOptions(), write: newWriterOptions(),
		notary: newNotaryOptions(), election: election.Defaults(),
	}
	o.service.ctrl = &o.ctrl
	return o
}

// check validates the flags before anything is started.
func (o *everything) check() error {
	return errors.Join(o.ctrl.check(), o.service.check(), o.write.check(), o.election.Check(), o.migration.check(o.election))
}

func (o *everything) flags() []func(*pflag.FlagSet) {
	return []func(*pflag.FlagSet){
		titled("controller", o.ctrl.add), titled("bus", o.bus.add), titled("bus server", o.server.add), titled("serving", o.service.add),
		titled("tracing", o.service.tracing.Add), titled("watcher", o.watch.add), titled("writer", o.write.add), titled("notary", o.notary.add),
		titled("signing", o.signing.add), titled("leader election", func(f *pflag.FlagSet) { addElection(f, &o.election); o.migration.add(f) }),
	}
}

// newRun is the command that runs all services in one process.
func newRun() *cobra.Command {
	o := newEverything()
	return program{
		use: "run", short: "Run all services in one process",
		long: `Runs watcher, reconcilers and writer in one process on an embedded NATS JetStream
server with a file store, or on the server that --nats-url names. The controllers
that it runs must be off in kube-controller-manager: start that with
--controllers=*,-deployment-controller,... for each of them. Controllers in --shadow must
be on there: here they write nothing, and are compared with it.`,
		flags: append(o.flags(), titled("API server", o.cluster.add)), check: o.check,
		run: func(ctx context.Context) error {
			config, err := o.cluster.connect(ctx)
			if err != nil {
				return err
			}
			return o.elected(ctx, config)
		},
	}.cobra()
}

// run runs all services against a cluster until the context ends.
func (o *everything) run(ctx context.Context, config *rest.Config) error {
	chosen, err := o.choose(config)
	if err != nil {
		return err
	}
	if err := errors.Join(o.watch.check(chosen.all()), o.bus.checkRetention()); err != nil {
		return err
	}
	spans, err := o.service.tracing.Start(ctx, Version)
	if err != nil {
		return err
	}
	var server *embedded.Server
	if o.bus.at.URL == "" {
		if server, err = o.server.start(); err != nil {
			return err
		}
		defer server.Close()
	}
	b, err := o.bus.open(ctx, "run", server)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := o.bus.audit(ctx, b); err != nil {
		return err
	}

	watching, err := o.watch.part(config, b, chosen.all(), spans.Tracer("watcher"))
	if err != nil {
		return err
	}
	watching.collectors = append(watching.collectors, o.server.secure.collectors()...)
	turns, outcomes, err := o.signing.load(o.server.dataDir)
	if err != nil {
		return err
	}
	deciding, err := reconcilersParts(b, chosen, turns, spans.Tracer("reconcilers"))
	if err != nil {
		return err
	}
	var writing []part
	if len(chosen.acting) > 0 {
		secrets, err := o.ctrl.secrets()
		if err != nil {
			return err
		}
		if writing, err = one(o.write.part(config, b, chosen, o.migration.lease(config, o.election, &o.write, chosen), secrets, outcomes, spans.Tracer("writer"))); err != nil {
			return err
		}
	}
	signing, err := o.notary.part(b)
	if err != nil {
		return err
	}
	announce(ctx, chosen)
	return o.service.run(ctx, slices.Concat(deciding, writing, []part{watching}, signing, []part{provisionerPart(b), auditPart(b), o.checking(config, b, chosen)}, storePart(server, b, o.server.store), tracingPart(spans)))
}

// choose selects the controllers.
func (o *everything) choose(config *rest.Config) (choice, error) {
	chosen, err := o.ctrl.chooseFor(config)
	if err == nil {
		err = o.migration.divide(&chosen)
	}
	return chosen, err
}

// checking runs the doctor's checks of all services at their start.
func (o *everything) checking(config *rest.Config, b *stream.Bus, chosen choice) part {
	asked := &doctorOptions{everything: o}
	return doctorPart(atStart(config, asked.needed(chosen), o.waits(), b, &o.bus, chosen))
}

// announce logs the controllers that are about to start.
func announce(ctx context.Context, chosen choice) {
	for _, name := range chosen.names() {
		if chosen.leased != nil && chosen.leased(name) {
			klog.FromContext(ctx).Info("Starting controller in shadow until this process holds the Lease", "controller", name)
			continue
		}
		klog.FromContext(ctx).Info("Starting controller", "controller", name)
	}
	for _, c := range chosen.looking {
		klog.FromContext(ctx).Info("Starting controller in shadow", "controller", c.Describe().Name)
	}
}
