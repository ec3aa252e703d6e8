package integrity_test

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestDamagedState: while the bus is down, one bit is flipped in the last message of a live
// object in the state. The bus silently omits the message. (F13)
func TestDamagedState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 50)
	w.open()
	w.past()
	w.close()
	flip(t, blocks(t, w.store, "STATE_pods"), "node-of-7-")
	w.open()
	w.watch()
	w.decide()
	w.settle()
	w.truthful()
	w.told("the state has 49 objects")
}

// past waits until everything is recorded and seen, and stops watcher and controller.
func (w *world) past() {
	w.Helper()
	stop := w.watch()
	quit := w.decide()
	w.settle()
	quit()
	stop()
	w.views()
}

// TestDamagedStateBehindTheWatcher: the same, with a watcher that has counted all along and
// does not read the state; the reconcilers detect the damage. (F13)
func TestDamagedStateBehindTheWatcher(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 50)
	w.open()
	w.watch()
	quit := w.decide()
	w.settle()
	quit()
	w.views()
	if err := w.bus.RecreateState(t.Context(), kinds.Pods.Kind); err != nil { // the renewed state is empty
		t.Fatal(err)
	}
	w.decide()
	w.settle()
	w.truthful()
}

// TestWhatEndsWhileTheStateIsMadeAnew: an empty state knows no pod that could have been
// deleted; the log does, and gets a tombstone for each pod that no longer exists. (F15)
func TestWhatEndsWhileTheStateIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 50)
	w.open()
	w.past()
	w.api.remove(podName(7))
	w.api.remove(podName(8))
	if err := w.bus.RecreateState(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	w.watch()
	w.told("the state stream has been made anew")
	w.decide()
	w.settle()
	w.truthful()
	for _, name := range []string{subject.LogStream("pods"), subject.StateStream("pods")} {
		if said := difference(w.lives(name), w.api.versions()); said != "" {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// lives are the versions of all pods that exist according to a stream, by name.
func (w *world) lives(stream string) map[string]string {
	there := map[string]string{}
	for _, m := range w.read(stream) {
		ref, err := subject.ParseDelta(m.Subject)
		if err != nil {
			w.Fatal(err)
		}
		switch d, err := events.DecodeDelta(ref, m); {
		case err != nil:
			w.Fatal(err)
		case d.Op == events.Is:
			there[ref.Name] = d.ResourceVersion
		case d.Op == events.Gone:
			delete(there, ref.Name)
		}
	}
	return there
}

// TestStreamsThatAreMadeAnew, empty, while watcher and reconcilers use them. (F15)
func TestStreamsThatAreMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 50)
	w.open()
	w.watch()
	w.decide()
	w.settle()
	w.views()
	if err := w.bus.DeleteKind(t.Context(), kinds.Pods.Name); err != nil {
		t.Fatal(err)
	}
	if err := w.bus.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	w.eventually("the log is whole again", func() bool {
		at, err := w.bus.StreamState(t.Context(), subject.StateStream("pods"))
		return err == nil && at.Messages == 51
	})
	w.told("the log was made anew")
	w.settle()
	w.api.put("one-more", "")
	w.eventually("work goes on", func() bool {
		for _, view := range w.views() {
			if len(view) == 51 {
				return true
			}
			if len(view) != 50 {
				t.Fatalf("the controller was shown %d pods", len(view))
			}
		}
		return false
	})
}

// TestBlocksThatCannotBeRead: the bus omits the damaged messages of a block. It stops at a
// compressed block that it cannot decompress, and reports that only in its log; after a crash
// it does not serve the stream at all. (F13)
func TestBlocksThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, stream  string
		packed, crash bool // an earlier version compressed the state
		says          string
		holes         int // in the log, for a reader of all of it
	}{
		{"of the state", subject.StateStream("pods"), false, false, "the state has", 0},
		{"of the state, after a crash", subject.StateStream("pods"), false, true, "the state has", 0},
		{"of a packed state", subject.StateStream("pods"), true, false, "does not deliver them", 0},
		{"of the log, after a crash", subject.LogStream("pods"), false, true, "", 1},
		{"of a packed state, after a crash", subject.StateStream("pods"), true, true, "the state has", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 0)
			w.open() // and cleanly closed once, so that there is an index from then
			if tc.packed {
				w.pack()
			}
			w.close()
			w.fill()
			w.open()
			stop := w.watch()
			quit := w.decide()
			w.settle()
			image := w.image()
			quit()
			stop()
			w.close()
			w.views()
			if tc.crash {
				w.store = image
			}
			files := blocks(t, w.store, tc.stream)
			if len(files) < 3 {
				t.Fatalf("%s has %d blocks; only whole ones are packed, and the last one is the server's to mend", tc.stream, len(files))
			}
			data, err := os.ReadFile(files[1])
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 4
			if err := os.WriteFile(files[1], data, 0o600); err != nil {
				t.Fatal(err)
			}
			w.open()
			w.watch()
			w.decide()
			w.settle()
			w.truthful()
			w.told(tc.says)
			if holes := len(w.holes()); holes != tc.holes {
				t.Errorf("the log has %d holes, want %d", holes, tc.holes)
			}
		})
	}
}

// TestALogThatIsSetAside: the bus cannot read a log at all. A new log begins, and continues in
// the epoch of the state. (F13)
func TestALogThatIsSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20)
	w.open()
	stop := w.watch()
	quit := w.decide()
	w.settle()
	quit()
	stop()
	w.api.restored()
	stop = w.watch()
	w.told("history is not the one that was watched")
	stop()
	w.close()
	w.views()
	meta := filepath.Join(filepath.Dir(filepath.Dir(blocks(t, w.store, "EV_pods")[0])), "meta.inf")
	if err := os.Truncate(meta, 10); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.watch()
	w.decide()
	w.settle()
	w.truthful()
	w.told("the log is not there any more")
	log := w.read(subject.LogStream("pods"))
	if epoch := log[len(log)-1].Get(events.HeaderEpoch); epoch != "1" {
		t.Errorf("the new log is in epoch %q, and the state was in epoch 1", epoch)
	}
	if kept, err := filepath.Glob(filepath.Join(w.store, "damaged", "EV_pods-*")); err != nil || len(kept) != 1 {
		t.Errorf("set aside are %v, %v", kept, err)
	}
}

// fill creates pods of 128 KB of incompressible data, more than fit into two blocks.
func (w *world) fill() {
	for i := range 150 {
		noise := make([]byte, 64<<10)
		_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(noise)
		w.api.put(podName(i), hex.EncodeToString(noise))
	}
}

// told waits until a gap gives a reason, if one is expected.
func (w *world) told(reason string) {
	w.Helper()
	if reason == "" {
		return
	}
	var holes []string
	next := uint64(1)
	w.eventually("a gap says that "+reason, func() bool {
		holes, next = w.gaps(next)
		return strings.Contains(strings.Join(holes, "\n"), reason)
	})
}

// flip flips a bit of a text at its last place in some blocks.
func flip(t *testing.T, files []string, text string) {
	t.Helper()
	for i := len(files) - 1; i >= 0; i-- {
		data, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.LastIndex(data, []byte(text)); at >= 0 {
			data[at] ^= 4
			if err := os.WriteFile(files[i], data, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no block has %q", text)
}
