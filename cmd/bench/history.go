package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/cmd/bench/procusage"
	"github.com/millrace/millrace/cmd/internal/history"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
	"github.com/millrace/millrace/pkg/events/stream"
)

// starts is the number of starts after each way to end; the median counts.
const starts = 3

// longer is the factor between the usual and the long past.
const longer = 5

// past measures starts on as many messages as a cluster of this size leaves in days, and longPast on five
// times as many. The long past takes so long to make that it runs only on request.
func past(ctx context.Context, f *field, work sizes) ([]metric, error) {
	return startsOn(ctx, f, work.Pods, work.Past)
}

func longPast(ctx context.Context, f *field, work sizes) ([]metric, error) {
	return startsOn(ctx, f, work.Pods, longer*work.Past)
}

// startsOn measures starts on so many messages, with so many Pods. The real kube-controller-manager has no
// history, so it takes no part.
func startsOn(ctx context.Context, f *field, pods, messages int) ([]metric, error) {
	who, ok := f.who.(millrace)
	if !ok {
		return nil, nil
	}
	if err := f.alone(ctx); err != nil {
		return nil, err
	}
	if err := f.crowded(ctx, pods); err != nil {
		return nil, err
	}
	a, err := f.settled(ctx, 5)
	if err != nil {
		return nil, err
	}
	if err := f.grow(ctx, who.store(f.cluster), messages); err != nil {
		return nil, err
	}
	metrics, err := f.startsOfOne(ctx, a)
	if err != nil {
		return nil, err
	}
	apart, err := f.startsApart(ctx, a, who)
	return append(metrics, apart...), err
}

// grow makes the missing messages of a past, and starts on it once without measuring, because that is the
// first start on these streams.
func (f *field) grow(ctx context.Context, store string, messages int) error {
	if err := f.halt((*unit).stop); err != nil {
		return err
	}
	if err := lengthen(ctx, store, messages-f.past); err != nil {
		return fmt.Errorf("make a past: %w", err)
	}
	f.past = messages
	return f.resume(ctx)
}

// startsOfOne measures starts of the single process, including the bus in it.
func (f *field) startsOfOne(ctx context.Context, a *arena.Arena) ([]metric, error) {
	stopped, err := f.startsAfter(ctx, a, "it was stopped", (*unit).stop)
	if err != nil {
		return nil, err
	}
	killed, err := f.startsAfter(ctx, a, "it was killed", (*unit).kill)
	return append(stopped, killed...), err
}

// startsApart measures starts of the services as processes of their own, on a bus that already runs. It also
// cleans up, and ends the services and their bus.
func (f *field) startsApart(ctx context.Context, a *arena.Arena, who millrace) (metrics []metric, err error) {
	if err := f.dismiss(); err != nil {
		return nil, err
	}
	bus, services, err := who.apart(f.cluster, who.store(f.cluster), 1)
	if err != nil {
		return nil, err
	}
	there, err := begin(ctx, bus)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end(there)) }()
	if f.units, err = begin(ctx, services...); err != nil {
		return nil, err
	}
	if metrics, err = f.startsAfter(ctx, a, "the services were stopped", (*unit).stop); err == nil {
		err = wipe(ctx, a)
	}
	return metrics, errors.Join(err, f.dismiss())
}

// startsAfter measures starts after one way of ending the processes.
func (f *field) startsAfter(ctx context.Context, a *arena.Arena, name string, end func(*unit) error) ([]metric, error) {
	var took []time.Duration
	var used procusage.Usage
	for range starts {
		d, err := f.startAfter(ctx, a, end)
		if err != nil {
			return nil, fmt.Errorf("start after %s: %w", name, err)
		}
		if used, err = usageOf(f.units); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "    first decision %s s after a start when %s; %s s of processor time, %s MB\n",
			number(d.Seconds()), name, number(used.CPU), number(used.Memory))
		took = append(took, d)
	}
	name = "after " + name
	return []metric{
		seconds("first decision "+name, quantile(took, 0.5)),
		{"processor time of the last start " + name, "s", used.CPU},
		{"peak memory of the last start " + name, "MB", used.Memory},
	}, nil
}

// startAfter ends the processes, deletes a Pod, and returns the time from the start until the replacement was
// seen.
func (f *field) startAfter(ctx context.Context, a *arena.Arena, end func(*unit) error) (time.Duration, error) {
	if _, err := a.Until(ctx, arena.Ready(5)); err != nil {
		return 0, err
	}
	if err := f.halt(end); err != nil {
		return 0, err
	}
	wanted := a.Created() + 1
	if _, err := a.DeletePod(ctx); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := f.resume(ctx); err != nil {
		return 0, err
	}
	replaced, err := a.Until(ctx, arena.Created(wanted))
	return replaced.Sub(begun), err
}

// halt ends the processes such that they can be started again.
func (f *field) halt(end func(*unit) error) error {
	var errs []error
	for i := range f.units {
		errs = append(errs, end(&f.units[i]))
	}
	return errors.Join(errs...)
}

// resume starts the halted processes, all at once.
func (f *field) resume(ctx context.Context) error {
	starting, ctx := errgroup.WithContext(ctx)
	for i := range f.units {
		starting.Go(func() (err error) {
			f.units[i].process, err = f.units[i].start(ctx)
			return err
		})
	}
	return starting.Wait()
}

func (u *unit) stop() error { return u.process.Stop() }
func (u *unit) kill() error { return u.process.Kill() }

// store is the directory in which the single process keeps its streams.
func (millrace) store(c *localcluster.Cluster) string { return filepath.Join(c.Dir, "millrace") }

// lengthen makes a past in the streams of a Millrace that does not run.
func lengthen(ctx context.Context, store string, messages int) (err error) {
	server, err := embedded.Serve(embedded.Options{Dir: store})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	b, err := stream.Connect(ctx, stream.Options{Server: server, Name: "bench"})
	if err != nil {
		return err
	}
	defer b.Close()
	return history.Past{
		Kind: "pods", Controller: "replicaset-controller", Messages: messages,
		Told: func(n int) { fmt.Fprintf(os.Stderr, "    %d deltas of the past are there\n", n) },
	}.Make(ctx, b)
}
