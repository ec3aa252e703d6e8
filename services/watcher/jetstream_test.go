package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
)

// open opens a bus on a server with a store, until close is called.
func open(t *testing.T, dir string) (b bus.Bus, close func()) {
	t.Helper()
	server, err := stream.Serve(stream.ServerOptions{Dir: dir})
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

// TestALogThatALostDiskTookBack: the server comes back with an older log beside
// a newer state. What is stored from then on must reach the state.
func TestALogThatALostDiskTookBack(t *testing.T) {
	s, store, backup := serve(t), t.TempDir(), t.TempDir()
	session := func(id string, tell func(b bus.Bus)) {
		b, close := open(t, store)
		defer close()
		_, stop := start(t, s, b, id)
		defer stop()
		tell(b)
	}
	s.change("ADDED", "a", 0)
	session("one", func(b bus.Bus) { until(t, func() bool { return len(logOf(t, b)) == 2 }) })
	if err := os.CopyFS(backup, os.DirFS(logDir(t, store))); err != nil {
		t.Fatal(err)
	}
	session("two", func(b bus.Bus) {
		until(t, func() bool { return len(logOf(t, b)) == 2 })
		for i := range 5 {
			s.change("ADDED", fmt.Sprint("later-", i), 0)
		}
		until(t, func() bool { return len(logOf(t, b)) == 7 })
	})
	log := logDir(t, store)
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(log, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	s.change("DELETED", "later-3", 0)
	session("three", func(b bus.Bus) {
		s.change("ADDED", "new", 0)
		until(t, func() bool {
			state := map[string]bool{}
			at, err := b.StreamState(t.Context(), "STATE_pods")
			if err != nil {
				t.Fatal(err)
			}
			err = replay(t.Context(), b, "pods", at, func(d events.Delta, _ events.Message) error {
				state[d.Ref.Name] = d.Op == events.Is
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return state["new"] && state["a"] && state["later-4"] && !state["later-3"]
		})
	})
}
