package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/stream/port"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// open opens a bus on a NATS server with a store, until close is called.
func open(t *testing.T, dir string) (b bus.Bus, close func()) {
	t.Helper()
	server, err := embedded.Serve(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	b, err = stream.Connect(t.Context(), stream.Options{Server: server, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return b, func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

// logDir is where a store keeps the log of pods.
func logDir(t *testing.T, store string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(store, "jetstream", "*", "streams", "EV_pods"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the log of pods is in %v, %v", found, err)
	}
	return found[0]
}

// TestALogThatALostDiskTookBack: the NATS server restarts with an older log, and another watcher. What
// the log has lost is recorded again.
func TestALogThatALostDiskTookBack(t *testing.T) {
	t.Parallel()
	s, store, backup := watchertest.Serve(t), t.TempDir(), t.TempDir()
	session := func(id string, tell func(b bus.Bus)) {
		b, close := open(t, store)
		defer close()
		_, stop := start(t, s, b, id)
		defer stop()
		tell(b)
	}
	s.PutPod("a", 0)
	session("one", func(b bus.Bus) { watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 2 }) })
	if err := os.CopyFS(backup, os.DirFS(logDir(t, store))); err != nil {
		t.Fatal(err)
	}
	session("two", func(b bus.Bus) {
		watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 2 })
		for i := range 5 {
			s.PutPod(fmt.Sprint("later-", i), 0)
		}
		watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 7 })
	})
	log := logDir(t, store)
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(log, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	s.RemovePod("later-3")
	session("three", func(b bus.Bus) {
		s.PutPod("new", 0)
		watchertest.Until(t, func() bool {
			state := map[string]bool{}
			for _, d := range watchertest.LogOf(t, b) {
				if d.Ref.Name != "" {
					state[d.Ref.Name] = d.Op == events.Is
				}
			}
			return state["new"] && state["a"] && state["later-4"] && !state["later-3"]
		})
	})
}

// TestTheServerOfTheBusRestarts: the NATS server restarts while a watcher uses it, and objects
// change meanwhile.
func TestTheServerOfTheBusRestarts(t *testing.T) {
	t.Parallel()
	s, store := watchertest.Serve(t), t.TempDir()
	address := free(t)
	begin := func() *embedded.Server {
		server, err := embedded.Serve(embedded.Options{Dir: store, Listen: address})
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	server := begin()
	b, err := stream.Connect(t.Context(), stream.Options{URL: "nats://" + address, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	service, stop := start(t, s, b, "one")
	defer stop()
	watching(t, service) // or the list would be begun anew
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a")
	want := []string{"is a"}
	for round := range 3 {
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			s.PutPod("a", 0)
			name := fmt.Sprintf("pod-%d-%d", round, i)
			s.PutPod(name, 0)
			s.RemovePod(name)
			want = append(want, "is a", "is "+name, "gone "+name)
		}
		server = begin()
		watchertest.Eventually(t, b, want...)
	}
	watchertest.Until(t, service.Synced)
	if got := s.Listed(); got != 1 {
		t.Errorf("%d lists, want 1", got)
	}
	stop()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

// free is an address that no server listens on. It stays reserved for the test while its server
// restarts.
func free(t *testing.T) string {
	t.Helper()
	free, err := port.Free()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", free)
}
