package system

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestThreeNodes runs Millrace on a bus of three servers and stops them, one after the other and all at once,
// in every way. After each time a deleted pod is replaced once, and every service is still the same process.
func TestThreeNodes(t *testing.T) {
	s := alone(t)
	n := s.nodes(t)
	for i := range n.servers {
		n.start(i)
	}
	m := n.serve("--require-audit-grade")
	a := s.arena(t, "three-nodes")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))
	deleted := 0
	heal := func(what string) {
		t.Helper()
		created := a.Created()
		began := time.Now()
		_, err := a.DeletePod(t.Context())
		must(t, err)
		deleted++
		took := until(t, a, clustertest.Replaced(created, 3)).Sub(began)
		// The servers of the bus choose a new leader 4 to 9 s after they last heard of
		// one that died.
		t.Logf("%s: a pod was replaced after %v", what, took.Round(10*time.Millisecond))
		if took > busBound {
			t.Errorf("%s: a deleted pod's place was empty for %v, want at most %v", what, took, busBound)
		}
	}
	heal("all is well")
	turns := subject.TurnStream("replicaset-controller")
	for _, fault := range []struct {
		name string
		do   func(leader int)
		undo func(leader int)
	}{
		{"the leader is killed", n.kill, n.start},
		{"a follower is killed", func(i int) { n.kill((i + 1) % 3) }, func(i int) { n.start((i + 1) % 3) }},
		{"the leader leaves", func(i int) { n.servers[i].stop(t) }, n.start},
		{"the leader stands still", func(i int) { n.resume = n.servers[i].pause(t) }, func(int) { n.resume() }},
		{"the leader loses its disk", func(i int) { n.kill(i); must(t, os.RemoveAll(n.dirs[i])); n.start(i) }, func(int) {}},
		{"all are killed", func(int) { n.all(n.kill); n.all(n.start) }, func(int) {}},
	} {
		leader := n.leader(turns)
		fault.do(leader)
		heal(fault.name)
		fault.undo(leader)
		n.mended()
	}
	for _, name := range serviceNames {
		p := m.services[name][0]
		if !p.Running() {
			t.Errorf("%s ended when its bus did, want it to run on:\n%s", name, tail(p.Log))
			continue
		}
		p.ready(t)
	}
	if created := a.Created(); created != 3+deleted {
		t.Errorf("%d pods were created, want 3 and one for each of the %d that were deleted", created, deleted)
	}
	clear(t, a)
}

// TestNodesComeLate starts the services first and then the servers of the bus, the last one later than the
// others: the services log what they wait for, and begin by themselves.
func TestNodesComeLate(t *testing.T) {
	s := here(t)
	n := s.nodes(t)
	m := n.serveUnready()
	says := func(p *service, what string) {
		t.Helper()
		within(t, patience, p.Name+" says "+what, func() string {
			if log := tail(p.Log); !strings.Contains(log, what) {
				return "it says " + log
			}
			return ""
		})
	}
	for _, name := range serviceNames {
		says(m.services[name][0], "Waiting for NATS")
	}
	n.launch(2)
	n.launch(0)
	for _, name := range []string{"reconcilers", "writer"} {
		says(m.services[name][0], "make the streams of")
	}
	// The services may have connected only to the other one of the two servers so far.
	within(t, patience, "a server without a cluster says so", func() string {
		code, text := n.servers[2].get(t, "/readyz")
		switch {
		case code == http.StatusOK:
			t.Fatalf("a server without a cluster says that it is ready: %s", text)
		case code != http.StatusInternalServerError || !strings.Contains(text, "no cluster"):
			return fmt.Sprint("it answers ", code, " ", text)
		}
		return ""
	})
	n.launch(1)
	for _, name := range serviceNames {
		m.services[name][0].ready(t)
	}
}

// TestManifestsOfThreeServers validates deployments/kubernetes-ha with the API server. A warning would mean
// that Pod Security rejects the pods.
func TestManifestsOfThreeServers(t *testing.T) {
	s := here(t)
	must(t, s.Programs.Build(t.Context(), "kubectl"))
	s.kubectl(t, "apply", "-f", filepath.Join(manifests, "namespace.yaml"))
	s.kubectl(t, "apply", "-k", manifests+"-ha", "--dry-run=server", "--warnings-as-errors")
}

