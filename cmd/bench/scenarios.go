package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
)

// image is the image of the simulated Pods.
const image = "nginx"

// scenario is one measurement.
type scenario struct {
	name      string
	what      func(sizes) string
	run       func(context.Context, *field, sizes) ([]metric, error)
	onRequest bool // it takes so long that it runs only when it is named
}

// scenarios run in this order: those that share a process follow each other, so that usage covers the three
// before it.
var scenarios = []scenario{
	{name: "wall", run: wall, what: func(s sizes) string { return fmt.Sprintf("%d Pods created directly", s.Direct) }},
	{name: "burst", run: inNamespaces((*field).alone, burst), what: func(s sizes) string { return fmt.Sprintf("one Deployment of %d", s.Burst) }},
	{name: "many", run: inNamespaces((*field).alone, many), what: func(s sizes) string { return fmt.Sprintf("%d Deployments of 5", s.Deployments) }},
	{name: "heal", run: heal, what: func(s sizes) string { return fmt.Sprintf("a Pod deleted, %d times", s.Heals) }},
	{name: "usage", run: used, what: func(sizes) string { return "processor time and memory since the start" }},
	{name: "kill", run: kill, what: func(s sizes) string { return fmt.Sprintf("SIGKILL with a second replica there, %d times", s.Kills) }},
	{name: "rest", run: rest, what: func(s sizes) string {
		return fmt.Sprintf("nothing to do, with %d Pods in %d namespaces", s.Pods, s.Pods/perNamespace)
	}},
	{name: "job", run: inNamespaces((*field).wide, job), what: func(s sizes) string { return fmt.Sprintf("a Job of %d completions", s.Completions) }},
	{name: "statefulset", run: stateful, what: func(s sizes) string { return fmt.Sprintf("a StatefulSet of %d", s.Ordered) }},
	{name: "namespace", run: inNamespaces((*field).wide, emptied), what: func(s sizes) string { return fmt.Sprintf("a namespace of %d objects deleted", s.Held) }},
	{name: "claims", run: inFurther(claims), what: func(s sizes) string { return fmt.Sprintf("%d claims bound to volumes", s.Claims) }},
	{name: "attachments", run: inFurther(attachments), what: func(s sizes) string { return fmt.Sprintf("%d volumes attached and detached", s.Claims) }},
	{name: "certificates", run: inFurther(certificates), what: func(s sizes) string { return fmt.Sprintf("%d certificate requests approved and signed", s.Requests) }},
	{name: "devices", run: inFurther(devices), what: func(s sizes) string { return fmt.Sprintf("%d Pods given claims of devices", s.Requests) }},
	{name: "ranges", run: inFurther(ranges), what: func(s sizes) string { return fmt.Sprintf("%d nodes given ranges of addresses", s.Requests) }},
	{name: "restart", run: restart, what: func(s sizes) string { return fmt.Sprintf("a start with %d Pods", s.Pods) }},
	{name: "history", run: past, what: func(s sizes) string { return fmt.Sprintf("starts on %d messages of history", s.Past) }},
	{name: "tracing", run: tracing, what: func(s sizes) string { return fmt.Sprintf("%d scale operations, with and without traces", s.Scales) }},
	{name: "record", run: toldRecord, what: func(s sizes) string { return fmt.Sprintf("questions about %d messages of history", s.Past) }},
	{name: "replay", run: replayed, what: func(sizes) string { return "the recorded turns decided once more" }},
	{name: "verify", run: verified, what: func(sizes) string { return "a record signed and verified" }},
	{name: "long-record", run: longRecord, onRequest: true, what: func(s sizes) string {
		return fmt.Sprintf("questions about %d messages of history", longer*s.Past)
	}},
	{name: "long-history", run: longPast, onRequest: true, what: func(s sizes) string {
		return fmt.Sprintf("starts on %d messages of history", longer*s.Past)
	}},
}

// play is a scenario, or a part of one, in a namespace of its own.
type play func(context.Context, *field, *arena.Arena, sizes) ([]metric, error)

