package integrity_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestDamagedMessage: while the bus is down, one bit is flipped in a message of the log that a reader
// needs. The bus silently omits the message. If it was the last one, the log is shorter, and only a
// process that has seen the end notices; the API server still has what is missing. (F13)
func TestDamagedMessage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		which func(log []events.Message) events.Message
		says  string
		stale bool // the controller may be shown what was lost behind the log's end
	}{
		{"the first object", func(log []events.Message) events.Message { return unchanged(log) }, "the log tells of 49 objects", false},
		{"in the middle", func(log []events.Message) events.Message { return unchanged(log[len(log)/2:]) }, "the log tells of 49 objects", false},
		{"the newest mark", func(log []events.Message) events.Message { return newest(log, events.Mark) }, "the last mark of the log is damaged or missing", false},
		{"the newest object", func(log []events.Message) events.Message { return newest(log, events.Is) }, "", true},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(tc.name+map[bool]string{true: ", after a crash"}[crash], func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 50)
				w.open()
				w.past()
				w.restart(crash, func(store string) { flip(t, blocks(t, store, "EV_pods"), tc.which(w.log)) })
				w.watch()
				w.decide()
				w.settle()
				w.told(tc.says)
				w.whole()
				if !tc.stale {
					w.truthful()
				}
				w.goesOn()
			})
		}
	}
}

// TestDamageBehindTheWatcher: the watcher outlives the bus. It has counted all along, so it does not
// read the log. Reconcilers that start find the damage, and ask for the repair. (F13)
func TestDamageBehindTheWatcher(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]func(log []events.Message) events.Message{
		"the first object": unchanged,
		"in the middle":    func(log []events.Message) events.Message { return unchanged(log[len(log)/2:]) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 50)
			w.open()
			w.outlive()
			w.watch()
			w.sees()()
			w.restart(false, func(store string) { flip(t, blocks(t, store, "EV_pods"), which(w.log)) })
			w.decide()
			w.settle()
			w.told("a reader found that")
			w.whole()
			w.truthful()
			w.goesOn()
		})
	}
}

// unchanged is the first message about a pod that does not change in the past.
func unchanged(log []events.Message) events.Message {
	i := slices.IndexFunc(log, func(m events.Message) bool {
		ref, err := subject.ParseDelta(m.Subject)
		return err == nil && ref.Name != "" && ref.Name != podName(3)
	})
	return log[i]
}

// newest is the last message with an operation.
func newest(log []events.Message, op events.Op) events.Message {
	for _, m := range slices.Backward(log) {
		if m.Get(events.HeaderOp) == string(op) {
			return m
		}
	}
	return events.Message{}
}

// past waits until everything is recorded and seen, and stops watcher and controller.
func (w *world) past() {
	w.Helper()
	stop := w.watch()
	quit := w.sees()
	quit()
	stop()
}

// sees waits until a controller has seen everything, and a change, and keeps the log as it is then.
func (w *world) sees() (quit func()) {
	w.Helper()
	quit = w.decide()
	w.settle()
	w.api.put(podName(3), "changed")
	w.settle()
	w.views()
	w.log = w.read(subject.LogStream("pods"))
	return quit
}

// goesOn changes a pod, and waits until the controller is shown that.
func (w *world) goesOn() {
	w.Helper()
	w.api.put(podName(4), "goes-on")
	w.settle()
}

// TestALogThatIsMadeAnew: the log is deleted, and maybe another one begins, empty. What exists is
// recorded from its first message on, and nothing else. (F15)
func TestALogThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name              string
		watched, read, on bool // behind a watcher, behind reconcilers; the log is there at once
	}{
		{"deleted behind both", true, true, false},
		{"emptied behind both", true, true, true},
		{"emptied behind the watcher", true, false, true},
		{"deleted behind the reconcilers", false, true, false},
		{"emptied behind the reconcilers", false, true, true},
		{"deleted while no service runs", false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 50)
			w.open()
			stop := w.watch()
			quit := w.sees()
			if !tc.read {
				quit()
			}
			if !tc.watched {
				stop()
				w.api.remove(podName(7))
				w.api.remove(podName(8))
			}
			w.makeAnew(tc.on)
			says := "the log was made anew"
			if !tc.watched { // no service knows that there was another log
				says = ""
				w.watch()
			}
			w.told(says)
			if !tc.read {
				w.decide()
			}
			w.settle()
			w.whole()
			w.truthful()
			if log := w.read(subject.LogStream("pods")); log[0].Sequence != 1 {
				t.Errorf("the log begins with message %d, want 1", log[0].Sequence)
			}
			w.goesOn()
		})
	}
}

