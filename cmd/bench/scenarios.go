package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scenario is one thing that is measured.
type scenario struct {
	name string
	what func(sizes) string
	run  func(context.Context, *field, sizes) ([]metric, error)
}

// scenarios are played in this order: those that share a process follow each
// other, so that usage is that of the three before it.
var scenarios = []scenario{
	{"wall", func(s sizes) string { return fmt.Sprintf("%d Pods created directly", s.Direct) }, wall},
	{"burst", func(s sizes) string { return fmt.Sprintf("one Deployment of %d", s.Burst) }, burst},
	{"many", func(s sizes) string { return fmt.Sprintf("%d Deployments of 5", s.Deployments) }, many},
	{"heal", func(s sizes) string { return fmt.Sprintf("a Pod deleted, %d times", s.Heals) }, heal},
	{"usage", func(sizes) string { return "processor time and memory since the start" }, used},
	{"kill", func(s sizes) string { return fmt.Sprintf("SIGKILL with a second replica there, %d times", s.Kills) }, kill},
	{"restart", func(s sizes) string { return fmt.Sprintf("a start with %d Pods", s.Pods) }, restart},
}

func scenarioNames() []string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
	}
	return names
}

// wall is how fast this API server takes Pods when nothing is in the way.
func wall(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.dismiss(); err != nil {
		return nil, err
	}
	a, err := f.newArena(ctx)
	if err != nil {
		return nil, err
	}
	defer a.cancel()
	begun := time.Now()
	if err := a.direct(ctx, work.Direct); err != nil {
		return nil, fmt.Errorf("create pods: %w", err)
	}
	rate := float64(work.Direct) / time.Since(begun).Seconds()
	now := int64(0)
	if err := f.client.CoreV1().Pods(a.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		return nil, fmt.Errorf("delete pods: %w", err)
	}
	return []metric{{"creates by this program", "1/s", rate}}, nil
}

// burst is the birth of one large Deployment.
func burst(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.alone(ctx); err != nil {
		return nil, err
	}
	a, err := f.newArena(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := a.deploy(ctx, "burst", work.Burst); err != nil {
		return nil, err
	}
	exist, err := a.until(ctx, "all pods exist", bornPods(work.Burst))
	if err != nil {
		return nil, err
	}
	ready, err := a.until(ctx, "all pods are ready", readyPods(work.Burst))
	if err != nil {
		return nil, err
	}
	if born := a.births(); born != work.Burst {
		return nil, fmt.Errorf("%d pods were created for %d replicas", born, work.Burst)
	}
	deleted := time.Now()
	if err := a.clear(ctx); err != nil {
		return nil, err
	}
	return []metric{
		seconds("until all Pods exist", exist.Sub(begun)),
		seconds("until all are ready", ready.Sub(begun)),
		seconds("until all are gone again", time.Since(deleted)),
	}, nil
}

// many is the birth of many small Deployments.
func many(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.alone(ctx); err != nil {
		return nil, err
	}
	a, err := f.newArena(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := parallel(20, work.Deployments, func(i int) error { return a.deploy(ctx, fmt.Sprintf("many-%d", i), 5) }); err != nil {
		return nil, err
	}
	exist, err := a.until(ctx, "all pods exist", bornPods(5*work.Deployments))
	if err != nil {
		return nil, err
	}
	up, err := a.until(ctx, "all deployments are available", available(work.Deployments))
	if err != nil {
		return nil, err
	}
	if born := a.births(); born != 5*work.Deployments {
		return nil, fmt.Errorf("%d pods were created for %d replicas", born, 5*work.Deployments)
	}
	return []metric{
		seconds("until all Pods exist", exist.Sub(begun)),
		seconds("until all are available", up.Sub(begun)),
	}, a.clear(ctx)
}

// heal is how long a deleted Pod takes to be replaced.
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
		replaced, err := a.replace(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, replaced.Sub(begun))
		if _, err := a.until(ctx, "all pods are ready", readyPods(replicas)); err != nil {
			return nil, err
		}
		if err := rest(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return []metric{milliseconds("replaced, p50", quantile(took, 0.5)), milliseconds("replaced, p99", quantile(took, 0.99))}, a.clear(ctx)
}

// used is what the contender has used in the scenarios before.
func used(ctx context.Context, f *field, _ sizes) ([]metric, error) {
	if err := f.alone(ctx); err != nil {
		return nil, err
	}
	u, err := usageOf(f.units)
	if err != nil {
		return nil, err
	}
	return []metric{{"processor time", "s", u.cpu}, {"peak memory", "MB", u.memory}}, nil
}

// kill ends processes the hard way while another of the same service is there,
// and asks how long nobody does their work.
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
			d, err := a.killed(ctx, f.units, service, round, replicas)
			if err != nil {
				return nil, fmt.Errorf("kill %s: %w", service, err)
			}
			took = append(took, d)
		}
		metrics = append(metrics, seconds(service+" killed, median", quantile(took, 0.5)), seconds(service+" killed, worst", slices.Max(took)))
	}
	return metrics, a.clear(ctx)
}

