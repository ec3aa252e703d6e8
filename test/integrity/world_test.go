package integrity_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/watcher"
)

// patience bounds the wait for what must happen, on a slow disk too. The benchmarks measure how
// soon it happens, not these tests.
const patience = time.Minute

// world is an API server, and a bus with its files. The test starts and stops the processes
// that use them.
type world struct {
	*testing.T
	api   *api
	store string
	limit int64 // of each log, in bytes; 0: none
	// listen is the address of the bus once the services have to outlive it; empty: any address,
	// and the services are connected within the process.
	listen string

	server *embedded.Server
	bus    *stream.Bus
	log    []events.Message // the log, as the past has left it
	keys   sign.Provided    // of a secured world

	mu    sync.Mutex
	shown []map[string]string // the controller's views, as versions by name
}

func newWorld(t *testing.T, pods int) *world {
	w := &world{T: t, api: newAPI(t), store: t.TempDir()}
	for i := range pods {
		w.api.put(podName(i), fmt.Sprintf("node-of-%d-", i)+strings.Repeat("x", 300))
	}
	return w
}

// open starts the bus on its files.
func (w *world) open() {
	w.Helper()
	var err error
	// Never synced, and so never compacted: the disk has exactly what was written.
	if w.server, err = embedded.Serve(embedded.Options{
		Dir: w.store, Listen: cmp.Or(w.listen, "127.0.0.1:0"), SyncInterval: time.Hour, StartTimeout: patience, StopTimeout: patience,
	}); err != nil {
		w.Fatal(err)
	}
	w.bus = w.connect("test", patience)
}

// outlive has the services that start from now on outlive the bus.
func (w *world) outlive() { w.listen = strings.TrimPrefix(w.server.URL(), "nats://") }

// connect returns a connection whose requests have this time-out; 0: that of a service.
func (w *world) connect(name string, timeout time.Duration) *stream.Bus {
	w.Helper()
	o := stream.Options{Server: w.server, Name: name, LogBytes: w.limit, Timeout: timeout}
	if w.listen != "" {
		o.Server, o.URL = nil, w.server.URL()
	}
	b, err := stream.Connect(w.Context(), o)
	if err != nil {
		w.Fatal(err)
	}
	return b
}

func (w *world) close() {
	w.Helper()
	_ = w.bus.Close()
	if err := w.server.Close(); err != nil {
		w.Fatal(err)
	}
}

// restart stops the bus, or crashes it, damages its files, and starts it again.
func (w *world) restart(crash bool, damage func(store string)) {
	w.Helper()
	store := w.store
	if crash {
		store = w.image()
	}
	w.close()
	damage(store)
	w.store = store
	w.open()
}

// watch runs a watcher until stop is called.
func (w *world) watch() (stop func()) {
	w.Helper()
	b := w.connect("watcher", 0)
	s, err := watcher.New(watcher.Config{REST: &rest.Config{Host: w.api.URL}, Bus: b, Kinds: []kinds.Kind{kinds.Pods.Kind}, ID: "watcher"})
	if err != nil {
		w.Fatal(err)
	}
	return servicetest.Run(w, "watcher", s.Run, b)
}

// decide runs reconcilers until stop is called.
func (w *world) decide() (stop func()) {
	w.Helper()
	b := w.connect("reconcilers", 0)
	s, err := reconcilers.New(reconcilers.Config{Bus: b, Controllers: []reconcile.Any{w.clerk()}})
	if err != nil {
		w.Fatal(err)
	}
	return servicetest.Run(w, "reconcilers", s.Run, b)
}

// clerk is the controller that records its views.
func (w *world) clerk() reconcile.Any {
	return reconcile.Controller[map[string]string]{
		Name: "clerk", Queue: "clerk",
		Inputs: []reconcile.Input{{Kind: kinds.Pods.Kind, Keys: func(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
			return []events.Key{{Name: "default"}}
		}}},
		Observe: func(s reconcile.Snapshot, _ events.Key) (map[string]string, bool) {
			all := map[string]string{}
			for _, p := range s.List(kinds.Pods.Name, "default") {
				all[p.GetName()] = p.GetResourceVersion()
			}
			return all, true
		},
		Decide: func(all map[string]string, _ time.Time) reconcile.Decision {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.shown = append(w.shown, all)
			return reconcile.Nothing("written down")
		},
	}
}

