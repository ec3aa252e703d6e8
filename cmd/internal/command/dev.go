package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/kubeconfig"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
)

// devOptions are the flags of the local control plane.
type devOptions struct {
	dir    string
	nodes  int
	fresh  bool
	jaeger bool
}

func (o *devOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.dir, "cluster-dir", o.dir, "`directory` of the local control plane (default .millrace/cluster in the checkout)")
	f.IntVar(&o.nodes, "nodes", o.nodes, "simulated nodes")
	f.BoolVar(&o.fresh, "fresh", o.fresh, "start with an empty cluster and empty streams instead of those of the last run")
	f.BoolVar(&o.jaeger, "jaeger", o.jaeger, "also start Jaeger, and send all spans to it")
}

// newDev is the command that runs a local control plane and all services on it.
func newDev() *cobra.Command {
	o, dev := newEverything(), devOptions{nodes: 10, jaeger: true}
	o.server.DataDir = "" // place sets it to a directory beside the cluster
	return program.Program{
		Use: "dev", Short: "Start a local control plane and run all services on it",
		Long: `Starts etcd, kube-apiserver, kube-scheduler and kwok's simulated nodes, built from
their Go modules on first use, and runs all services on them, without
kube-controller-manager. New nodes are not tainted as not ready, so that pods are also
scheduled without node-lifecycle-controller. Jaeger receives all spans, for millrace
trace; --jaeger=false saves the minutes that building it takes.`,
		Flags: append(o.flags(), program.Titled("control plane", dev.add)), Check: o.check,
		Run: func(ctx context.Context) error { return dev.run(ctx, o) },
	}.Command()
}

func (o *devOptions) run(ctx context.Context, all *everything) error {
	if err := o.place(all); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cluster, err := localcluster.Start(ctx, localcluster.Options{
		Dir: o.dir, Keep: true, Nodes: o.nodes, Storage: true, Output: os.Stderr,
		Tracing: localcluster.Tracing{Jaeger: o.jaeger, Later: true, UsualPorts: true},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "millrace: stop the local control plane: %v\n", err)
		}
	}()
	asMillrace := kubeconfig.Options{File: cluster.Kubeconfig(localcluster.Millrace)}
	config, err := asMillrace.Connect(ctx)
	if err != nil {
		return err
	}
	if collector := cluster.Collector(); collector != "" {
		all.service.Tracing.Endpoint(collector)
	}
	if all.ctrl.RootCAFile == "" {
		all.ctrl.RootCAFile = cluster.RootCAFile()
	}
	if all.ctrl.KeyFile == "" {
		all.ctrl.KeyFile = cluster.ServiceAccountKeyFile()
	}
	bus := all.bus.Connection.URL
	if bus == "" {
		bus = "nats://" + all.server.Listen
	}
	tools := o.tools(cluster)
	o.greet(cluster, bus, tools)
	var behind sync.WaitGroup
	defer behind.Wait() // before the cluster is stopped
	defer cancel()
	behind.Go(func() { bring(ctx, os.Stderr, tools) })
	return all.elected(ctx, config)
}

// tool is a program for the user that Millrace itself does not need: it is built and started
// while Millrace is running.
type tool struct {
	name string
	// bring builds what is missing and starts what is to run.
	bring func(context.Context) error
	// there is the message when the tool is ready, without the one when it could not be built.
	there, without string
}

// tools are the tools to build: kubectl if it is not on PATH, and Jaeger if asked for.
func (o *devOptions) tools(cluster *localcluster.Cluster) (tools []tool) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		tools = append(tools, kubectlTool(cluster.Programs))
	}
	if o.jaeger {
		tools = append(tools, jaegerTool(cluster))
	}
	return tools
}

func kubectlTool(programs *binaries.Cache) tool {
	path := programs.Path("kubectl")
	return tool{
		name:  "kubectl",
		bring: func(ctx context.Context) error { return programs.Aside().Build(ctx, "kubectl") },
		there: "kubectl is at " + path,
		without: "everything else goes on; install kubectl from https://kubernetes.io/docs/tasks/tools, " +
			"or try again with: go run ./cmd/localcluster build kubectl",
	}
}

