package stream_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/port"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestConformsInCluster: the same suite passes with three replicas of every stream. The tests
// share one cluster, which each finds empty. The cluster may elect another leader at any time,
// which is no fault: see [streamtest.Patient].
func TestConformsInCluster(t *testing.T) {
	t.Parallel()
	c := serveCluster(t)
	js := admin(t, c.urls())
	streamtest.Conform(t, func(t *testing.T) bus.Bus {
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			eventually(t, "there are no streams any more", func() bool {
				names, left := js.StreamNames(ctx), 0
				for name := range names.Name() {
					left++
					_ = js.DeleteStream(ctx, name) // or the next time
				}
				return names.Err() == nil && left == 0
			})
		})
		return streamtest.Patient(connect(t, stream.Options{URL: c.urls(), Replicas: 3}), stream.Passing)
	})
}

// TestAClientRidesOutChangesOfLeader: while the streams change their leaders all the time,
// repeated requests are stored once, in order, and found.
func TestAClientRidesOutChangesOfLeader(t *testing.T) {
	t.Parallel()
	c := serveCluster(t)
	b := streamtest.Patient(connect(t, stream.Options{URL: c.urls(), Replicas: 3, Timeout: time.Second}), stream.Passing)
	if err := errors.Join(b.EnsureKind(t.Context(), kinds.Pods.Kind), b.EnsureController(t.Context(), "toy")); err != nil {
		t.Fatal(err)
	}
	c.unsettle(subject.LogStream("pods"), subject.TurnStream("toy"), subject.OutcomeStream("toy"))
	streamtest.Orderly(t, b, "toy", 200)
}

// unsettle has streams change their leaders again and again until the test ends.
func (c *cluster) unsettle(streams ...string) {
	ctx, stop := context.WithCancel(context.Background())
	conn, err := nats.Connect(c.urls())
	if err != nil {
		c.t.Fatal(err)
	}
	var moving sync.WaitGroup
	c.t.Cleanup(func() { stop(); moving.Wait(); conn.Close() })
	for _, name := range streams {
		moving.Go(func() {
			for ctx.Err() == nil {
				_, _ = conn.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+name, nil)
				select {
				case <-ctx.Done():
				case <-time.After(300 * time.Millisecond):
				}
			}
		})
	}
}

// TestNothingIsPackedInACluster: a server that always syncs cannot read the blocks that it
// compresses while it starts.
func TestNothingIsPackedInACluster(t *testing.T) {
	t.Parallel()
	c := serveCluster(t)
	b := connect(t, stream.Options{URL: c.urls(), Replicas: 3})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureController(t.Context(), "toy-controller"); err != nil {
		t.Fatal(err)
	}
	list, seen := admin(t, c.urls()).ListStreams(t.Context()), 0
	for info := range list.Info() {
		seen++
		if info.Config.Compression != jetstream.NoCompression {
			t.Errorf("%s is packed with %v", info.Config.Name, info.Config.Compression)
		}
	}
	if list.Err() != nil || seen != 5 {
		t.Errorf("%d streams (%v), want 5", seen, list.Err())
	}
}

// TestClusterSettings: a server does not start on settings that could not make a
// cluster, and says which.
func TestClusterSettings(t *testing.T) {
	t.Parallel()
	alone, member := t.TempDir(), t.TempDir()
	s := serve(t, embedded.Options{Dir: alone})
	b := connect(t, stream.Options{Server: s})
	if err := errors.Join(b.EnsureController(t.Context(), "c"), b.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.start(0)
	c.start(2)
	c.stop(2)
	good := c.options(1)
	for name, k := range map[string]struct {
		spoil func(*embedded.Options)
		want  string
	}{
		"no name":                      {func(o *embedded.Options) { o.Name = "" }, "name"},
		"no routes":                    {func(o *embedded.Options) { o.Cluster.Routes = nil }, "routes to the others"},
		"no cluster listen":            {func(o *embedded.Options) { o.Cluster.Listen = "" }, "listen"},
		"no port":                      {func(o *embedded.Options) { o.Cluster.Listen = "127.0.0.1" }, "port"},
		"any port":                     {func(o *embedded.Options) { o.Cluster.Listen = "127.0.0.1:0" }, "from 1"},
		"a route to no port":           {func(o *embedded.Options) { o.Cluster.Routes = []string{"somewhere"} }, "port"},
		"a password in a broken route": {func(o *embedded.Options) { o.Cluster.Routes = []string{"nats://u:%zzsecret@h:1"} }, "host:port"},
		"the port of another":          {func(o *embedded.Options) { o.Cluster.Listen = c.routes[0] }, "in use"},
		"a directory of a server that stood alone": {func(o *embedded.Options) { o.Dir = alone }, "stood alone"},
		"a directory of a cluster":                 {func(o *embedded.Options) { o.Dir, o.Cluster = c.dirs[2], embedded.ClusterOptions{} }, "a cluster"},
	} {
		options := good
		options.Dir = filepath.Join(member, strings.ReplaceAll(name, " ", "-"))
		k.spoil(&options)
		s, err := embedded.Serve(options)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), k.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error with %q", name, err, k.want)
		}
	}
}

// cluster are three servers in this process, some of which run.
type cluster struct {
	t              *testing.T
	dirs           []string
	listen, routes []string
	servers        []*embedded.Server // nil: it does not run
	sync           bool               // always
	secure         embedded.ClusterOptions
	js             jetstream.JetStream // asks about leaders; nil: has not been needed
}

// newCluster is a cluster of which nothing runs yet. The servers must know each
// other's ports before they start, and keep them.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, servers: make([]*embedded.Server, 3)}
	for range 2 * len(c.servers) {
		free, err := port.Free()
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", free)
		if len(c.listen) < len(c.servers) {
			c.listen, c.dirs = append(c.listen, address), append(c.dirs, t.TempDir())
		} else {
			c.routes = append(c.routes, address)
		}
	}
	return c
}

// serveCluster starts three servers, and returns when they are a cluster.
func serveCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	for i := range c.servers {
		c.start(i)
	}
	c.await()
	return c
}

func (c *cluster) options(i int) embedded.Options {
	joined := c.secure
	joined.Listen, joined.Routes = c.routes[i], c.routes
	return embedded.Options{Dir: c.dirs[i], Listen: c.listen[i], Name: fmt.Sprint("server-", i), Cluster: joined, SyncAlways: c.sync}
}

func (c *cluster) start(i int) {
	c.t.Helper()
	c.servers[i] = serve(c.t, c.options(i))
}

func (c *cluster) stop(i int) {
	c.t.Helper()
	if err := c.servers[i].Close(); err != nil {
		c.t.Fatal(err)
	}
	c.servers[i] = nil
}

// await waits until every server that runs follows a leader.
func (c *cluster) await() {
	c.t.Helper()
	eventually(c.t, "the cluster has a leader that all follow", func() bool {
		for _, s := range c.servers {
			if s != nil && s.Healthy() != nil {
				return false
			}
		}
		return true
	})
}

// urls are the addresses of all servers.
func (c *cluster) urls() string { return "nats://" + strings.Join(c.listen, ",nats://") }
