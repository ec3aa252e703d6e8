package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/jaeger"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
)

// step is one thing that is done, and what came of it.
type step struct {
	title string
	do    func(context.Context, *stage) (string, error)
}

func (s *stage) play(ctx context.Context, one step) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	happened, err := one.do(ctx, s)
	if err != nil {
		return err
	}
	say(one.title, happened, time.Since(begun))
	return nil
}

// several are the services that run more than once: the others go on while one of
// them is dead.
var several = []string{"reconcilers", "writer"}

// single are those of which there is one.
var single = []string{"watcher", "nats", "etcd", "kube-apiserver", "kube-scheduler", "kwok", "jaeger", "notary", "provisioner"}

func story() []step {
	steps := []step{
		{"start everything", start},
		{"play the demo", playDemo},
		{"who is let in on the bus", letIn},
		{"find the trace of a scale in Jaeger", findTrace},
		{"read the record as the reader", readRecord},
		{"profile ui", openPage},
		{"verify the record", verifyRecord},
	}
	for _, service := range several {
		steps = append(steps, step{"kill one of the " + service, func(ctx context.Context, s *stage) (string, error) { return killOne(ctx, s, service) }})
	}
	for _, service := range single {
		steps = append(steps, step{"kill " + service + " and start it again", func(ctx context.Context, s *stage) (string, error) { return restart(ctx, s, service) }})
	}
	return append(steps,
		step{"three of each service", func(ctx context.Context, s *stage) (string, error) { return scale(ctx, s, 3) }},
		step{"one of each service", func(ctx context.Context, s *stage) (string, error) { return scale(ctx, s, 1) }},
		step{"verify the record again", verifyRecord},
		step{"profile observability", observe},
		step{"profile kcm", joinKCM},
	)
}

// everyProfile are the flags that make compose see all services.
func everyProfile() []string {
	return []string{"--profile", "observability", "--profile", "kcm", "--profile", "tools", "--profile", "ui"}
}

func start(ctx context.Context, s *stage) (string, error) {
	if err := s.do(ctx, "up", "-d"); err != nil {
		return "", err
	}
	for service, n := range map[string]int{"provisioner": 1, "watcher": 1, "reconcilers": 2, "writer": 2, "notary": 1} {
		if err := s.healthy(ctx, service, n); err != nil {
			return "", err
		}
	}
	return "a provisioner, a watcher, two reconcilers, two writers and a notary are well", s.connect(ctx)
}

// verifyRecord has what was recorded so far held against what the notary has signed.
func verifyRecord(ctx context.Context, s *stage) (said string, err error) {
	err = poll(ctx, func() error { // a log that was just made waits for its first page
		out, err := s.composed(ctx, "--profile", "tools", "run", "--rm", "-T", "verify").CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		said = lines[len(lines)-1]
		if err != nil || !strings.Contains(said, "exactly those that were signed") {
			return fmt.Errorf("verify: %w: %s", errors.Join(err, errNotProven), strings.Join(lines[max(0, len(lines)-8):], "\n"))
		}
		return nil
	})
	return said, err
}

var errNotProven = errors.New("the record is not proven")

// playDemo is what a user would do next.
func playDemo(ctx context.Context, s *stage) (string, error) {
	cmd := s.command(ctx, "go", "run", "./cmd/demo", "--kubeconfig="+s.kubeconfig(), "--deadline=4m")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], nil
}

// mayFail is how many works may fail while a service of which there is one starts again. Of
// several, the others do the work at the first try.
const mayFail = 1

// work has every controller do something in a namespace of its own, and waits for the end of
// it. What is broken at the moment may refuse: then it begins anew, as often as may be; how
// often that was is said.
func (s *stage) work(ctx context.Context, tolerated int) (took string, err error) {
	begun := time.Now()
	for failed := 0; ; failed++ {
		err := s.workOnce(ctx)
		switch took := time.Since(begun).Round(time.Millisecond); {
		case err == nil && failed == 0:
			return took.String(), nil
		case err == nil:
			return fmt.Sprintf("%v, of which %d failed before", took, failed), nil
		case failed >= tolerated || ctx.Err() != nil:
			return "", fmt.Errorf("work %d times: %w", failed+1, err)
		}
	}
}

