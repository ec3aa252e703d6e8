package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
	"github.com/millrace/millrace/pkg/events/stream"
)

const (
	// scalers scale at the same time, each a Deployment of its own.
	scalers = 20
	// rounds are played of each share of traces, in turns, since a machine is not
	// equally fast all the time; each does its part of the work.
	rounds = 5
)

// share is how many of all traces are recorded.
type share struct {
	name    string
	million int // of a million; 0 leaves tracing off
}

var shares = []share{{"without traces", 0}, {"1 % of traces", 10_000}, {"100 % of traces", 1_000_000}}

// tracer is Millrace on a control plane with Jaeger, recording a share of all
// traces.
type tracer struct {
	millrace
	share  share
	nats   string
	jaeger string
}

func (m tracer) alone(ctx context.Context, c *localcluster.Cluster) ([]unit, error) {
	args := []string{
		"run", "--kubeconfig=" + c.Kubeconfig(localcluster.Millrace), "--data-dir=" + filepath.Join(c.Dir, "traced"), "--nats-listen=" + m.nats,
		"--controllers=" + strings.Join(controllers, ","), "--root-ca-file=" + c.RootCAFile(),
	}
	if m.share.million > 0 {
		args = append(args, "--tracing-endpoint="+c.Collector(), fmt.Sprintf("--tracing-sampling-rate-per-million=%d", m.share.million))
	}
	return begin(ctx, m.unit(c, "", "millrace-traced", args...))
}

// tracing scales Deployments up, one replica at a time, with no, few and all traces
// recorded, and looks whether all that are recorded are whole. The real
// kube-controller-manager has no such traces, so it takes no part.
func tracing(ctx context.Context, f *field, work sizes) (metrics []metric, err error) {
	who, ok := f.who.(millrace)
	if !ok {
		return nil, nil
	}
	if err := f.dismiss(); err != nil {
		return nil, err
	}
	cluster, err := localcluster.Start(ctx, localcluster.Options{Lean: true, Output: os.Stderr, Tracing: localcluster.Tracing{Jaeger: true}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	port, err := localcluster.FreePort()
	if err != nil {
		return nil, err
	}
	runs := make([]traceRun, len(shares))
	for round := range rounds {
		for i := range shares {
			s := (i + round) % len(shares) // whoever goes first has the emptiest cluster
			g, err := newField(cluster, tracer{who, shares[s], net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), cluster.JaegerURL()})
			if err != nil {
				return nil, err
			}
			g.arenas = 1000 * (round*len(shares) + s) // their names are not used twice
			if err := g.traced(ctx, &runs[s], work.Scales/rounds); err != nil {
				return nil, fmt.Errorf("%s: %w", shares[s].name, errors.Join(err, g.dismiss()))
			}
		}
	}
	return traceMetrics(runs), nil
}

// traceRun is what came of all rounds with a share.
type traceRun struct {
	took       []time.Duration // of a round
	processor  []float64       // seconds, of a round
	operations int             // of a round
	seen       verdict
}

// traced plays a round.
func (f *field) traced(ctx context.Context, run *traceRun, operations int) error {
	who := f.who.(tracer)
	if err := f.staff(ctx, who.share.name, who.alone); err != nil {
		return err
	}
	arenas, namespaces := make([]*arena.Arena, scalers), map[string]bool{}
	for i := range arenas {
		a, err := f.settled(ctx, 1)
		if err != nil {
			return err
		}
		arenas[i], namespaces[a.Namespace] = a, true
	}
	before, err := usageOf(f.units)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := scale(ctx, arenas, operations/scalers); err != nil {
		return err
	}
	run.took = append(run.took, time.Since(begun))
	after, err := usageOf(f.units)
	if err != nil {
		return err
	}
	run.processor, run.operations = append(run.processor, after.cpu-before.cpu), operations/scalers*scalers
	if who.share.million == 1_000_000 {
		if err := judged(ctx, who, namespaces, &run.seen); err != nil {
			return err
		}
	}
	for _, a := range arenas {
		if err := wipe(ctx, a); err != nil {
			return err
		}
	}
	return f.dismiss()
}

// scale has each arena's Deployment grow so often by one, and waits each time until
// it says that it has.
func scale(ctx context.Context, arenas []*arena.Arena, times int) error {
	together, ctx := errgroup.WithContext(ctx)
	for _, a := range arenas {
		together.Go(func() error {
			for n := range times {
				if _, err := a.Scale(ctx, settled, n+2); err != nil {
					return err
				}
				if _, err := a.Until(ctx, arena.RolledOut(settled, image, n+2)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return together.Wait()
}

// judged looks whether the traces of what happened in some namespaces are whole.
func judged(ctx context.Context, who tracer, namespaces map[string]bool, sum *verdict) error {
	b, err := stream.Connect(ctx, stream.Options{URL: "nats://" + who.nats, Name: "bench"})
	if err != nil {
		return err
	}
	defer b.Close()
	j, err := newJudge(ctx, b, who.jaeger, namespaces)
	if err != nil {
		return err
	}
	v, err := j.verdict(ctx)
	sum.add(v)
	return err
}

// traceMetrics compares the shares: the median round counts, and what tracing costs
// is in per cent of what is done without.
func traceMetrics(runs []traceRun) []metric {
	var metrics []metric
	off := runs[0].typical()
	for i, run := range runs {
		now := run.typical()
		metrics = append(metrics,
			metric{"scale operations, " + shares[i].name, "1/s", now.rate},
			metric{"processor time of one, " + shares[i].name, "ms", now.processor})
		if i > 0 {
			metrics = append(metrics,
				metric{"throughput lost, " + shares[i].name, "%", 100 * (1 - now.rate/off.rate)},
				metric{"processor time added, " + shares[i].name, "%", 100 * (now.processor/off.processor - 1)})
		}
	}
	return append(metrics, runs[len(runs)-1].seen.metrics()...)
}

// pace is what a round came to.
type pace struct{ rate, processor float64 }

func (r traceRun) typical() pace {
	n := float64(r.operations)
	return pace{n / quantile(r.took, 0.5).Seconds(), 1000 * median(r.processor) / n}
}
