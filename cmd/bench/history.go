package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/internal/history"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
	"github.com/millrace/millrace/pkg/events/stream"
)

const (
	// longer is how many times as long the second history is.
	longer = 5
	// starts are made of each way to end, and the median counts.
	starts = 3
)

// past is a start on a long history: as many messages as a cluster of this size
// leaves in days. The real kube-controller-manager has none, so nobody else takes
// part.
func past(ctx context.Context, f *field, work sizes) ([]metric, error) {
	who, ok := f.who.(millrace)
	if !ok {
		return nil, nil
	}
	if err := f.alone(ctx); err != nil {
		return nil, err
	}
	crowd, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	defer crowd.Close()
	if err := crowd.CreatePods(ctx, work.Pods); err != nil {
		return nil, err
	}
	a, err := f.settled(ctx, 5)
	if err != nil {
		return nil, err
	}
	var metrics []metric
	for _, there := range []struct{ messages, more int }{{work.Past, work.Past}, {longer * work.Past, (longer - 1) * work.Past}} {
		measured, err := f.startsOn(ctx, a, who.store(f.cluster), there.more)
		if err != nil {
			return nil, fmt.Errorf("%d messages: %w", there.messages, err)
		}
		for _, m := range measured {
			m.Name = fmt.Sprintf("%d messages, %s", there.messages, m.Name)
			metrics = append(metrics, m)
		}
	}
	return metrics, wipe(ctx, a)
}

// startsOn makes so many more messages, and measures starts on the whole.
func (f *field) startsOn(ctx context.Context, a *arena.Arena, store string, more int) ([]metric, error) {
	if err := f.halt((*unit).stop); err != nil {
		return nil, err
	}
	if err := lengthen(ctx, store, more); err != nil {
		return nil, fmt.Errorf("make a past: %w", err)
	}
	if err := f.resume(ctx); err != nil { // which nobody measures: it is the first on these streams
		return nil, err
	}
	var metrics []metric
	for _, end := range []struct {
		name string
		do   func(*unit) error
	}{{"stopped", (*unit).stop}, {"killed", (*unit).kill}} {
		var took []time.Duration
		var used usage
		for range starts {
			d, err := f.startAfter(ctx, a, end.do)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", end.name, err)
			}
			if used, err = usageOf(f.units); err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "    first decision %s s after a start on what was %s; %s s of processor time, %s MB\n",
				number(d.Seconds()), end.name, number(used.cpu), number(used.memory))
			took = append(took, d)
		}
		metrics = append(metrics,
			seconds("first decision after it was "+end.name, quantile(took, 0.5)),
			metric{"processor time of the last such start", "s", used.cpu},
			metric{"peak memory of the last such start", "MB", used.memory})
	}
	return metrics, nil
}

// startAfter ends the processes, deletes a Pod, and says how long after the start
// its replacement was seen.
func (f *field) startAfter(ctx context.Context, a *arena.Arena, end func(*unit) error) (time.Duration, error) {
	if _, err := a.Until(ctx, arena.Ready(5)); err != nil {
		return 0, err
	}
	if err := f.halt(end); err != nil {
		return 0, err
	}
	wanted := a.Born() + 1
	if _, err := a.DeletePod(ctx); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := f.resume(ctx); err != nil {
		return 0, err
	}
	replaced, err := a.Until(ctx, arena.Born(wanted))
	return replaced.Sub(begun), err
}

// halt ends the processes, which will be started again.
func (f *field) halt(end func(*unit) error) error {
	var errs []error
	for i := range f.units {
		errs = append(errs, end(&f.units[i]))
	}
	return errors.Join(errs...)
}

// resume starts the processes that were ended.
func (f *field) resume(ctx context.Context) (err error) {
	for i := range f.units {
		if f.units[i].process, err = f.units[i].start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) stop() error { return u.process.Stop() }
func (u *unit) kill() error { return u.process.Kill() }

// store is where everything in one process keeps its streams.
func (millrace) store(c *localcluster.Cluster) string { return filepath.Join(c.Dir, "millrace") }

// lengthen opens the streams of a Millrace that does not run, and makes a past.
func lengthen(ctx context.Context, store string, messages int) (err error) {
	server, err := stream.Serve(stream.ServerOptions{Dir: store})
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