func jaegerTool(cluster *localcluster.Cluster) tool {
	return tool{
		name: "Jaeger", bring: cluster.BringJaeger,
		there: "Jaeger answers at " + cluster.JaegerURL() + "; traces of what happens from now on come within two minutes",
		without: "everything else goes on, without traces; try again with: go run ./cmd/localcluster build jaeger, " +
			"and start anew; --jaeger=false does without it",
	}
}

// bring builds and starts the tools one after the other, and prints one result for each.
func bring(ctx context.Context, w io.Writer, tools []tool) {
	for _, t := range tools {
		err := t.bring(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			fmt.Fprintf(w, "millrace: there is no %s: %v\nmillrace: %s\n", t.name, err, t.without)
		default:
			fmt.Fprintf(w, "millrace: %s\n", t.there)
		}
	}
}

// greet prints what to do next in another terminal.
func (o *devOptions) greet(cluster *localcluster.Cluster, bus string, tools []tool) {
	programs := []string{filepath.Dir(cluster.Programs.Path("kubectl"))}
	if self, err := os.Executable(); err == nil { // kubectl-millrace is beside it
		programs = append(programs, filepath.Dir(self))
	}
	exports := []string{
		"KUBECONFIG=" + cluster.Kubeconfig(localcluster.Admin),
		"PATH=" + strings.Join(programs, ":") + ":$PATH",
	}
	if bus != connect.LocalBus {
		exports = append(exports, "MILLRACE_NATS_URL="+bus)
	}
	var coming []string
	for _, t := range tools {
		coming = append(coming, t.name)
	}
	later := ""
	if len(coming) > 0 {
		later = strings.Join(coming, " and ") + " will be there in a moment, the first time when built, some minutes later: a line\ntells when. make demo does not need it.\n"
	}
	show := "kubectl millrace history deploy/web"
	if url := cluster.JaegerURL(); url != "" {
		show += "\n  kubectl millrace trace deploy/web     # from Jaeger, whose query API is at " + url
		if url != localJaeger {
			exports = append(exports, "MILLRACE_JAEGER="+url)
		}
	}
	fmt.Fprintf(os.Stderr, `
The control plane is ready, and Millrace is starting on it. In another terminal:

  export %s

  kubectl create deployment web --image=nginx --replicas=3
  kubectl get pods --watch
  %s

  make demo

%sStop with Ctrl-C; the cluster and the streams are kept in %s.

`, strings.Join(exports, "\n  export "), show, later, filepath.Dir(o.dir))
}

// place sets the directories of the cluster and the streams, and stops the processes that an
// earlier run left. With --fresh it removes both directories.
func (o *devOptions) place(all *everything) error {
	if o.dir == "" {
		checkout, err := binaries.Checkout()
		if err != nil {
			return fmt.Errorf("find the checkout: %w; name a --cluster-dir", err)
		}
		o.dir = localcluster.DevDir(checkout)
	}
	if all.server.DataDir == "" {
		all.server.DataDir = filepath.Join(filepath.Dir(o.dir), "streams")
	}
	if all.server.Listen == "" && all.bus.Connection.URL == "" { // for commands that read the record
		port, err := localcluster.UsualPort(4222)
		if err != nil {
			return err
		}
		all.server.Listen = fmt.Sprintf("127.0.0.1:%d", port)
	}
	if left, err := localcluster.Open(o.dir); err == nil {
		if slices.ContainsFunc(left.Processes(), (*subprocess.Process).Running) {
			return fmt.Errorf("a local control plane is already running in %s; stop it, or name another --cluster-dir", o.dir)
		}
		if err := left.Stop(); err != nil {
			return fmt.Errorf("clear what the last run left in %s: %w", o.dir, err)
		}
	}
	if !o.fresh {
		return nil
	}
	return errors.Join(os.RemoveAll(o.dir), os.RemoveAll(all.server.DataDir))
}