// workOnce is one work, which begins when the API server takes a namespace.
func (s *stage) workOnce(ctx context.Context) error {
	var name string
	if err := poll(ctx, func() error {
		s.worked++
		name = fmt.Sprintf("work-%d", s.worked) // one whose answer was lost may be there
		return s.client.CreateNamespace(ctx, name)
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := s.client.AwaitAccount(ctx, name); err != nil {
		return err
	}
	a, err := s.client.Watch(ctx, name)
	if err != nil {
		return err
	}
	defer a.Close()
	if err := a.Deploy(ctx, "web", "nginx:1.28", 3); err != nil {
		return err
	}
	if _, err := a.Until(ctx, arena.RolledOut("web", "nginx:1.28", 3)); err != nil {
		return err
	}
	if err := a.DeleteDeployments(ctx); err != nil {
		return err
	}
	_, err = a.Until(ctx, arena.Empty())
	return err
}

func killOne(ctx context.Context, s *stage, service string) (string, error) {
	const replicas = 2
	victim, err := s.kill(ctx, service, replicas)
	if err != nil {
		return "", err
	}
	took, err := s.work(ctx, 0)
	if err != nil {
		return "", err
	}
	if _, err := s.docker(ctx, "start", victim); err != nil {
		return "", err
	}
	return fmt.Sprintf("the others did the work in %v", took), s.healthy(ctx, service, replicas)
}

func restart(ctx context.Context, s *stage, service string) (string, error) {
	victim, err := s.kill(ctx, service, 1)
	if err != nil {
		return "", err
	}
	if _, err := s.docker(ctx, "start", victim); err != nil {
		return "", err
	}
	took, err := s.work(ctx, mayFail)
	return fmt.Sprintf("the next work was done after %v", took), err
}

func scale(ctx context.Context, s *stage, n int) (string, error) {
	args := []string{"up", "-d"}
	for _, service := range []string{"watcher", "reconcilers", "writer"} {
		args = append(args, "--scale", fmt.Sprintf("%s=%d", service, n))
	}
	if err := s.do(ctx, args...); err != nil {
		return "", err
	}
	for _, service := range []string{"watcher", "reconcilers", "writer"} {
		if err := s.healthy(ctx, service, n); err != nil {
			return "", err
		}
	}
	took, err := s.work(ctx, 0)
	return fmt.Sprintf("did the work in %v", took), err
}

// tracers are the services whose spans the trace of a scale must hold.
var tracers = []string{"millrace-watcher", "millrace-reconcilers", "millrace-writer", "apiserver", "etcd"}

// traced is the namespace of that Deployment.
const traced = "traced"

// findTrace scales a Deployment and looks for the trace of that, as a user would.
func findTrace(ctx context.Context, s *stage) (string, error) {
	a, err := s.client.Open(ctx, traced, false)
	if err != nil {
		return "", err
	}
	defer a.Close()
	if err := a.Deploy(ctx, "web", "nginx:1.28", 1); err != nil {
		return "", err
	}
	if _, err := a.Until(ctx, arena.RolledOut("web", "nginx:1.28", 1)); err != nil {
		return "", err
	}
	version, err := a.Scale(ctx, "web", 3)
	if err != nil {
		return "", err
	}
	var found string
	err = poll(ctx, func() (err error) {
		found, err = s.readTrace(ctx, version)
		return err
	})
	return found, err
}

// readTrace reads the trace of the change that led to a version, and finds out
// whether everybody has a part in it.
func (s *stage) readTrace(ctx context.Context, version string) (string, error) {
	out, err := s.millrace(ctx, "trace", "deployment/web", "--namespace="+traced, "--rv="+version,
		"--jaeger="+s.at("http", "JAEGER_PORT"), "--output=json")
	if err != nil {
		return "", err
	}
	var trace jaeger.Trace
	if err := json.Unmarshal(out, &trace); err != nil {
		return "", fmt.Errorf("read the trace: %w", err)
	}
	if len(trace.Roots) != 1 || trace.Roots[0].Orphan {
		return "", fmt.Errorf("trace %s has %d roots", trace.ID, len(trace.Roots))
	}
	count, services := 0, map[string]bool{}
	for span := range trace.All() {
		count++
		services[span.Service] = true
	}
	for _, tracer := range tracers {
		if !services[tracer] {
			return "", fmt.Errorf("trace %s has no span of %s", trace.ID, tracer)
		}
	}
	return fmt.Sprintf("one tree of %d spans of %s", count, strings.Join(slices.Sorted(maps.Keys(services)), ", ")), nil
}

// joinKCM starts kube-controller-manager without our controllers. Its namespace
// controller takes away what was left of the trace's namespace, while ours are at
// work in it.
func joinKCM(ctx context.Context, s *stage) (string, error) {
	if err := s.do(ctx, "--profile", "kcm", "up", "-d", "kube-controller-manager"); err != nil {
		return "", err
	}
	if err := s.client.Remove(ctx, traced); err != nil {
		return "", err
	}
	if err := s.client.AwaitGone(ctx, traced); err != nil {
		return "", err
	}
	took, err := s.work(ctx, 0)
	return fmt.Sprintf("kube-controller-manager took a namespace away, and ours did the work in %v", took), err
}
