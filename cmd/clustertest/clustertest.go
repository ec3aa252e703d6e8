// Package clustertest gives tests outside of cmd a real control plane: etcd,
// kube-apiserver, kube-scheduler and simulated nodes on this machine, stopped
// when the test ends.
package clustertest

import (
	"context"
	"io"
	"testing"

	"github.com/millrace/millrace/cmd/internal/history"
	"github.com/millrace/millrace/cmd/internal/jaeger"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/wire"
)

// The local cluster under names that tests may import.
type (
	// Cluster is a running control plane.
	Cluster = localcluster.Cluster
	// Options configure a cluster.
	Options = localcluster.Options
	// KCM configures one kube-controller-manager.
	KCM = localcluster.KCM
	// Process is one started program.
	Process = subprocess.Process
	// User is a user that the cluster knows.
	User = localcluster.User
	// Client opens arenas.
	Client = arena.Client
	// Arena is a namespace for one test, with a view of the namespace that does not depend on the programs
	// under test.
	Arena = arena.Arena
	// Condition is a condition that can be observed in an arena.
	Condition = arena.Condition
	// Wire is a proxy for connections that a test can cut.
	Wire = wire.Wire
	// WireCondition is the state of a wire.
	WireCondition = wire.Condition
	// Tracing configures the destination of the control plane's spans.
	Tracing = localcluster.Tracing
	// Jaeger queries a Jaeger for traces.
	Jaeger = jaeger.Client
	// Trace is a trace as a tree.
	Trace = jaeger.Trace
	// Span is one step of a trace.
	Span = jaeger.Span
	// Past reads the streams of a Millrace that does not run: a history.
	Past = history.Past
)

// The conditions that an arena can wait for; see package arena.
var (
	Ready     = arena.Ready
	Created   = arena.Created
	Replaced  = arena.Replaced
	RolledOut = arena.RolledOut
	Available = arena.Available
	NoPods    = arena.NoPods
	Empty     = arena.Empty
)

// LayWire starts a proxy from a free port of 127.0.0.1 to an address.
func LayWire(target string) (*Wire, error) { return wire.New(target) }

// AskJaeger returns a client of the Jaeger whose query API is at an address.
func AskJaeger(address string) (*Jaeger, error) { return jaeger.New(address) }

// Connect returns a client for arenas from a kubeconfig file.
func Connect(kubeconfig string) (*Client, error) { return arena.Connect(kubeconfig) }

// FreePort returns a port of 127.0.0.1 that no process uses, and reserves it until this process ends.
func FreePort() (int, error) { return localcluster.FreePort() }

// Minor is x of the version 1.x of the control planes that are started; $MILLRACE_KUBERNETES selects it.
func Minor() (int, error) {
	programs, err := binaries.Find(io.Discard)
	if err != nil {
		return 0, err
	}
	return programs.Minor()
}

// Launch starts a control plane for several tests; the caller stops it.
func Launch(ctx context.Context, options Options) (*Cluster, error) {
	return localcluster.Start(ctx, options)
}

// Unmanned is the label of a node that neither kwok nor a kubelet runs; see package localcluster.
const Unmanned = localcluster.Unmanned

// The users of a cluster; see package localcluster.
const (
	Admin             = localcluster.Admin
	ControllerManager = localcluster.ControllerManager
	Watcher           = localcluster.Watcher
	Writer            = localcluster.Writer
	Millrace          = localcluster.Millrace
)

// Start starts a control plane for one test, or for all tests of a package when t is the first of them. It
// builds the programs that are missing, which takes minutes the first time: give such packages a long
// -timeout.
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

// BusURL returns the URL of a bus on this machine, with the login that the bus left there.
func BusURL(address string) string { return connect.BusURL(address) }
