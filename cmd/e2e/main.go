// Command e2e runs Kubernetes' own end-to-end tests of the controllers that
// Millrace replaces, against Millrace: the rest of the work is done by the real
// kube-controller-manager, started without those controllers.
//
// test/e2e/tests.txt names the tests, test/e2e/left-out.tsv those that are left
// out, each with its reason. The last line printed is the count; the exit code is
// 0 when every test that was to run passed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// replaced names the controllers that Millrace has, as kube-controller-manager does.
func replaced() string {
	var names []string
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			names = append(names, e.Name)
		}
	}
	return strings.Join(names, ",")
}

// storageVersions has StorageVersions served, which are alpha, so that their garbage
// collector has work.
const storageVersions = "--feature-gates=StorageVersionAPI=true"

// errFailed says that tests failed; everything about them has been printed.
var errFailed = errors.New("tests failed")

type options struct {
	by      string
	which   string
	tests   string
	focus   string
	out     string
	binary  string
	procs   int
	timeout time.Duration
	all     bool
	record  string
}

func main() {
	var o options
	flag.StringVar(&o.by, "by", "millrace", "who runs the controllers under test: millrace, kcm (the baseline), shadow (kcm, with millrace beside it, which is compared), or nobody (the negative control, in which tests must fail)")
	flag.StringVar(&o.which, "controllers", replaced(), "the controllers under test; kube-controller-manager runs all others")
	flag.StringVar(&o.tests, "tests", "", "file of test names (default: test/e2e/tests.txt)")
	flag.StringVar(&o.focus, "focus", "", "run only tests whose name contains this")
	flag.StringVar(&o.out, "out", "", "directory of the results (default: .millrace/e2e-<by>)")
	flag.StringVar(&o.binary, "binary", "", "the millrace program (default: bin/millrace)")
	flag.IntVar(&o.procs, "procs", 8, "tests at a time")
	flag.DurationVar(&o.timeout, "timeout", 90*time.Minute, "the whole run's limit")
	flag.BoolVar(&o.all, "all", false, "run the tests that are left out, too")
	flag.StringVar(&o.record, "record", "", "run nothing, and take over this results.tsv of a run by --by into test/e2e and docs/conformance.md")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	switch {
	case errors.Is(err, errFailed):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(ctx context.Context, o options) error {
	root, err := localcluster.Checkout()
	if err != nil {
		return err
	}
	if o.record != "" {
		return record(root, o)
	}
	o.complete(root)
	tests, left, err := selection(o, filepath.Join(root, "test", "e2e", "left-out.tsv"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("make result directory: %w", err)
	}
	programs, err := localcluster.FindPrograms(os.Stderr)
	if err != nil {
		return err
	}
	if err := programs.Build(ctx, "kubectl", "ginkgo", "e2e.test"); err != nil {
		return err
	}
	of, err := provenanceOf(ctx, o)
	if err != nil {
		return err
	}
	cluster, err := start(ctx, o)
	if err != nil {
		return err
	}
	results, err := play(ctx, cluster.Cluster, o, tests)
	different := cluster.agreement(ctx, os.Stdout, o)
	if err := errors.Join(err, cluster.Stop()); err != nil {
		return err
	}
	return errors.Join(report(os.Stdout, filepath.Join(o.out, "results.tsv"), of, tests, left, results), different)
}

// complete makes every path absolute: the suite runs in the result directory.
func (o *options) complete(root string) {
	for _, path := range []struct {
		of      *string
		missing string
	}{
		{&o.tests, filepath.Join(root, "test", "e2e", "tests.txt")},
		{&o.out, filepath.Join(root, ".millrace", "e2e-"+o.by)},
		{&o.binary, filepath.Join(root, "bin", "millrace")},
	} {
		if *path.of == "" {
			*path.of = path.missing
		} else if absolute, err := filepath.Abs(*path.of); err == nil {
			*path.of = absolute
		}
	}
}

// stage is the cluster, and the Millrace in it, if there is one.
type stage struct {
	*localcluster.Cluster
	health, nats string // where it listens
}

// start starts the cluster and whoever runs the controllers under test.
func start(ctx context.Context, o options) (*stage, error) {
	others := localcluster.Without(strings.Split(o.which, ",")...)
	switch o.by {
	case "kcm", "shadow":
		others = localcluster.AllControllers
	case "millrace", "nobody":
	default:
		return nil, fmt.Errorf("--by=%s: it is millrace, kcm, shadow or nobody", o.by)
	}
	// The cluster has started when its nodes are free, and only kube-controller-manager
	// is there by then to take the taint away.
	tainted := others == localcluster.AllControllers || !slices.Contains(strings.Split(o.which, ","), "node-lifecycle-controller")
	cluster, err := localcluster.Start(ctx, localcluster.Options{
		Dir: filepath.Join(o.out, "cluster"), Nodes: nodes, E2E: true, NotReadyTaint: tainted, Output: os.Stderr,
		APIServerArgs: []string{storageVersions, "--runtime-config=internal.apiserver.k8s.io/v1alpha1=true"},
		KCM:           []localcluster.KCM{{Controllers: others, Args: []string{storageVersions}}},
	})
	if err != nil {
		return nil, err
	}
	s := &stage{Cluster: cluster}
	switch o.by {
	case "millrace":
		err = s.startMillrace(ctx, o, localcluster.Millrace)
	case "shadow": // it could not write if it tried
		err = s.startMillrace(ctx, o, localcluster.Watcher, "--shadow=*")
	}
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	return s, nil
}

func (s *stage) startMillrace(ctx context.Context, o options, as localcluster.User, more ...string) error {
	for _, address := range []*string{&s.health, &s.nats} {
		port, err := localcluster.FreePort()
		if err != nil {
			return err
		}
		*address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	data := filepath.Join(s.Dir, "millrace")
	if err := os.RemoveAll(data); err != nil {
		return fmt.Errorf("drop data of an earlier run: %w", err)
	}
	p, err := s.Run("millrace", o.binary, append([]string{
		"run", "--kubeconfig=" + s.Kubeconfig(as), "--data-dir=" + data, "--root-ca-file=" + s.RootCAFile(),
		"--service-account-private-key-file=" + s.ServiceAccountKeyFile(),
		"--controllers=" + o.which, storageVersions, "--health-address=" + s.health, "--nats-listen=" + s.nats,
	}, more...)...)
	if err != nil {
		return err
	}
	return p.Ready(ctx, "http://"+s.health+"/readyz")
}
