package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/services/reconcilers"
	shadows "github.com/millrace/millrace/services/reconcilers/beside"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// choice are the selected controllers: those that act, and those in shadow.
type choice struct {
	acting, looking []reconcile.Any
	// leased tells which of those that act do so only while Millrace holds a Lease, and are in shadow
	// otherwise; nil: none.
	leased func(controller string) bool
}

// compared are the controllers that are in shadow, always or at times.
func (c choice) compared() []reconcile.Any {
	all := slices.Clone(c.looking)
	for _, one := range c.acting {
		if c.leased != nil && c.leased(one.Describe().Name) {
			all = append(all, one)
		}
	}
	return all
}

// all are both; the watcher watches the kinds of all of them.
func (c choice) all() []reconcile.Any { return slices.Concat(c.acting, c.looking) }

// divide separates the controllers in shadow from those that act.
//
// Errors: --shadow is invalid, or names a controller that was not selected.
func (o *controllerOptions) divide(chosen []reconcile.Any, config controllers.Config) (choice, error) {
	if len(o.shadow) == 0 {
		return choice{acting: chosen}, nil
	}
	looking, err := controllers.Select(o.shadow, config)
	if err != nil {
		return choice{}, fmt.Errorf("read --shadow: %w", err)
	}
	for _, item := range o.shadow {
		e, known := controllers.Find(strings.TrimSpace(item))
		if known && !includes(chosen, e.Name) {
			return choice{}, fmt.Errorf("read --shadow: %s is not among the --controllers: name it there too", e.Name)
		}
	}
	var c choice
	for _, one := range chosen {
		if includes(looking, one.Describe().Name) {
			c.looking = append(c.looking, one)
		} else {
			c.acting = append(c.acting, one)
		}
	}
	return c, nil
}

func includes(list []reconcile.Any, name string) bool {
	return slices.ContainsFunc(list, func(c reconcile.Any) bool { return c.Describe().Name == name })
}

// ensureShadows creates the streams of shadows, because a process that runs shadows under a bus
// user of its own has no right to create them.
func ensureShadows(ctx context.Context, b *stream.Bus, looking []reconcile.Any) error {
	for _, c := range looking {
		if err := b.EnsureShadow(ctx, c.Describe().Name); err != nil {
			return err
		}
	}
	return nil
}

// shadowPart compares the controllers in shadow with kube-controller-manager; nil without such
// controllers. A leased controller is not compared while a writer holds its Lease; deciding knows when
// that is, and is nil where no controller is leased.
func shadowPart(b *stream.Bus, chosen choice, deciding *reconcilers.Service) ([]part, error) {
	compared := chosen.compared()
	if len(compared) == 0 {
		return nil, nil
	}
	service, err := shadows.New(shadows.Config{Bus: b, Controllers: compared, Code: Version})
	if err != nil {
		return nil, err
	}
	run := service.Run
	if deciding != nil && chosen.leased != nil {
		run = func(ctx context.Context) error {
			var watching sync.WaitGroup
			defer watching.Wait()
			ctx, end := context.WithCancel(ctx)
			defer end()
			watching.Go(func() { deciding.WatchLeases(ctx, service.LeaveOut) })
			return service.Run(ctx)
		}
	}
	return []part{{name: "shadows", run: run, checks: service.Checks(), collectors: service.Collectors()}}, nil
}

// idle is a service that has nothing to do, because every controller is in shadow.
func idle(name string) part {
	return part{name: name, run: func(ctx context.Context) error {
		klog.FromContext(ctx).Info("Nothing to do: every controller is in shadow", "service", name)
		<-ctx.Done()
		return nil
	}}
}