// views are the controller's views since the last call.
func (w *world) views() []map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	views := w.shown
	w.shown = nil
	return views
}

// settle waits until the controller's view is the real state.
func (w *world) settle() {
	w.Helper()
	eventually.True(w, patience, "the controller is shown what there is", w.settled)
}

func (w *world) settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.shown) > 0 && maps.Equal(w.shown[len(w.shown)-1], w.api.versions())
}

// truthful fails the test if a view of the controller differed from the real state while
// nothing changed.
func (w *world) truthful() {
	w.Helper()
	want := w.api.versions()
	for i, view := range w.views() {
		if !maps.Equal(view, want) {
			w.Errorf("view %d has %d pods, and the API server has %d: %s", i, len(view), len(want), difference(view, want))
		}
	}
}

func difference(have, want map[string]string) string {
	var text []string
	for name, version := range want {
		if have[name] != version {
			text = append(text, fmt.Sprintf("%s is at %q and not %q", name, have[name], version))
		}
	}
	for name := range have {
		if want[name] == "" {
			text = append(text, name+" is there")
		}
	}
	slices.Sort(text)
	return strings.Join(text[:min(3, len(text))], ", ")
}

// gaps are the bodies of the log's gaps from a sequence on, and next is the sequence at which
// to go on.
func (w *world) gaps(from uint64) (holes []string, next uint64) {
	w.Helper()
	log, next := w.readFrom(subject.LogStream("pods"), from)
	for _, m := range log {
		if m.Get(events.HeaderOp) == string(events.Gap) {
			holes = append(holes, string(m.Data))
		}
	}
	return holes, next
}

// read is all readable messages of a stream; none if it does not exist.
func (w *world) read(name string) []events.Message {
	w.Helper()
	all, _ := w.readFrom(name, 1)
	return all
}

// readFrom is the readable messages of a stream from a sequence on, and the sequence at which
// to go on. It reads a stream again that was recreated meanwhile.
func (w *world) readFrom(name string, from uint64) (all []events.Message, next uint64) {
	w.Helper()
	eventually.True(w, patience, "stream "+name+" can be read", func() bool {
		var err error
		all, next, err = w.try(name, from)
		if err != nil && !errors.Is(err, bus.ErrNoStream) {
			w.Logf("once more: %v", err)
		}
		return err == nil
	})
	return all, next
}

func (w *world) try(name string, from uint64) (all []events.Message, next uint64, err error) {
	at, err := w.bus.StreamState(w.Context(), name)
	if errors.Is(err, bus.ErrNoStream) {
		return nil, 1, nil
	}
	if err != nil {
		return nil, from, err
	}
	if from > at.Last+1 {
		from = 1
	}
	for sequence := max(at.First, from); sequence <= at.Last; sequence++ {
		m, there, err := w.bus.At(w.Context(), name, sequence)
		if err != nil {
			return nil, from, err
		}
		if there {
			all = append(all, m)
		}
	}
	return all, at.Last + 1, nil
}

// blocks are the files with the messages of a stream, oldest first.
func blocks(t *testing.T, store, name string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(store, "jetstream", "*", "streams", name, "msgs", "*.blk"))
	if err != nil || len(found) == 0 {
		t.Fatalf("the stream %s has the block files %v, %v; want some", name, found, err)
	}
	slices.SortFunc(found, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return found
}

// image is the content of the disk if the machine stopped now.
func (w *world) image() string {
	w.Helper()
	dir := w.TempDir()
	// Files come and go while they are copied.
	eventually.True(w, patience, "the store is copied", func() bool {
		return os.RemoveAll(dir) == nil && os.CopyFS(dir, os.DirFS(w.store)) == nil
	})
	return dir
}
