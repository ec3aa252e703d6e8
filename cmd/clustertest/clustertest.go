// Package clustertest gives tests outside of cmd a real control plane: etcd,
// kube-apiserver, kube-scheduler and simulated nodes on this machine, stopped
// when the test ends.
package clustertest

import (
	"context"
	"testing"

	"github.com/millrace/millrace/cmd/internal/history"
	"github.com/millrace/millrace/cmd/internal/jaeger"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
	"github.com/millrace/millrace/cmd/internal/reader"
	"github.com/millrace/millrace/cmd/internal/wire"
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
	// User is a user that the cluster knows.
	User = localcluster.User
	// Client makes arenas.
	Client = arena.Client
	// Arena is a namespace in which something is played, with a view of it that
	// is independent of the programs that play.
	Arena = arena.Arena
	// Condition is something that can be seen to hold in an arena.
	Condition = arena.Condition
	// Wire carries connections, and can be cut.
	Wire = wire.Wire
	// WireCondition is the state of a wire.
	WireCondition = wire.Condition
	// Tracing says where the control plane's spans go.
	Tracing = localcluster.Tracing
	// Jaeger asks a Jaeger for traces.
	Jaeger = jaeger.Client
	// Trace is a trace as a tree.
	Trace = jaeger.Trace
	// Span is one step of a trace.
	Span = jaeger.Span
	// Past gives the streams of a Millrace that does not run a history.
	Past = history.Past
)

// What can be seen to hold; see package arena.
var (
	Ready     = arena.Ready
	Created   = arena.Created
	Replaced  = arena.Replaced
	RolledOut = arena.RolledOut
	Available = arena.Available
	NoPods    = arena.NoPods
	Empty     = arena.Empty
)

// LayWire lays a wire from a free port of 127.0.0.1 to an address.
func LayWire(target string) (*Wire, error) { return wire.New(target) }

// AskJaeger makes a client of the Jaeger whose query API is at an address.
func AskJaeger(address string) (*Jaeger, error) { return jaeger.New(address) }

// Connect makes a client for arenas from a kubeconfig file.
func Connect(kubeconfig string) (*Client, error) { return arena.Connect(kubeconfig) }

// FreePort is a port of 127.0.0.1 that no process uses, kept until this process ends.
func FreePort() (int, error) { return localcluster.FreePort() }

// Launch starts a control plane for several tests; the caller stops it.
func Launch(ctx context.Context, options Options) (*Cluster, error) {
	return localcluster.Start(ctx, options)
}

// Unmanned is the label of a node that no program plays; see package localcluster.
const Unmanned = localcluster.Unmanned

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

// BusURL is where a bus of this machine is, with the login that it has left there.
func BusURL(address string) string { return reader.BusURL(address) }