// inNamespaces plays something several times, each time in a new namespace, with the contender started by
// serve, and returns the medians.
func inNamespaces(serve func(*field, context.Context) error, play play) func(context.Context, *field, sizes) ([]metric, error) {
	return func(ctx context.Context, f *field, work sizes) ([]metric, error) {
		if err := serve(f, ctx); err != nil {
			return nil, err
		}
		var rounds [][]metric
		for range work.Rounds {
			measured, err := f.accounted(ctx, play, work)
			if err != nil {
				return nil, err
			}
			rounds = append(rounds, measured)
		}
		return medians(rounds), nil
	}
}

// play plays something once, in a namespace of its own.
func (f *field) play(ctx context.Context, play play, work sizes) ([]metric, error) {
	a, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	return play(ctx, f, a, work)
}

// accounted plays something once, and adds the requests that reached the API server meanwhile.
func (f *field) accounted(ctx context.Context, play play, work sizes) ([]metric, error) {
	before, err := f.client.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	measured, err := f.play(ctx, play, work)
	if err != nil {
		return nil, err
	}
	after, err := f.client.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	since := after.Since(before)
	fmt.Fprintf(os.Stderr, "    asked of the API server: %v\n", since)
	return append(measured,
		metric{"requests to the API server", "", float64(since.Asked())},
		metric{"watch events of the API server", "", float64(since.Told)},
		metric{"processor time of the API server", "s", since.Processor}), nil
}

// played are the scenarios that run by default.
func played() []string {
	return names(slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return s.onRequest }))
}

func scenarioNames() []string { return names(scenarios) }

func names(list []scenario) []string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.name
	}
	return names
}

// wall is how fast this API server accepts Pods from this program without a contender.
func wall(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.dismiss(); err != nil {
		return nil, err
	}
	a, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	begun := time.Now()
	if err := a.CreatePods(ctx, work.Direct); err != nil {
		return nil, err
	}
	rate := float64(work.Direct) / time.Since(begun).Seconds()
	return []metric{{"Pods created by the benchmark", "1/s", rate}}, a.DeletePods(ctx)
}

// burst is the create of one large Deployment.
func burst(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	begun := time.Now()
	if err := a.Deploy(ctx, "burst", image, work.Burst); err != nil {
		return nil, err
	}
	exist, err := a.Until(ctx, arena.Created(work.Burst))
	if err != nil {
		return nil, err
	}
	ready, err := a.Until(ctx, arena.Ready(work.Burst))
	if err != nil {
		return nil, err
	}
	if created := a.Created(); created != work.Burst {
		return nil, fmt.Errorf("%d pods were created for %d replicas", created, work.Burst)
	}
	deleted := time.Now()
	if err := wipe(ctx, a); err != nil {
		return nil, err
	}
	return []metric{
		seconds("until all Pods exist", exist.Sub(begun)),
		seconds("until all are ready", ready.Sub(begun)),
		seconds("until all are gone again", time.Since(deleted)),
	}, nil
}

// many is the create of many small Deployments.
func many(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	begun := time.Now()
	if err := arena.Parallel(20, work.Deployments, func(i int) error { return a.Deploy(ctx, fmt.Sprintf("many-%d", i), image, 5) }); err != nil {
		return nil, err
	}
	exist, err := a.Until(ctx, arena.Created(5*work.Deployments))
	if err != nil {
		return nil, err
	}
	up, err := a.Until(ctx, arena.Available(work.Deployments))
	if err != nil {
		return nil, err
	}
	if created := a.Created(); created != 5*work.Deployments {
		return nil, fmt.Errorf("%d pods were created for %d replicas", created, 5*work.Deployments)
	}
	return []metric{
		seconds("until all Pods exist", exist.Sub(begun)),
		seconds("until all are available", up.Sub(begun)),
	}, wipe(ctx, a)
}

