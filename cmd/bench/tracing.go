package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/cmd/bench/tracecheck"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/pkg/events/stream"
)

const (
	// scalers is how many Deployments are scaled at the same time.
	scalers = 20
	// stint is how often each is scaled in a round. The speed of a machine varies: in short rounds that
	// alternate, a slow period affects one share as much as the others next to it.
	stint = 5
)

// share is the fraction of traces that are recorded.
type share struct {
	name    string
	million int // in millionths; 0 turns tracing off
}

var shares = []share{{"without traces", 0}, {"1 % of traces", 10_000}, {"100 % of traces", 1_000_000}}

// reasons are the watcher's reasons for missed causes.
var reasons = []string{"unheard", "late", "waited", "hurried"}

// tracer is Millrace on a control plane with Jaeger, which records a share of all traces, and the Deployments
// that are scaled meanwhile.
type tracer struct {
	*field
	binary string
	share  share
	nats   string
	health string // of the running process
	scaled []*arena.Arena
	size   int // replicas of each

	rounds []pace
	spells []spell        // the times of the rounds
	missed map[string]int // causes, by reason
}

// neighbours are the processes beside Millrace that do work for traces.
var neighbours = []string{"kube-apiserver", "etcd", "jaeger"}

// pace is the result of a round: scale operations per second, and milliseconds of processor time for each
// operation, Millrace's and each neighbour's.
type pace struct {
	rate, processor float64
	beside          []float64
}

// spell is a period.
type spell struct{ from, to time.Time }

// tracing scales Deployments up, one replica at a time, with no, few and all traces recorded, and checks that
// all recorded traces are complete. The real kube-controller-manager has no such traces, so it takes no part.
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
	tracers := make([]*tracer, len(shares))
	for i, s := range shares {
		f, err := newField(cluster, who)
		if err != nil {
			return nil, err
		}
		tracers[i] = &tracer{field: f, binary: who.binary, share: s, nats: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), missed: map[string]int{}}
		defer tracers[i].leave()
	}
	var last *tracer
	for round := range max(1, work.Scales/(scalers*stint)) {
		for i := range tracers {
			if last != nil {
				if err := last.dismiss(); err != nil {
					return nil, err
				}
			}
			last = tracers[(i+round)%len(tracers)] // the first one has the emptiest cluster
			if err := last.play(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", last.share.name, errors.Join(err, last.dismiss()))
			}
		}
	}
	all := tracers[len(tracers)-1]
	seen, err := all.judged(ctx) // the last of them still serves the record
	return append(traceMetrics(tracers), append(verdictMetrics(seen), all.whyMissed()...)...), errors.Join(err, last.dismiss())
}

// start starts Millrace in the place of the previous tracer.
func (t *tracer) start(ctx context.Context) error {
	port, err := localcluster.FreePort()
	if err != nil {
		return err
	}
	t.health = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	args := []string{
		"run", "--kubeconfig=" + t.cluster.Kubeconfig(localcluster.Millrace), "--data-dir=" + filepath.Join(t.cluster.Dir, "traced"), "--nats-listen=" + t.nats,
		"--controllers=" + list(controllers), "--root-ca-file=" + t.cluster.RootCAFile(), "--health-address=" + t.health,
	}
	if t.share.million > 0 {
		args = append(args, "--tracing-endpoint="+t.cluster.Collector(), fmt.Sprintf("--tracing-sampling-rate-per-million=%d", t.share.million))
	}
	p, err := t.cluster.Run("millrace-traced", t.binary, args...)
	if err != nil {
		return err
	}
	t.units = []unit{{process: p}}
	return p.Ready(ctx, "http://"+t.health+"/readyz")
}

// play starts Millrace and plays a round. Millrace keeps running.
func (t *tracer) play(ctx context.Context) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	if err := t.enter(ctx); err != nil {
		return err
	}
	if err := t.scale(ctx, 1); err != nil { // a warm-up of every controller
		return err
	}
	before, err := t.processorTimes()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := t.scale(ctx, stint); err != nil {
		return err
	}
	s := spell{begun, time.Now()}
	used, err := t.processorTimes()
	if err != nil {
		return err
	}
	const done = scalers * stint
	for i := range used {
		used[i] = 1000 * (used[i] - before[i]) / done
	}
	t.rounds = append(t.rounds, pace{done / s.to.Sub(s.from).Seconds(), used[0], used[1:]})
	t.spells = append(t.spells, s)
	fmt.Fprintf(os.Stderr, "    round %d, %s: %s scale operations per second\n", len(t.rounds), t.share.name, number(t.rounds[len(t.rounds)-1].rate))
	return t.count(ctx)
}

// processorTimes are the seconds used so far: Millrace's, then those of each neighbour.
func (t *tracer) processorTimes() ([]float64, error) {
	all := [][]unit{t.units}
	for _, name := range neighbours {
		var units []unit
		for _, p := range t.cluster.Processes() {
			if p.Name == name {
				units = append(units, unit{process: p})
			}
		}
		all = append(all, units)
	}
	times := make([]float64, len(all))
	for i, units := range all {
		u, err := usageOf(units)
		if err != nil {
			return nil, err
		}
		times[i] = u.CPU
	}
	return times, nil
}

