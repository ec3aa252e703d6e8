package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/cmd/bench/cpuprofile"
	"github.com/millrace/millrace/cmd/bench/procusage"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/pkg/events/sign"
)

// controllers are the controllers that every contender runs, so that all do the same work.
var controllers = []string{
	"deployment-controller",
	"replicaset-controller",
	"serviceaccount-controller",
	"root-ca-certificate-publisher-controller",
	"garbage-collector-controller",
}

// unit is one process of a contender.
type unit struct {
	service string // its service; "" for a process that is never killed
	process *subprocess.Process
	start   func(context.Context) (*subprocess.Process, error)
}

// contender is a program that runs the controllers.
type contender interface {
	name() string
	// alone starts these controllers once, without a second replica, with extra flags that
	// kube-controller-manager and Millrace share.
	alone(ctx context.Context, c *localcluster.Cluster, controllers []string, flags ...string) ([]unit, error)
	// paired starts two processes of each service. Where only one can be active, it starts that one first.
	paired(context.Context, *localcluster.Cluster) ([]unit, error)
}

// usual are the contenders that take part by default; earlier takes part only when it is named.
func usual() []string { return []string{"kcm", "kcm-tuned", "millrace"} }

func contenderNames() []string { return append(usual(), earlier) }

// earlier is the contender name of another build of Millrace.
const earlier = "earlier"

