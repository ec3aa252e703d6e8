// Package clustertest gives tests outside of cmd a real control plane: etcd,
// kube-apiserver, kube-scheduler and simulated nodes on this machine, stopped
// when the test ends.
package clustertest

import (
	"context"
	"testing"

	"github.com/millrace/millrace/cmd/internal/localcluster"
)

// The local cluster under names that tests may import.
type (
	// Cluster is a running control plane.
	Cluster = localcluster.Cluster
	// Options say what cluster to start.
	Options = localcluster.Options
	// KCM says how to run one kube-controller-manager.
	KCM = localcluster.KCM
	// Process is one started program.
	Process = localcluster.Process
	// User is somebody whom the cluster knows.
	User = localcluster.User
)

// The users of a cluster; see package localcluster.
const (
	Admin             = localcluster.Admin
	ControllerManager = localcluster.ControllerManager
	Watcher           = localcluster.Watcher
	Writer            = localcluster.Writer
	Millrace          = localcluster.Millrace
)

// Start starts a control plane for one test, or for all tests of a package when t
// is the first of them. Programs that are not built yet are built, which takes
// minutes the first time: give such packages a long -timeout.
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	if options.Dir == "" {
		options.Dir = t.TempDir()
	}
	if options.Output == nil {
		options.Output = t.Output()
	}
	cluster, err := localcluster.Start(context.WithoutCancel(t.Context()), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}