// makeAnew deletes the log, and has another one begin.
func (w *world) makeAnew(another bool) {
	w.Helper()
	if err := w.bus.DeleteKind(w.Context(), kinds.Pods.Name); err != nil {
		w.Fatal(err)
	}
	if !another {
		return
	}
	if err := w.bus.EnsureKind(w.Context(), kinds.Pods.Kind); err != nil {
		w.Fatal(err)
	}
}

// TestALogWhoseFilesAreEmpty: the files with the messages are empty, or gone, when the bus starts. Its
// index, which a crash leaves unwritten, still has the number of the last message.
func TestALogWhoseFilesAreEmpty(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		empty      func(file string) error
		run, crash bool // run: the services outlive the bus
		says       string
	}{
		{"empty behind the services", empty, true, false, "the end of the log is not there any more"},
		{"empty behind the services, after a crash", empty, true, true, "the log has lost its end"},
		{"gone behind the services", os.Remove, true, false, "the end of the log is not there any more"},
		{"gone behind the services, after a crash", os.Remove, true, true, "the log has lost its end"},
		{"empty", empty, false, false, "the end of the log is not there any more"},
		{"empty, after a crash", empty, false, true, ""}, // as if there had never been a message
		{"gone", os.Remove, false, false, "the end of the log is not there any more"},
		{"gone, after a crash", os.Remove, false, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 50)
			w.open()
			w.outlive()
			stop := w.watch()
			quit := w.sees()
			if !tc.run {
				quit()
				stop()
			}
			w.restart(tc.crash, func(store string) {
				for _, file := range blocks(t, store, "EV_pods") {
					if err := tc.empty(file); err != nil {
						t.Fatal(err)
					}
				}
			})
			if !tc.run {
				w.watch()
				w.decide()
				w.settle()
			}
			w.told(tc.says)
			w.whole()
			w.goesOn()
			w.neverFewer(50)
		})
	}
}

func empty(file string) error { return os.Truncate(file, 0) }

// neverFewer fails the test if the controller was shown fewer pods.
func (w *world) neverFewer(pods int) {
	w.Helper()
	for _, view := range w.views() {
		if len(view) < pods {
			w.Errorf("the controller got a view with %d pods, want at least %d", len(view), pods)
		}
	}
}

// TestBlocksThatCannotBeRead: the bus omits the damaged messages of a block. It stops at a
// compressed block that it cannot decompress, and reports that only in its log; after a crash
// it sets the block aside. (F13)
func TestBlocksThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                 string
		packed, crash, watch bool // watch: the watcher outlives the bus
		says                 string
	}{
		{"not packed", false, false, false, "the log tells of"},
		{"not packed, after a crash", false, true, false, "the log tells of"},
		{"packed", true, false, false, "a part of the log cannot be read"},
		{"packed, after a crash", true, true, false, "the log tells of"},
		{"packed, behind a watcher", true, false, true, "a part of the log cannot be read"},
		{"packed, behind a watcher, after a crash", true, true, true, "a reader found that"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 0)
			w.open() // and cleanly closed once, so that there is an index from then
			if !tc.packed {
				w.unpack()
			}
			w.close()
			w.fill()
			w.open()
			w.outlive()
			stop := w.watch()
			w.sees()()
			if !tc.watch {
				stop()
			}
			w.restart(tc.crash, func(store string) { turnBlock(t, store) })
			if !tc.watch {
				w.watch()
			}
			w.decide()
			w.settle()
			w.told(tc.says)
			w.whole()
			w.truthful()
			if holes, _ := w.gaps(1); len(holes) != 1 {
				t.Errorf("the log was repaired %d times, want once: %q", len(holes), holes)
			}
			w.goesOn()
		})
	}
}

