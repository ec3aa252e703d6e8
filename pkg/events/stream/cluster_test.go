package stream_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
)

// TestConformsInCluster: the same sentences hold with three copies of every
// stream. The tests share one cluster, which each finds empty.
func TestConformsInCluster(t *testing.T) {
	address := serveCluster(t)
	js := admin(t, address)
	streamtest.Conform(t, func(t *testing.T) bus.Bus {
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			names := js.StreamNames(ctx)
			for name := range names.Name() {
				_ = js.DeleteStream(ctx, name)
			}
		})
		return connect(t, stream.Options{URL: address, Replicas: 3})
	})
}

// serveCluster starts three servers, and gives the address of one of them.
func serveCluster(t *testing.T) string {
	t.Helper()
	ports := freePorts(t, 3)
	var routes []*url.URL
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	var servers []*server.Server
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprint("server-", i), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20, NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: "cluster", Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		servers = append(servers, s)
	}
	eventually(t, "the cluster has a leader that all follow", func() bool {
		leader := slices.IndexFunc(servers, (*server.Server).JetStreamIsLeader)
		return leader >= 0 && len(servers[leader].JetStreamClusterPeers()) == len(servers) &&
			!slices.ContainsFunc(servers, func(s *server.Server) bool { return !s.JetStreamIsCurrent() })
	})
	return servers[0].ClientURL()
}

// freePorts are ports that nobody listens on; the servers of a cluster must know
// each other's before they start.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