// services are the services of units that can be killed, in order.
func services(units []unit) []string {
	var names []string
	for _, u := range units {
		if u.service != "" && !slices.Contains(names, u.service) {
			names = append(names, u.service)
		}
	}
	return names
}

// killed kills the active process of a service and starts it again afterwards. The
// two take turns: the one that took over is the next to go.
func (a *arena) killed(ctx context.Context, units []unit, service string, round, replicas int) (time.Duration, error) {
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
	replaced, err := a.replace(ctx)
	if err != nil {
		return 0, err
	}
	if victim.process, err = victim.start(ctx); err != nil {
		return 0, err
	}
	if _, err := a.until(ctx, "all pods are ready", readyPods(replicas)); err != nil {
		return 0, err
	}
	return replaced.Sub(begun), rest(ctx, 3*time.Second)
}

// restart is how long a start takes until the first correct decision, in a
// cluster that is not small.
func restart(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.alone(ctx); err != nil {
		return nil, err
	}
	crowd, err := f.newArena(ctx)
	if err != nil {
		return nil, err
	}
	defer crowd.cancel()
	if err := crowd.direct(ctx, work.Pods); err != nil {
		return nil, fmt.Errorf("create pods: %w", err)
	}
	a, err := f.settled(ctx, 5)
	if err != nil {
		return nil, err
	}
	if _, err := a.replace(ctx); err != nil {
		return nil, err
	}
	if _, err := a.until(ctx, "all pods are ready", readyPods(5)); err != nil {
		return nil, err
	}
	for _, u := range f.units {
		if err := u.process.Kill(); err != nil {
			return nil, err
		}
	}
	wanted := a.births() + 1
	if err := a.deleteOne(ctx); err != nil {
		return nil, err
	}
	begun := time.Now()
	for i := range f.units {
		if f.units[i].process, err = f.units[i].start(ctx); err != nil {
			return nil, err
		}
	}
	replaced, err := a.until(ctx, "the pod is replaced", bornPods(wanted))
	if err != nil {
		return nil, err
	}
	return []metric{seconds("first decision after a start", replaced.Sub(begun))}, a.clear(ctx)
}

// settled is an arena with one Deployment that is complete.
func (f *field) settled(ctx context.Context, replicas int) (*arena, error) {
	a, err := f.newArena(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.deploy(ctx, "settled", replicas); err != nil {
		return nil, err
	}
	if _, err := a.until(ctx, "all pods are ready", readyPods(replicas)); err != nil {
		return nil, err
	}
	_, err = a.until(ctx, "the deployment is available", available(1))
	return a, err
}

// replace deletes a Pod and says when its replacement was seen.
func (a *arena) replace(ctx context.Context) (time.Time, error) {
	wanted := a.births() + 1
	if err := a.deleteOne(ctx); err != nil {
		return time.Time{}, err
	}
	return a.until(ctx, "the pod is replaced", bornPods(wanted))
}

func (a *arena) deleteOne(ctx context.Context) error {
	name, ok := a.victim()
	if !ok {
		return fmt.Errorf("delete a pod: none is ready")
	}
	if err := a.client.CoreV1().Pods(a.namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete a pod: %w", err)
	}
	return nil
}

// rest lets everything become quiet between two measurements.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