func (b *bench) contender(name string) (contender, error) {
	switch name {
	case "kcm":
		return kcm{}, nil
	case "kcm-tuned":
		return kcm{tuned: true}, nil
	case "millrace":
		if _, err := os.Stat(b.binary); err != nil {
			return nil, fmt.Errorf("find millrace (make build): %w", err)
		}
		m := millrace{binary: b.binary, profiler: b.profiler, signs: true}
		if b.export != "" {
			port, err := localcluster.FreePort()
			if err != nil {
				return nil, err
			}
			m.listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
		return m, nil
	case earlier:
		signs, err := knowsSignatures(b.earlier)
		return millrace{binary: b.earlier, called: earlier, signs: signs}, err
	default:
		return nil, fmt.Errorf("unknown contender %q; there are %s", name, strings.Join(contenderNames(), ", "))
	}
}

// kcm is the real kube-controller-manager.
type kcm struct{ tuned bool }

func (k kcm) name() string {
	if k.tuned {
		return "kcm-tuned"
	}
	return "kcm"
}

func (k kcm) alone(ctx context.Context, c *localcluster.Cluster, controllers []string, flags ...string) ([]unit, error) {
	return begin(ctx, k.unit(c, 1, controllers, append(flags, "--leader-elect=false")...))
}

func (k kcm) paired(ctx context.Context, c *localcluster.Cluster) ([]unit, error) {
	first, err := begin(ctx, k.unit(c, 1, controllers))
	if err != nil {
		return nil, err
	}
	if err := c.AwaitLeader(ctx); err != nil {
		return nil, errors.Join(err, end(first))
	}
	second, err := begin(ctx, k.unit(c, 2, controllers))
	if err != nil {
		return nil, errors.Join(err, end(first))
	}
	return append(first, second...), nil
}

func (k kcm) unit(c *localcluster.Cluster, n int, controllers []string, args ...string) unit {
	return unit{service: "kube-controller-manager", start: func(ctx context.Context) (*subprocess.Process, error) {
		return c.StartKCM(ctx, n, localcluster.KCM{Controllers: list(controllers), Tuned: k.tuned, Args: args})
	}}
}

// millrace is the contender of this repository.
type millrace struct {
	binary   string
	called   string // "" for millrace
	profiler *cpuprofile.Profiler
	signs    bool   // the program takes keys for its turns and outcomes
	listen   string // the bus's address for other processes, where one process has all services; empty: it has none
}

func (m millrace) name() string { return cmp.Or(m.called, "millrace") }

// knowsSignatures reports whether an earlier program signs turns. A program that does not is measured without
// signatures.
func knowsSignatures(binary string) (bool, error) {
	if binary == "" {
		return false, errors.New("--contenders has earlier: name its program with --earlier")
	}
	help, err := exec.Command(binary, "writer", "--help").CombinedOutput()
	if err != nil {
		return false, fmt.Errorf("ask the program of --earlier for its flags: %w", err)
	}
	return strings.Contains(string(help), "--turn-keys-file"), nil
}

func (m millrace) alone(ctx context.Context, c *localcluster.Cluster, controllers []string, flags ...string) ([]unit, error) {
	return begin(ctx, m.unit(c, "", "millrace", append([]string{
		"run",
		"--kubeconfig=" + c.Kubeconfig(localcluster.Millrace), "--data-dir=" + m.store(c),
		"--controllers=" + list(controllers), "--root-ca-file=" + c.RootCAFile(), "--nats-listen=" + m.listen,
	}, flags...)...))
}

// paired runs the three services as processes of their own, two of each, on a bus of their own.
func (m millrace) paired(ctx context.Context, c *localcluster.Cluster) ([]unit, error) {
	bus, services, err := m.apart(c, filepath.Join(c.Dir, "bus"), 2)
	if err != nil {
		return nil, err
	}
	return begin(ctx, append([]unit{bus}, services...)...)
}

// apart returns the services as processes of their own, so many replicas of each, and the bus between them,
// which keeps its streams in the directory data.
func (m millrace) apart(c *localcluster.Cluster, data string, replicas int) (bus unit, services []unit, err error) {
	port, err := localcluster.FreePort()
	if err != nil {
		return unit{}, nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	shared := []string{"--nats-url=nats://" + address, "--controllers=" + list(controllers), "--root-ca-file=" + c.RootCAFile()}
	keys, err := sign.Provide(filepath.Join(data, "signing"))
	if err != nil {
		return unit{}, nil, err
	}
	for n := 1; n <= replicas; n++ {
		for _, service := range []string{"watcher", "reconcilers", "writer"} {
			args := append([]string{service}, shared...)
			if m.signs {
				args = append(args, keys.Flags(service)...)
			}
			if service != "reconcilers" { // the reconcilers hold no credentials
				args = append(args, "--kubeconfig="+c.Kubeconfig(localcluster.User("millrace-"+service)))
			}
			services = append(services, m.unit(c, service, fmt.Sprintf("%s-%d", service, n), args...))
		}
	}
	return m.unit(c, "", "bus", "bus", "--data-dir="+data, "--nats-listen="+address), services, nil
}

func (m millrace) unit(c *localcluster.Cluster, service, name string, args ...string) unit {
	return unit{service: service, start: func(ctx context.Context) (*subprocess.Process, error) {
		port, err := localcluster.FreePort()
		if err != nil {
			return nil, err
		}
		health := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		p, err := c.Run(name, m.binary, append(slices.Clip(args), "--health-address="+health, "--profiling")...)
		if err != nil {
			return nil, err
		}
		if err := p.Ready(ctx, "http://"+health+"/readyz"); err != nil {
			return p, err
		}
		m.profiler.Follow(health)
		return p, nil
	}}
}

// begin starts units one after the other.
func begin(ctx context.Context, units ...unit) ([]unit, error) {
	for i := range units {
		p, err := units[i].start(ctx)
		if err != nil {
			return nil, errors.Join(err, end(units[:i]))
		}
		units[i].process = p
	}
	return units, nil
}

// end stops units, latest first.
func end(units []unit) error {
	var errs []error
	for _, u := range slices.Backward(units) {
		errs = append(errs, u.process.Stop())
	}
	return errors.Join(errs...)
}

// usageOf is what the processes of units have used.
func usageOf(units []unit) (procusage.Usage, error) {
	processes := make([]*subprocess.Process, len(units))
	for i, u := range units {
		processes[i] = u.process
	}
	return procusage.Of(processes)
}