// heal is the time until a deleted Pod is replaced.
func heal(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.alone(ctx); err != nil {
		return nil, err
	}
	const replicas = 20
	a, err := f.settled(ctx, replicas)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range work.Heals {
		begun := time.Now()
		replaced, err := replace(ctx, a)
		if err != nil {
			return nil, err
		}
		took = append(took, replaced.Sub(begun))
		if _, err := a.Until(ctx, arena.Ready(replicas)); err != nil {
			return nil, err
		}
		if err := arena.Rest(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return []metric{milliseconds("replaced, p50", quantile(took, 0.5)), milliseconds("replaced, p99", quantile(took, 0.99))}, wipe(ctx, a)
}

// used is the contender's usage in the scenarios before.
func used(ctx context.Context, f *field, _ sizes) ([]metric, error) {
	if err := f.alone(ctx); err != nil {
		return nil, err
	}
	u, err := usageOf(f.units)
	if err != nil {
		return nil, err
	}
	return []metric{{"processor time", "s", u.CPU}, {"peak memory", "MB", u.Memory}}, nil
}

// kill kills processes while another replica of the same service runs, and measures how long their work
// stands still.
func kill(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.paired(ctx); err != nil {
		return nil, err
	}
	const replicas = 10
	a, err := f.settled(ctx, replicas)
	if err != nil {
		return nil, err
	}
	var metrics []metric
	for _, service := range services(f.units) {
		var took []time.Duration
		for round := range work.Kills {
			d, err := killed(ctx, a, f.units, service, round, replicas)
			if err != nil {
				return nil, fmt.Errorf("kill %s: %w", service, err)
			}
			took = append(took, d)
		}
		metrics = append(metrics, seconds(service+" killed, median", quantile(took, 0.5)), seconds(service+" killed, worst", slices.Max(took)))
	}
	return metrics, wipe(ctx, a)
}

// services are the names of services that can be killed, in order.
func services(units []unit) []string {
	var names []string
	for _, u := range units {
		if u.service != "" && !slices.Contains(names, u.service) {
			names = append(names, u.service)
		}
	}
	return names
}

// killed kills the active process of a service and starts it again afterwards. The two replicas alternate:
// the one that took over is killed next.
func killed(ctx context.Context, a *arena.Arena, units []unit, service string, round, replicas int) (time.Duration, error) {
	var pair []int
	for i := range units {
		if units[i].service == service {
			pair = append(pair, i)
		}
	}
	victim := &units[pair[round%len(pair)]]
	begun := time.Now()
	if err := victim.process.Kill(); err != nil {
		return 0, err
	}
	replaced, err := replace(ctx, a)
	if err != nil {
		return 0, err
	}
	if victim.process, err = victim.start(ctx); err != nil {
		return 0, err
	}
	if _, err := a.Until(ctx, arena.Ready(replicas)); err != nil {
		return 0, err
	}
	return replaced.Sub(begun), arena.Rest(ctx, 3*time.Second)
}

// restart is the time from a start to the first correct decision, in a large cluster.
func restart(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.alone(ctx); err != nil {
		return nil, err
	}
	if err := f.crowded(ctx, work.Pods); err != nil {
		return nil, err
	}
	a, err := f.settled(ctx, 5)
	if err != nil {
		return nil, err
	}
	if _, err := replace(ctx, a); err != nil {
		return nil, err
	}
	if _, err := a.Until(ctx, arena.Ready(5)); err != nil {
		return nil, err
	}
	for _, u := range f.units {
		if err := u.process.Kill(); err != nil {
			return nil, err
		}
	}
	wanted := a.Created() + 1
	if _, err := a.DeletePod(ctx); err != nil {
		return nil, err
	}
	begun := time.Now()
	for i := range f.units {
		if f.units[i].process, err = f.units[i].start(ctx); err != nil {
			return nil, err
		}
	}
	replaced, err := a.Until(ctx, arena.Created(wanted))
	if err != nil {
		return nil, err
	}
	return []metric{seconds("first decision after a start", replaced.Sub(begun))}, wipe(ctx, a)
}

// replace deletes a Pod and returns when its replacement was seen.
func replace(ctx context.Context, a *arena.Arena) (time.Time, error) {
	wanted := a.Created() + 1
	if _, err := a.DeletePod(ctx); err != nil {
		return time.Time{}, err
	}
	return a.Until(ctx, arena.Created(wanted))
}
