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

// step is one action and its result.
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

// several are the services with more than one replica: the other replicas go on while one is dead.
var several = []string{"reconcilers", "writer"}

// single are the services with one replica.
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

// everyProfile are the flags with which compose sees all services.
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

// verifyRecord checks the record so far against the notary's signatures.
func verifyRecord(ctx context.Context, s *stage) (said string, err error) {
	err = poll(ctx, func() error { // a new log waits for its first page
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

// playDemo runs the demo, as a user would do next.
func playDemo(ctx context.Context, s *stage) (string, error) {
	cmd := s.command(ctx, "go", "run", "./cmd/demo", "--kubeconfig="+s.kubeconfig(), "--deadline=4m")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], nil
}

// mayFail is how many attempts of work may fail while a service with one replica restarts. If the service has
// several replicas, the first attempt must succeed.
const mayFail = 1

// work makes every controller act in a namespace of its own, and waits for the result. A component that is
// broken at the moment may refuse: then work starts again, at most `tolerated` times, and its result names
// the number of failures.
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

// workOnce is one attempt of work. It begins when the API server accepts a new namespace.
func (s *stage) workOnce(ctx context.Context) error {
	var name string
	if err := poll(ctx, func() error {
		s.worked++
		name = fmt.Sprintf("work-%d", s.worked) // a namespace whose create response was lost may exist
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

// findTrace scales a Deployment and looks for the trace of the scale, as a user would.
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

// readTrace reads the trace of the change that produced a resourceVersion, and checks that every service in
// tracers has a span in it.
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

// joinKCM starts kube-controller-manager without our controllers. Its namespace controller deletes the
// trace's namespace while our controllers work in it.
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
