package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
)

// wide are the controllers of scenarios that need more than the five.
var wide = append([]string{"job-controller", "statefulset-controller", "namespace-controller"}, controllers...)

// perNamespace is the number of Pods in each namespace at rest.
const perNamespace = 20

// rest is the cost of having nothing to do: a cluster full of Deployments whose Pods no scheduler handles, so
// that only the contender changes anything.
func rest(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.wide(ctx); err != nil {
		return nil, err
	}
	arenas := make([]*arena.Arena, work.Pods/perNamespace)
	for i := range arenas {
		a, err := f.open(ctx)
		if err != nil {
			return nil, err
		}
		defer a.Close()
		arenas[i] = a
	}
	err := arena.Parallel(20, len(arenas), func(i int) error {
		if err := arenas[i].DeployUnscheduled(ctx, "quiet", image, perNamespace); err != nil {
			return err
		}
		_, err := arenas[i].Until(ctx, arena.Told(perNamespace))
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := f.quiet(ctx, time.Duration(work.Rest)*time.Second/4); err != nil {
		return nil, err
	}
	metrics, err := f.idle(ctx, time.Duration(work.Rest)*time.Second)
	if err != nil {
		return nil, err
	}
	// Clean up for the next scenario without relying on a controller.
	return metrics, arena.Parallel(20, len(arenas), func(i int) error {
		if err := arenas[i].DeleteDeployments(ctx); err != nil {
			return err
		}
		_, err := arenas[i].Until(ctx, arena.Empty())
		return err
	})
}

// quiet waits until no request has written for so long.
func (f *field) quiet(ctx context.Context, long time.Duration) error {
	for {
		before, err := f.client.Ledger(ctx)
		if err != nil {
			return err
		}
		if err := arena.Rest(ctx, long); err != nil {
			return fmt.Errorf("wait until nothing is written: %w", err)
		}
		if after, err := f.client.Ledger(ctx); err != nil || after.Writes() == before.Writes() {
			return err
		}
	}
}

// idle is what the contender uses and writes in a period.
func (f *field) idle(ctx context.Context, long time.Duration) ([]metric, error) {
	before, err := usageOf(f.units)
	if err != nil {
		return nil, err
	}
	ledger, err := f.client.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := arena.Rest(ctx, long); err != nil {
		return nil, err
	}
	after, err := usageOf(f.units)
	if err != nil {
		return nil, err
	}
	written, err := f.client.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	return []metric{
		{"processor at rest", "%", 100 * (after.cpu - before.cpu) / took.Seconds()},
		{"memory at rest", "MB", after.resident},
		{"writes at rest", "1/min", float64(written.Since(ledger).Writes()) / took.Minutes()},
	}, nil
}

// job is a Job of many completions, a tenth of them in parallel.
func job(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	begun := time.Now()
	if err := a.Job(ctx, "sum", work.Completions, max(work.Completions/10, 1)); err != nil {
		return nil, err
	}
	done, err := a.Until(ctx, arena.Complete("sum", work.Completions))
	if err != nil {
		return nil, err
	}
	if created := a.Created(); created != work.Completions {
		return nil, fmt.Errorf("%d pods were created for %d completions", created, work.Completions)
	}
	if err := a.DeleteJob(ctx, "sum"); err != nil {
		return nil, err
	}
	deleted := time.Now()
	gone, err := a.Until(ctx, arena.NoPods())
	if err != nil {
		return nil, err
	}
	return []metric{seconds("until it is complete", done.Sub(begun)), seconds("until all Pods are gone", gone.Sub(deleted))}, nil
}

// stateful is a StatefulSet of ordered Pods: it scales up several times, and down once, because that takes a
// second for each Pod.
func stateful(ctx context.Context, f *field, work sizes) ([]metric, error) {
	up, err := inNamespaces((*field).wide, ascending)(ctx, f, work)
	if err != nil {
		return nil, err
	}
	down, err := f.play(ctx, descending, work)
	return append(up, down...), err
}

// ascending is the time to create ordered Pods one after the other.
func ascending(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	took, err := ordered(ctx, a, work)
	if err != nil {
		return nil, err
	}
	if err := a.DeleteStatefulSet(ctx, "db"); err != nil {
		return nil, err
	}
	if _, err := a.Until(ctx, arena.NoPods()); err != nil {
		return nil, err
	}
	return []metric{seconds("until all are ready", took)}, nil
}

// descending is the time to delete them, the highest ordinal first.
func descending(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	if _, err := ordered(ctx, a, work); err != nil {
		return nil, err
	}
	shrunk := time.Now()
	if err := a.ScaleStatefulSet(ctx, "db", 0); err != nil {
		return nil, err
	}
	gone, err := a.Until(ctx, arena.NoPods())
	if err != nil {
		return nil, err
	}
	return []metric{seconds("until all are gone, in order", gone.Sub(shrunk))}, nil
}

// ordered creates a StatefulSet and returns the time until all Pods were ready.
func ordered(ctx context.Context, a *arena.Arena, work sizes) (time.Duration, error) {
	begun := time.Now()
	if err := a.StatefulSet(ctx, "db", image, work.Ordered); err != nil {
		return 0, err
	}
	ready, err := a.Until(ctx, arena.Ready(work.Ordered))
	return ready.Sub(begun), err
}

// emptied is the deletion of a namespace with all objects in it: half of them are Pods.
func emptied(ctx context.Context, f *field, a *arena.Arena, work sizes) ([]metric, error) {
	if err := a.CreatePods(ctx, work.Held/2); err != nil {
		return nil, err
	}
	if err := a.CreateConfigMaps(ctx, work.Held-work.Held/2); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := a.Remove(ctx); err != nil {
		return nil, err
	}
	if err := f.client.AwaitGone(ctx, a.Namespace); err != nil {
		return nil, err
	}
	return []metric{seconds("until it is gone", time.Since(begun))}, nil
}

// list is the value of a --controllers flag.
func list(controllers []string) string { return strings.Join(controllers, ",") }
