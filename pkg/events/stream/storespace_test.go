package stream_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// flood appends versions of one object, each of 1 MiB that does not compress, at 50 MB/s.
func flood(ctx context.Context, b *stream.Bus, kind kinds.Name, versions int) error {
	a, err := b.Append(ctx, kind)
	if err != nil {
		return err
	}
	defer a.Close()
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for i := range versions {
		<-pace.C
		m := events.Message{Subject: subject.Delta(events.Ref{Kind: kind, Namespace: "tenant", Name: "large"}), Data: make([]byte, 1<<20)}
		_, _ = rand.Read(m.Data)
		if err := errors.Join(a.Append(ctx, m), a.Flush(ctx)); err != nil {
			return fmt.Errorf("after %d MiB: %w", i, err)
		}
	}
	return nil
}

// tenant makes a bus of 96 MiB on which one kind has 20 MiB and a controller works, and
// has a tenant write twice the store to another kind. Turns are stored all the while. It keeps
// the disk busy: tests that use it do not run beside others.
func tenant(t *testing.T, server prometheus.Collector, b *stream.Bus) {
	t.Helper()
	ctx := t.Context()
	if err := errors.Join(b.EnsureKind(ctx, kinds.ConfigMaps.Kind), b.EnsureKind(ctx, kinds.Pods.Kind), b.EnsureController(ctx, "c")); err != nil {
		t.Fatal(err)
	}
	if err := flood(ctx, b, kinds.Pods.Name, 20); err != nil {
		t.Fatal(err)
	}
	flooded := make(chan error, 1)
	go func() { flooded <- flood(ctx, b, kinds.ConfigMaps.Name, 200) }()
	var turns uint64
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for over := false; !over; {
		select {
		case err := <-flooded:
			if over = true; err != nil {
				t.Errorf("the tenant's kind is not told on: %v", err)
			}
		case <-pace.C:
			m := events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: fmt.Sprint(turns)}), Data: make([]byte, 1<<10)}
			if _, err := b.Store(ctx, m, 0); err != nil {
				t.Fatalf("turn %d: %v", turns, err)
			}
			turns++
		}
	}
	for name, want := range map[string]uint64{subject.LogStream("pods"): 20, subject.TurnStream("c"): turns} {
		if s, err := b.StreamState(ctx, name); err != nil || s.Messages != want || s.Keeps.Bytes != 0 {
			t.Errorf("%s has %d messages and keeps %v, want %d and no bound (%v)", name, s.Messages, s.Keeps, want, err)
		}
	}
	log, err := b.StreamState(ctx, subject.LogStream("configmaps"))
	if err != nil || log.Last != 200 || log.First == 1 || log.Keeps.Bytes < 16<<20 || log.Keeps.Bytes > 64<<20 {
		t.Errorf("the tenant's log has messages %d to %d and keeps %v; want its newest, within a bound (%v)", log.First, log.Last, log.Keeps, err)
	}
	if cuts := gathered(t, server, "millrace_bus_store_cuts_total"); cuts == 0 {
		t.Error("no metric says that a stream was bounded")
	}
	if used, most := gathered(t, server, "millrace_bus_store_bytes"), gathered(t, server, "millrace_bus_store_limit_bytes"); used < most/2 || used > most {
		t.Errorf("%.0f bytes of %.0f are said to be used", used, most)
	}
}

// TestATenantCannotFillTheStore: a tenant that writes far more than fits pushes out only its
// own messages; other kinds and turns keep all of theirs.
func TestATenantCannotFillTheStore(t *testing.T) {
	server := serve(t, embedded.Options{MaxStore: 96 << 20})
	b := connect(t, stream.Options{Server: server})
	tenant(t, server, b)
	again := connect(t, stream.Options{Server: server, Began: time.Now().Add(time.Minute)})
	if err := errors.Join(again.EnsureKind(t.Context(), kinds.ConfigMaps.Kind), flood(t.Context(), again, kinds.ConfigMaps.Name, 100)); err != nil {
		t.Errorf("store after a service has begun that bounds nothing: %v, want no error", err)
	}
}

// TestATenantCannotFillAStoreWithUsers: the server bounds streams where others need a name
// and a certificate.
func TestATenantCannotFillAStoreWithUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "accounts.conf")
	accounts := "accounts { MILLRACE { jetstream: enabled, users: [ { user: all, password: all } ] } }"
	if err := os.WriteFile(file, []byte(accounts), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAuthority(t)
	a.issue("server", time.Hour, "127.0.0.1")
	a.issue("client", time.Hour)
	files := a.server()
	files.ClientCAFile = a.path("ca.crt")
	server := serve(t, embedded.Options{MaxStore: 96 << 20, Accounts: file, Listen: "127.0.0.1:0", TLS: files})
	tenant(t, server, connect(t, stream.Options{
		URL:    "tls://all:all@" + server.URL()[len("tls://"):],
		CAFile: a.path("ca.crt"), CertFile: a.path("client.crt"), KeyFile: a.path("client.key"),
	}))
}

