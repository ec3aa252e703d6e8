// Command localcluster starts and stops a control plane on this machine, for
// people and scripts: up, down, build.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

const usage = `Runs a control plane on this machine: etcd, kube-apiserver, kube-scheduler, simulated nodes.

  localcluster up [flags]          start one and leave it running; see localcluster up -h
  localcluster down [flags]        stop it and drop its data
  localcluster build [program...]  build the programs that are missing (default: all)
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s", usage)
	}
	switch args[0] {
	case "up":
		return up(ctx, args[1:])
	case "down":
		return down(args[1:])
	case "build":
		return build(ctx, args[1:])
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	default:
		return fmt.Errorf("unknown command %q\n\n%s", args[0], usage)
	}
}

func up(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	dir := directory(flags)
	nodes := flags.Int("nodes", 10, "simulated nodes")
	e2e := flags.Bool("e2e", false, "make pod and node addresses reachable on this machine, as Kubernetes' own tests expect; needs root")
	kcm := flags.String("kcm", "none", "kube-controller-manager: none, all, or a --controllers list, e.g. '*,-replicaset-controller'")
	tuned := flags.Bool("tuned", false, "run kube-controller-manager without limits and with 50 workers for each controller")
	jaeger := flags.Bool("jaeger", false, "also start Jaeger; etcd and kube-apiserver send it the spans of traced requests")
	replicas := flags.Int("replicas", 1, "number of kube-controller-manager processes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	options := localcluster.Options{Dir: *dir, Nodes: *nodes, E2E: *e2e, Storage: true, Detached: true, Output: os.Stderr}
	options.Tracing = localcluster.Tracing{Jaeger: *jaeger, UsualPorts: true}
	if *kcm != "none" {
		controllers := *kcm
		if controllers == "all" {
			controllers = localcluster.AllControllers
		}
		for range *replicas {
			options.KCM = append(options.KCM, localcluster.KCM{Controllers: controllers, Tuned: *tuned})
		}
	}
	cluster, err := localcluster.Start(ctx, options)
	if err != nil {
		return err
	}
	fmt.Print(environment(cluster))
	return nil
}

// environment has the variables that a shell, or another controller manager, needs.
func environment(c *localcluster.Cluster) string {
	var b strings.Builder
	lines := [][2]string{
		{"KUBECONFIG", c.Kubeconfig(localcluster.Admin)},
		{"MILLRACE_KUBECONFIG", c.Kubeconfig(localcluster.Millrace)},
		{"ROOT_CA_FILE", c.RootCAFile()},
		{"ROOT_CA_KEY_FILE", c.RootCAKeyFile()},
		{"SERVICE_ACCOUNT_KEY_FILE", c.ServiceAccountKeyFile()},
	}
	if c.JaegerURL() != "" {
		lines = append(lines, [2]string{"MILLRACE_JAEGER", c.JaegerURL()}, [2]string{"MILLRACE_TRACING_ENDPOINT", c.Collector()})
	}
	for _, line := range lines {
		fmt.Fprintf(&b, "export %s=%s\n", line[0], line[1])
	}
	return b.String()
}

func down(args []string) error {
	flags := flag.NewFlagSet("down", flag.ExitOnError)
	dir := directory(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	cluster, err := localcluster.Open(*dir)
	if err != nil {
		return err
	}
	return cluster.Stop()
}

func build(ctx context.Context, names []string) error {
	if len(names) == 0 {
		names = binaries.Names()
	}
	programs, err := binaries.Find(os.Stderr)
	if err != nil {
		return err
	}
	if err := programs.Build(ctx, names...); err != nil {
		return err
	}
	for _, name := range names {
		fmt.Println(programs.Path(name))
	}
	return nil
}

func directory(flags *flag.FlagSet) *string {
	return flags.String("dir", filepath.Join(os.TempDir(), fmt.Sprintf("millrace-localcluster-%d", os.Getuid())), "directory for its files")
}