// nodes are the three servers of a bus, as processes.
type nodes struct {
	t              *testing.T
	site           *site
	dirs           []string
	listen, routes []string
	servers        []*service
	js             jetstream.JetStream
	resume         func()
	streams        int // the most streams that were ever listed
}

func (s *site) nodes(t *testing.T) *nodes {
	t.Helper()
	n := &nodes{t: t, site: s, servers: make([]*service, 3)}
	for i := range n.servers {
		n.listen, n.routes = append(n.listen, loopback(t)), append(n.routes, loopback(t))
		n.dirs = append(n.dirs, filepath.Join(t.TempDir(), fmt.Sprint("node-", i)))
	}
	return n
}

// launch starts a server without waiting for it.
func (n *nodes) launch(i int) {
	n.t.Helper()
	n.servers[i] = n.site.launch(n.t, fmt.Sprint("bus-", i), "bus", fmt.Sprint("--name=bus-", i), "--data-dir="+n.dirs[i],
		"--nats-listen="+n.listen[i], "--cluster-listen="+n.routes[i], "--routes="+strings.Join(n.routes, ","), "--sync-interval=always", "--insecure-bus")
}

func (n *nodes) start(i int) { n.t.Helper(); n.launch(i) }
func (n *nodes) kill(i int)  { n.t.Helper(); n.servers[i].kill(n.t) }

func (n *nodes) all(do func(i int)) {
	n.t.Helper()
	for i := range n.servers {
		do(i)
	}
}

func (n *nodes) url() string { return "nats://" + strings.Join(n.listen, ",nats://") }

// serve starts one replica of each service, and waits until all are ready.
func (n *nodes) serve(more ...string) *apart {
	n.t.Helper()
	for _, server := range n.servers {
		server.ready(n.t)
		more = append(more, "--nats-monitoring=http://"+server.health)
	}
	m := n.serveUnready(more...)
	for _, name := range serviceNames {
		m.services[name][0].ready(n.t)
	}
	return m
}

func (n *nodes) serveUnready(more ...string) *apart {
	n.t.Helper()
	m := n.site.unstarted(n.t, n.site.credentials(), time.Now())
	for _, name := range serviceNames {
		m.addAt(name, strings.TrimPrefix(n.url(), "nats://"), append([]string{"--stream-replicas=3"}, more...)...)
	}
	return m
}

// api is JetStream with an administrator's rights.
func (n *nodes) api() jetstream.JetStream {
	n.t.Helper()
	if n.js != nil {
		return n.js
	}
	conn, err := nats.Connect(n.url(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	must(n.t, err)
	n.t.Cleanup(conn.Close)
	n.js, err = jetstream.New(conn)
	must(n.t, err)
	return n.js
}

// leader returns the server that leads a stream.
func (n *nodes) leader(stream string) (leader int) {
	n.t.Helper()
	within(n.t, patience, "the leader of "+stream, func() string {
		info, err := n.api().Stream(n.t.Context(), stream)
		if err != nil {
			return err.Error()
		}
		cluster := info.CachedInfo().Cluster
		if cluster == nil {
			return "the server does not know the cluster"
		}
		_, err = fmt.Sscanf(cluster.Leader, "bus-%d", &leader)
		return ask(err)
	})
	return leader
}

// mended waits until every replica of every stream exists and is current.
func (n *nodes) mended() {
	n.t.Helper()
	for _, server := range n.servers {
		server.ready(n.t)
	}
	within(n.t, patience, "every copy is complete", func() string {
		list := n.api().ListStreams(n.t.Context())
		missing, listed := "", map[string]bool{} // by the server that leads it, or still believes to
		for info := range list.Info() {
			listed[info.Config.Name] = true
			if info.Cluster == nil || len(info.Cluster.Replicas) < 2 {
				missing = "the copies of " + info.Config.Name
				continue
			}
			for _, peer := range info.Cluster.Replicas {
				if !peer.Current || peer.Offline {
					missing = info.Config.Name + " on " + peer.Name
				}
			}
		}
		if list.Err() != nil {
			return list.Err().Error()
		}
		// A new leader lists only the streams that it knows of so far.
		if n.streams = max(n.streams, len(listed)); len(listed) < n.streams || len(listed) == 0 {
			return fmt.Sprintf("%d of %d streams are listed", len(listed), n.streams)
		}
		return missing
	})
}
