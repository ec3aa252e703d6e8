package serviceflags

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/services/reconcilers"
	shadows "github.com/millrace/millrace/services/reconcilers/beside"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// EnsureShadows creates the streams of shadows, because a process that runs shadows under a bus
// user of its own has no right to create them.
//
// Errors: a stream cannot be created.
func EnsureShadows(ctx context.Context, b *stream.Bus, looking []reconcile.Any) error {
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
func shadowPart(b *stream.Bus, chosen controllerflags.Choice, deciding *reconcilers.Service) ([]process.Part, error) {
	compared := chosen.Compared()
	if len(compared) == 0 {
		return nil, nil
	}
	service, err := shadows.New(shadows.Config{Bus: b, Controllers: compared, Code: program.Version})
	if err != nil {
		return nil, err
	}
	run := service.Run
	if deciding != nil && chosen.Leased != nil {
		run = func(ctx context.Context) error {
			var watching sync.WaitGroup
			defer watching.Wait()
			ctx, end := context.WithCancel(ctx)
			defer end()
			watching.Go(func() { deciding.WatchLeases(ctx, service.LeaveOut) })
			return service.Run(ctx)
		}
	}
	return []process.Part{{Name: "shadows", Run: run, Checks: service.Checks(), Collectors: service.Collectors()}}, nil
}

// Idle is a service that has nothing to do, because every controller is in shadow.
func Idle(name string) process.Part {
	return process.Part{Name: name, Run: func(ctx context.Context) error {
		klog.FromContext(ctx).Info("Nothing to do: every controller is in shadow", "service", name)
		<-ctx.Done()
		return nil
	}}
}
