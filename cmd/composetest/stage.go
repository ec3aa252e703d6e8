package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/engine"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
)

// stage is one docker compose project, with its own ports and volumes.
type stage struct {
	engine   *engine.Engine
	checkout string
	dir      string   // temporary files
	compose  []string // the docker-compose command
	project  string
	env      []string       // environment variables besides local.env
	ports    map[string]int // by the name of their variable
	client   *arena.Client
	bus      string // its URL with the read-only user's password
	busCA    string // the CA of its certificate
	worked   int    // namespaces that [stage.work] has used
}

// patience is the time-out of each step. It is long because the machine may be slow.
const patience = 5 * time.Minute

func (s *stage) setUp(ctx context.Context, compose string) (err error) {
	if s.compose, err = s.findCompose(ctx, compose); err != nil {
		return err
	}
	version, err := s.command(ctx, append(s.compose, "version", "--short")...).Output()
	if err != nil {
		return fmt.Errorf("ask for the version of %s: %w", strings.Join(s.compose, " "), err)
	}
	s.project = fmt.Sprintf("millracetest%d", os.Getpid())
	s.ports = map[string]int{}
	for _, name := range []string{"APISERVER_PORT", "NATS_PORT", "JAEGER_PORT", "PROMETHEUS_PORT", "UI_PORT"} {
		port, err := localcluster.FreePort()
		if err != nil {
			return err
		}
		s.ports[name] = port
		s.env = append(s.env, fmt.Sprintf("%s=%d", name, port))
	}
	fmt.Printf("project %s with docker-compose %s\n", s.project, bytes.TrimSpace(version))
	return nil
}

func (s *stage) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := s.engine.Command(ctx, args[0], args[1:]...)
	cmd.Dir = s.checkout
	cmd.Env = append(cmd.Env, s.env...)
	return cmd
}

// composed returns a docker-compose command for the project.
func (s *stage) composed(ctx context.Context, args ...string) *exec.Cmd {
	return s.command(ctx, append(s.compose, append([]string{
		"--project-name", s.project, "--env-file", filepath.Join("deployments", "compose", "local.env"),
	}, args...)...)...)
}

// do runs a docker-compose command; an error quotes the end of what it wrote.
func (s *stage) do(ctx context.Context, args ...string) error {
	if out, err := s.composed(ctx, args...).CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("docker-compose %s: %w\n%s", strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	return nil
}

// docker runs a docker command and returns the words of its output.
func (s *stage) docker(ctx context.Context, args ...string) ([]string, error) {
	var complaint bytes.Buffer
	cmd := s.command(ctx, append([]string{"docker"}, args...)...)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("docker %s: %w: %s", args[0], err, bytes.TrimSpace(complaint.Bytes()))
	}
	return strings.Fields(string(out)), nil
}

// running returns the ids of a service's containers, of which there must be n. It selects by labels, because
// the names differ between versions of compose.
func (s *stage) running(ctx context.Context, service string, n int) ([]string, error) {
	ids, err := s.docker(ctx, "ps", "--quiet", "--filter=label=com.docker.compose.project="+s.project, "--filter=label=com.docker.compose.service="+service)
	if err == nil && len(ids) != n {
		err = fmt.Errorf("%s runs in %d containers, not in %d", service, len(ids), n)
	}
	return ids, err
}

// kill kills one of a service's n containers, and returns its id. It waits until all n run, because one that
// depends on a container that was killed before may still be starting.
func (s *stage) kill(ctx context.Context, service string, n int) (victim string, err error) {
	err = poll(ctx, func() error {
		ids, err := s.running(ctx, service, n)
		if err != nil {
			return err
		}
		victim = ids[0]
		_, err = s.docker(ctx, "kill", victim)
		return err
	})
	return victim, err
}

// lastWords is how many words of an unhealthy container's newest health checks an error quotes.
const lastWords = 60

// healthy waits until a service runs in n containers and each passes its own health check.
func (s *stage) healthy(ctx context.Context, service string, n int) error {
	return poll(ctx, func() error {
		ids, err := s.running(ctx, service, n)
		if err != nil {
			return err
		}
		states, err := s.docker(ctx, append([]string{"inspect", "--format={{.State.Health.Status}}"}, ids...)...)
		if err != nil {
			return err
		}
		if unwell := slices.IndexFunc(states, func(state string) bool { return state != "healthy" }); unwell >= 0 {
			// People read this error. If inspect fails, the error is the same without the output of the
			// check.
			said, _ := s.docker(ctx, "inspect", "--format={{range .State.Health.Log}}{{println .Output}}{{end}}", ids[unwell])
			return fmt.Errorf("a container of %s is %s: %s", service, states[unwell], strings.Join(said[max(0, len(said)-lastWords):], " "))
		}
		return nil
	})
}

// connect gets the administrator's kubeconfig.
func (s *stage) connect(ctx context.Context) error {
	cmd := s.composed(ctx, "--profile", "tools", "run", "--rm", "-T", "kubeconfig")
	kubeconfig, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run kubeconfig: %w", err)
	}
	if err := os.WriteFile(s.kubeconfig(), kubeconfig, 0o600); err != nil {
		return fmt.Errorf("keep the kubeconfig: %w", err)
	}
	s.client, err = arena.Connect(s.kubeconfig())
	return err
}

func (s *stage) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// at returns the URL of a published port.
func (s *stage) at(scheme, port string) string {
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, s.ports[port])
}

// confess prints the state and logs that a person needs to find out what went wrong.
func (s *stage) confess(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, args := range [][]string{{"ps"}, {"logs", "--tail=40"}} {
		cmd := s.composed(ctx, append(everyProfile(), args...)...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// clear removes everything that the run made, even when the story ended early.
func (s *stage) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var errs []error
	if s.project != "" {
		errs = append(errs, s.do(ctx, append(everyProfile(), "down", "--volumes", "--timeout=5")...), s.emptied(ctx))
	}
	return errors.Join(append(errs, s.engine.Close(), os.RemoveAll(s.dir))...)
}

// emptied waits until nothing of the project is left: the engine removes the containers of commands after the
// commands have ended.
func (s *stage) emptied(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, func() error { return s.nothingLeft(ctx) })
}

// nothingLeft returns an error if a container, volume or network of the project still exists.
func (s *stage) nothingLeft(ctx context.Context) error {
	of := "--filter=label=com.docker.compose.project=" + s.project
	for _, args := range [][]string{{"ps", "--all", "--quiet", of}, {"volume", "ls", "--quiet", of}, {"network", "ls", "--quiet", of}} {
		left, err := s.docker(ctx, args...)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("docker %s after all was taken down: %v", args[0], left)
		}
	}
	return nil
}

// String returns the commands to inspect and to end what is left running.
func (s *stage) String() string {
	return fmt.Sprintf("%s %s --project-name %s, with %s and the files in %s", strings.Join(s.env, " "), strings.Join(s.compose, " "), s.project, s.engine, s.dir)
}

// poll repeats ask until it returns no error, or the context ends.
func poll(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(250 * time.Millisecond):
		}
	}
}
