package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/watcher"
	"github.com/millrace/millrace/services/writer"
)

// newServices are the commands of one service each.
func newServices() []*cobra.Command {
	return []*cobra.Command{newWatcher(), newReconcilers(), newWriter()}
}

func newWatcher() *cobra.Command {
	cluster, ctrl, at, service, watch := clusterOptions{}, newControllerOptions(), newBusOptions(), newServiceOptions(), watcherOptions{}
	return program{
		use: "watcher", short: "Turn list/watch deltas of the API server into streams",
		long: `Watches every kind that the controllers need and appends what it sees to the kind's
log. Any number may run: one is active, the others take over within a second.`,
		flags: []func(*pflag.FlagSet){cluster.add, ctrl.add, at.add, service.add, watch.add},
		run: func(ctx context.Context) error {
			return withBus(ctx, "watcher", &at, func(b bus.Bus) error {
				config, err := cluster.connect(ctx)
				if err != nil {
					return err
				}
				chosen, err := ctrl.choose()
				if err != nil {
					return err
				}
				p, err := watch.part(config, b, at.maxAge, chosen)
				if err != nil {
					return err
				}
				return service.run(ctx, []part{p})
			})
		},
	}.cobra()
}

func newReconcilers() *cobra.Command {
	ctrl, at, service := newControllerOptions(), newBusOptions(), newServiceOptions()
	return program{
		use: "reconcilers", short: "Decide: from deltas to turns",
		long: `Runs the controllers' decisions on the streams. It has no Kubernetes credentials.
Any number may run, all of them active.`,
		flags: []func(*pflag.FlagSet){ctrl.add, at.add, service.add},
		run: func(ctx context.Context) error {
			return withBus(ctx, "reconcilers", &at, func(b bus.Bus) error {
				chosen, err := ctrl.choose()
				if err != nil {
					return err
				}
				p, err := reconcilersPart(b, chosen)
				if err != nil {
					return err
				}
				return service.run(ctx, []part{p})
			})
		},
	}.cobra()
}

func newWriter() *cobra.Command {
	cluster, ctrl, at, service, write := clusterOptions{}, newControllerOptions(), newBusOptions(), newServiceOptions(), newWriterOptions()
	return program{
		use: "writer", short: "Apply: from turns to API requests",
		long: `Carries out the turns of the controllers with each controller's own identity, and
publishes what became of every command. Any number may run, all of them active.`,
		flags: []func(*pflag.FlagSet){cluster.add, ctrl.add, at.add, service.add, write.add},
		run: func(ctx context.Context) error {
			return withBus(ctx, "writer", &at, func(b bus.Bus) error {
				config, err := cluster.connect(ctx)
				if err != nil {
					return err
				}
				chosen, err := ctrl.choose()
				if err != nil {
					return err
				}
				p, err := write.part(config, b, chosen)
				if err != nil {
					return err
				}
				return service.run(ctx, []part{p})
			})
		},
	}.cobra()
}

// withBus opens the bus of a service that is on its own, and closes it.
func withBus(ctx context.Context, name string, at *busOptions, use func(bus.Bus) error) error {
	b, err := at.open(ctx, name, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	return use(b)
}

// choose gives the controllers that the flags ask for.
func (o *controllerOptions) choose() ([]reconcile.Any, error) {
	ca, err := o.rootCA()
	if err != nil {
		return nil, err
	}
	chosen, err := controllers.Select(o.selection(), controllers.Config{RootCA: ca})
	if err != nil {
		return nil, fmt.Errorf("read --controllers: %w", err)
	}
	return chosen, nil
}

func (o *watcherOptions) part(config *rest.Config, b bus.Bus, age time.Duration, chosen []reconcile.Any) (part, error) {
	full, every := controllers.Kinds(chosen)
	if err := o.check(); err != nil {
		return part{}, err
	}
	service, err := watcher.New(watcher.Config{
		REST: config, Bus: b, Kinds: full, Every: every || len(o.kinds) > 0, ID: instance(), LogAge: age,
	})
	if err != nil {
		return part{}, err
	}
	return part{name: "watcher", run: service.Run, checks: service.Checks(), collectors: service.Collectors()}, nil
}

func reconcilersPart(b bus.Bus, chosen []reconcile.Any) (part, error) {
	service, err := reconcilers.New(reconcilers.Config{Bus: b, Controllers: chosen, Code: Version})
	if err != nil {
		return part{}, err
	}
	return part{name: "reconcilers", run: service.Run, checks: service.Checks(), collectors: service.Collectors()}, nil
}

func (o *writerOptions) part(config *rest.Config, b bus.Bus, chosen []reconcile.Any) (part, error) {
	service, err := writer.New(writer.Config{
		REST: config, Bus: b, Controllers: profiles(chosen), Mode: writer.Mode(o.mode),
		Impersonate: o.impersonate, MaxInFlight: o.maxInFlight, Concurrent: o.concurrent.byName(),
	})
	if err != nil {
		return part{}, err
	}
	return part{name: "writer", run: service.Run, checks: service.Checks(), collectors: service.Collectors()}, nil
}

// profiles are what the writer must know of the controllers.
func profiles(chosen []reconcile.Any) []writer.Profile {
	out := make([]writer.Profile, 0, len(chosen))
	for _, c := range chosen {
		d := c.Describe()
		out = append(out, writer.Profile{Name: d.Name, Identity: d.Identity, Source: d.Source, Allowed: d.Writes.Allows})
	}
	return out
}

func (c concurrency) byName() map[string]int {
	return map[string]int{
		"deployment-controller":        c.deployment,
		"replicaset-controller":        c.replicaset,
		"garbage-collector-controller": c.garbageCollector,
	}
}

// watcherOptions are the watcher's.
type watcherOptions struct {
	kinds []string
}

func (o *watcherOptions) add(f *pflag.FlagSet) {
	f.StringSliceVar(&o.kinds, "kinds", o.kinds, "kinds to record besides those that the controllers need: '*' for the metadata of all (default none)")
}

// check finds kinds that cannot be asked for, before anything is started.
func (o *watcherOptions) check() error {
	for _, k := range o.kinds {
		if k != "*" {
			return fmt.Errorf("read --kinds: %q is not '*', which is all that can be asked for", k)
		}
	}
	return nil
}