// turnBlock flips a bit in the middle of the second block of the log: only whole blocks are packed,
// and the last one is the server's to mend.
func turnBlock(t *testing.T, store string) {
	t.Helper()
	files := blocks(t, store, "EV_pods")
	if len(files) < 3 {
		t.Fatalf("the log has %d blocks, want at least 3", len(files))
	}
	data, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(files[1], data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestALogThatIsSetAside: the bus cannot read a log at all. A new log begins, and continues in
// the epoch that the watcher knows. (F13)
func TestALogThatIsSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20)
	w.open()
	stop := w.watch()
	w.sees()()
	stop()
	w.api.restored()
	w.outlive()
	w.watch()
	w.told("history is not the one that was watched")
	w.restart(false, func(store string) {
		meta := filepath.Join(filepath.Dir(filepath.Dir(blocks(t, store, "EV_pods")[0])), "meta.inf")
		if err := os.Truncate(meta, 10); err != nil {
			t.Fatal(err)
		}
	})
	w.decide()
	w.settle()
	w.told("the log was made anew")
	w.whole()
	w.truthful()
	log := w.read(subject.LogStream("pods"))
	if epoch := log[len(log)-1].Get(events.HeaderEpoch); epoch != "1" {
		t.Errorf("the new log is in epoch %q, want 1, as the old one", epoch)
	}
	if kept, err := filepath.Glob(filepath.Join(w.store, "damaged", "EV_pods-*")); err != nil || len(kept) != 1 {
		t.Errorf("of the damaged log are set aside %v, %v; want one file", kept, err)
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
	eventually.True(w, patience, "a gap says that "+reason, func() bool {
		holes, next = w.gaps(next)
		return strings.Contains(strings.Join(holes, "\n"), reason)
	})
}

// whole waits until a reader that begins where the newest mark says finds everything that exists, and
// the census of the last message agrees.
func (w *world) whole() {
	w.Helper()
	eventually.True(w, patience, "a reader that starts finds what exists", func() bool {
		there, err := w.start()
		return err == nil && maps.Equal(there, w.api.versions())
	})
}

// start reads the log as a reader that starts does. It returns the versions of the pods that exist, by
// name.
//
// Errors: events.ErrDamaged, when the reader would notice that they are others.
func (w *world) start() (there map[string]string, err error) {
	w.Helper()
	since, err := bus.RecordedSince(w.Context(), w.bus, "pods")
	if err != nil {
		return nil, err
	}
	log, _ := w.readFrom(subject.LogStream("pods"), since)
	there = map[string]string{}
	var tally events.Tally
	var census events.Census
	for _, m := range log {
		ref, err := subject.ParseDelta(m.Subject)
		if err != nil {
			w.Fatal(err)
		}
		d, err := events.DecodeDelta(ref, m)
		if err != nil {
			return nil, err
		}
		tally.Fold(d)
		census = d.Census
		switch d.Op {
		case events.Is:
			there[ref.Name] = d.ResourceVersion
		case events.Gone:
			delete(there, ref.Name)
		case events.Mark, events.Gap:
		}
	}
	if !census.Known || census != tally.Census() {
		return nil, fmt.Errorf("%w: the last message counts %v, and those read are %v", events.ErrDamaged, census, tally.Census())
	}
	return there, nil
}

// flip flips a bit of a message at its last place in some blocks: of its body, or, if it has none, of
// its sum.
func flip(t *testing.T, files []string, m events.Message) {
	t.Helper()
	text := m.Data
	if len(text) == 0 {
		text = []byte(m.Get(events.HeaderSum))
	}
	for i := len(files) - 1; i >= 0; i-- {
		data, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.LastIndex(data, text); at >= 0 {
			data[at+len(text)/2] ^= 4
			if err := os.WriteFile(files[i], data, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no block has message %d", m.Sequence)
}