// enter creates the Deployments the first time that it is called.
func (t *tracer) enter(ctx context.Context) error {
	if t.scaled != nil {
		return nil
	}
	t.scaled, t.size = make([]*arena.Arena, scalers), 1
	together, opening := errgroup.WithContext(ctx)
	for i := range t.scaled {
		together.Go(func() error {
			a, err := t.client.Open(ctx, fmt.Sprintf("bench-%d-%d", t.share.million, i), false)
			if err != nil {
				return err
			}
			t.scaled[i] = a
			if err := a.Deploy(opening, settled, image, t.size); err != nil {
				return err
			}
			_, err = a.Until(opening, arena.RolledOut(settled, image, t.size))
			return err
		})
	}
	return together.Wait()
}

// leave ends the watches of the Deployments.
func (t *tracer) leave() {
	for _, a := range t.scaled {
		if a != nil {
			a.Close()
		}
	}
}

// scale scales each Deployment up by one so many times, and waits each time until its status confirms the new
// size.
func (t *tracer) scale(ctx context.Context, times int) error {
	from := t.size
	t.size += times
	together, ctx := errgroup.WithContext(ctx)
	for _, a := range t.scaled {
		together.Go(func() error {
			for size := from + 1; size <= from+times; size++ {
				if _, err := a.Scale(ctx, settled, size); err != nil {
					return err
				}
				if _, err := a.Until(ctx, arena.RolledOut(settled, image, size)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return together.Wait()
}

// count adds up the missed causes by reason.
func (t *tracer) count(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.health+"/metrics", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	defer response.Body.Close()
	return t.add(response.Body)
}

// add adds the counts of missed causes from metrics.
func (t *tracer) add(metrics io.Reader) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	for _, m := range families["millrace_watcher_missed_causes_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "reason" {
				t.missed[l.GetValue()] += int(m.GetCounter().GetValue())
			}
		}
	}
	return nil
}

// judged checks that the traces of the rounds are complete.
func (t *tracer) judged(ctx context.Context) (tracecheck.Verdict, error) {
	b, err := stream.Connect(ctx, stream.Options{URL: connect.BusURL(t.nats), Name: "bench"})
	if err != nil {
		return tracecheck.Verdict{}, err
	}
	defer b.Close()
	namespaces := map[string]bool{}
	for _, a := range t.scaled {
		namespaces[a.Namespace] = true
	}
	j, err := tracecheck.New(ctx, b, t.cluster.JaegerURL(), controllers, func(namespace string, at time.Time) bool {
		return namespaces[namespace] && slices.ContainsFunc(t.spells, func(s spell) bool { return !at.Before(s.from) && !at.After(s.to) })
	})
	if err != nil {
		return tracecheck.Verdict{}, err
	}
	return j.Verdict(ctx)
}

// whyMissed are the causes that the watcher reports as missed, by reason.
func (t *tracer) whyMissed() []metric {
	var metrics []metric
	for _, r := range reasons {
		metrics = append(metrics, metric{"causes missed, " + r, "", float64(t.missed[r])})
	}
	return metrics
}

// traceMetrics compares each round of a share with the round without traces beside it. The median counts, and
// half of the rounds are between the quartiles. The cost of tracing is a percentage of the cost without it.
func traceMetrics(tracers []*tracer) []metric {
	var metrics []metric
	rate, processor := func(p pace) float64 { return p.rate }, func(p pace) float64 { return p.processor }
	off := tracers[0].rounds
	for i, t := range tracers {
		metrics = append(metrics,
			metric{"scale operations, " + t.share.name, "1/s", median(each(t.rounds, rate))},
			metric{"processor time of one, " + t.share.name, "ms", median(each(t.rounds, processor))})
		for n, name := range neighbours {
			beside := func(p pace) float64 { return p.beside[n] }
			metrics = append(metrics, metric{"processor time of one, " + t.share.name + ", " + name, "ms", median(each(t.rounds, beside))})
		}
		if i == 0 {
			continue
		}
		lost, added := make([]float64, len(off)), make([]float64, len(off))
		for n, now := range t.rounds {
			lost[n], added[n] = 100*(1-now.rate/off[n].rate), 100*(now.processor/off[n].processor-1)
		}
		metrics = append(metrics, spread("throughput lost, "+t.share.name, lost)...)
		metrics = append(metrics, spread("processor time added, "+t.share.name, added)...)
	}
	return metrics
}

func each(rounds []pace, of func(pace) float64) []float64 {
	var values []float64
	for _, p := range rounds {
		values = append(values, of(p))
	}
	return values
}

// spread is the median of values in per cent, and their quartiles.
func spread(name string, values []float64) []metric {
	sorted := slices.Sorted(slices.Values(values))
	at := func(quarter int) float64 { return sorted[quarter*(len(sorted)-1)/4] }
	return []metric{{name, "%", median(values)}, {name + ", lower quartile", "%", at(1)}, {name + ", upper quartile", "%", at(3)}}
}

// verdictMetrics are the numbers of a comparison of traces with the record.
func verdictMetrics(v tracecheck.Verdict) []metric {
	return []metric{
		{"traces", "", float64(v.Traces)},
		{"traces with a missing or wrong parent", "", float64(v.Faulty)},
		{"changes of ours that missed their cause", "%", 100 * float64(v.Missed) / float64(max(v.Ours, 1))},
		{"changes that are in no trace", "", float64(v.Untraced)},
	}
}
