package main

import (
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

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// replaced are kube-controller-manager's names of the controllers that Millrace has.
func replaced() []string {
	var names []string
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			names = append(names, e.Name)
		}
	}
	return names
}

// furniture are the controllers that every test's namespace waits for: without them a test fails before it
// begins, and shows nothing about the controllers that it tests.
var furniture = []string{"serviceaccount-controller", "root-ca-certificate-publisher-controller"}

// underTest are the names of the controllers under test.
func underTest(o options) []string {
	switch {
	case o.which != "":
		return strings.Split(o.which, ",")
	case o.by == "none":
		return slices.DeleteFunc(replaced(), func(name string) bool { return slices.Contains(furniture, name) })
	}
	return replaced()
}

// settings are flags of both kube-controller-manager and Millrace. They serve the alpha API StorageVersions,
// so that its garbage collector has work, and delete all ended pods but a hundred, as one test wants.
var settings = []string{storageVersions, "--terminated-pod-gc-threshold=100"}

const storageVersions = "--feature-gates=StorageVersionAPI=true"

// stage is the cluster, and the Millrace in it, if there is one.
type stage struct {
	*localcluster.Cluster
	health, nats string // where it listens
}

// start starts the cluster and the program that runs the controllers under test.
func start(ctx context.Context, o options) (*stage, error) {
	which := underTest(o)
	others := localcluster.Without(which...)
	switch o.by {
	case "kcm", "shadow":
		others = localcluster.AllControllers
	case "millrace", "none":
	default:
		return nil, fmt.Errorf("--by=%s: it is millrace, kcm, shadow or none", o.by)
	}
	// The cluster counts as started when its nodes have no taint, and by then only kube-controller-manager
	// runs and can remove it.
	tainted := others == localcluster.AllControllers || !slices.Contains(which, "node-lifecycle-controller")
	cluster, err := localcluster.Start(ctx, localcluster.Options{
		Dir: filepath.Join(o.out, "cluster"), Nodes: nodes, E2E: true, NotReadyTaint: tainted, Output: os.Stderr,
		APIServerArgs: []string{storageVersions, "--runtime-config=internal.apiserver.k8s.io/v1alpha1=true"},
		KCM:           []localcluster.KCM{{Controllers: others, Args: settings}},
	})
	if err != nil {
		return nil, err
	}
	s := &stage{Cluster: cluster}
	switch o.by {
	case "millrace":
		err = s.startMillrace(ctx, o, localcluster.Millrace)
	case "shadow": // its account may not write
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
	args := append([]string{
		"run", "--kubeconfig=" + s.Kubeconfig(as), "--data-dir=" + data, "--root-ca-file=" + s.RootCAFile(),
		"--service-account-private-key-file=" + s.ServiceAccountKeyFile(),
		"--cluster-signing-cert-file=" + s.RootCAFile(), "--cluster-signing-key-file=" + s.RootCAKeyFile(),
		"--controllers=" + strings.Join(underTest(o), ","), "--health-address=" + s.health, "--nats-listen=" + s.nats,
	}, settings...)
	p, err := s.Run("millrace", o.binary, append(args, more...)...)
	if err != nil {
		return err
	}
	return p.Ready(ctx, "http://"+s.health+"/readyz")
}

// export writes Millrace's record to the file that the flag names.
func (s *stage) export(ctx context.Context, o options) error {
	if o.export == "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, o.binary, "export", o.export, "--overwrite", "--nats-url=nats://"+s.nats).CombinedOutput()
	if err != nil {
		return fmt.Errorf("export the record: %w\n%s", err, out)
	}
	return nil
}

// alive returns an error that names a process that ended by itself: results of tests after that say nothing
// about the controllers under test.
func (s *stage) alive() error {
	for _, p := range s.Processes() {
		if !p.Running() {
			return fmt.Errorf("run the tests: %s ended by itself; its log is %s", p.Name, p.Log)
		}
	}
	return nil
}