// TestATenantCannotFillAStoreWithAPassword: the server bounds streams where others need a
// password and it has no accounts.
func TestATenantCannotFillAStoreWithAPassword(t *testing.T) {
	server := serve(t, embedded.Options{MaxStore: 96 << 20, Password: "all", GuestPassword: "look", Listen: "127.0.0.1:0"})
	tenant(t, server, connect(t, stream.Options{Server: server}))
}

// TestATenantCannotFillAStockServer, on which a provisioner makes room with the rights that
// it has.
func TestATenantCannotFillAStockServer(t *testing.T) {
	address := stockOf(t, 96<<20)
	limit := connect(t, stream.Options{URL: as("provisioner", address)}).StoreLimit(96 << 20)
	ended := make(chan error, 1)
	go func() { ended <- limit.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	tenant(t, limit, connect(t, stream.Options{URL: as("millrace", address)}))
}

// TestATenantCannotFillOneOfACluster: the store of one server is smaller than those of the
// others, and that one does not lead the tenant's log.
func TestATenantCannotFillOneOfACluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "accounts.conf")
	accounts := "accounts { MILLRACE { jetstream: enabled, users: [ { user: all, password: all } ] } }"
	if err := os.WriteFile(file, []byte(accounts), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	for i := range c.servers {
		options := c.options(i)
		if options.Accounts, options.MaxStore = file, 1<<30; i == 2 {
			options.MaxStore = 96 << 20
		}
		c.servers[i] = serve(t, options)
	}
	c.await()
	urls := strings.ReplaceAll(c.urls(), "//", "//all:all@")
	b, js, log := connect(t, stream.Options{URL: urls, Replicas: 3}), admin(t, urls), subject.LogStream("configmaps")
	if err := b.EnsureKind(t.Context(), kinds.ConfigMaps.Kind); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log is led by a server with a larger store", func() bool {
		s, err := js.Stream(t.Context(), log)
		if err != nil {
			return false
		}
		if leader := s.CachedInfo().Cluster.Leader; leader != "" && leader != "server-2" {
			return true
		}
		_, _ = js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+log, nil, time.Second)
		return false
	})
	if err := flood(t.Context(), b, kinds.ConfigMaps.Name, 200); err != nil {
		t.Error(err)
	}
	if gathered(t, c.servers[2], "millrace_bus_store_cuts_total") == 0 {
		t.Error("the server whose store is scarce has not bounded the log")
	}
	eventually(t, "its store has room again", func() bool {
		return gathered(t, c.servers[2], "millrace_bus_store_bytes") < 0.8*96*(1<<20)
	})
}

// TestTheStoreDoesNotShrinkWithEachStart: what the streams have counts as theirs.
func TestTheStoreDoesNotShrinkWithEachStart(t *testing.T) {
	const stored = 100 << 20
	dir := t.TempDir()
	free := freeOn(t, dir)
	server := serve(t, embedded.Options{Dir: dir})
	before := gathered(t, server, "millrace_bus_store_limit_bytes")
	b := connect(t, stream.Options{Server: server})
	if err := errors.Join(b.EnsureKind(t.Context(), kinds.Pods.Kind), flood(t.Context(), b, kinds.Pods.Name, stored>>20), b.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	after := gathered(t, serve(t, embedded.Options{Dir: dir}), "millrace_bus_store_limit_bytes")
	// It is three quarters of what is free, and others write to the disk, too.
	if written := free - freeOn(t, dir); before-after > (written-stored/2)*3/4 {
		t.Errorf("the store may hold %.0f MiB less than before, of %.0f MiB that were written to the disk", (before-after)/(1<<20), written/(1<<20))
	}
}

// freeOn is how many bytes are free on the disk of a directory.
func freeOn(t *testing.T, dir string) float64 {
	t.Helper()
	var at syscall.Statfs_t
	if err := syscall.Statfs(dir, &at); err != nil {
		t.Fatal(err)
	}
	return float64(at.Bavail) * float64(at.Bsize)
}

// gathered is the value of a metric of a server, or of what keeps room on one.
func gathered(t *testing.T, s prometheus.Collector, name string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if m := f.GetMetric()[0]; f.GetName() == name {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}
