package integrity_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// bitsTurned is how many bits of the files are flipped, one at a time, each before a start of
// the bus. (The tests of package events flip 10,000 bits of messages.)
const bitsTurned = 60

// TestBitsOfTheFiles flips random bits in the files of the log, as a clean stop and a crash have left
// them, and then starts the bus and reads it: no changed message may pass for the stored one, no
// message may be missing without a trace, and a reader that begins where the newest mark says has
// what existed, or finds that it has not. (F13)
func TestBitsOfTheFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 40)
	w.open()
	stop := w.watch()
	log := subject.LogStream("pods")
	eventually.True(w, patience, "the pods are told", func() bool { return len(w.read(log)) >= 41 })
	for i := range 60 {
		w.api.put(podName(i%20), fmt.Sprint("node-", i))
	}
	w.api.remove(podName(39))
	eventually.True(w, patience, "the changes are told", func() bool {
		at, err := w.bus.StreamState(t.Context(), log)
		return err == nil && at.Last >= 41+61
	})
	stop()
	truth := w.read(log)
	exists := w.api.versions()
	crashed := w.image()
	w.close()
	for name, store := range map[string]string{"stopped": w.store, "crashed": crashed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdicts := map[string]int{}
			for range bitsTurned {
				verdicts[turned(t, store, truth, exists)]++
			}
			t.Logf("%d bits: %v", bitsTurned, verdicts)
			if verdicts["found"]+verdicts["refused"] == 0 {
				t.Errorf("of %d flipped bits none was found or refused, want some: the test flipped the wrong ones", bitsTurned)
			}
		})
	}
}

// turned flips one bit in a copy of a store, and returns the result.
func turned(t *testing.T, store string, truth []events.Message, exists map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "store")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	where := turnOne(t, dir)
	server, err := embedded.Serve(embedded.Options{Dir: dir})
	if err != nil {
		return "refused"
	}
	defer server.Close()
	b, err := stream.Connect(t.Context(), stream.Options{Server: server, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	w := &world{T: t, bus: b}
	found, err := examine(w, truth)
	if err != nil {
		t.Errorf("%s: read the damaged log: %v", where, err)
	}
	there, err := w.start()
	switch {
	case errors.Is(err, events.ErrDamaged), errors.Is(err, bus.ErrNoStream): // or the log was set aside
		found = true
	case err != nil:
		t.Errorf("%s: a reader that starts ends with %v, want ErrDamaged or ErrNoStream", where, err)
	case !maps.Equal(there, exists) && !short(w, truth):
		t.Errorf("%s: a reader that starts does not notice that %s", where, difference(there, exists))
	}
	if found {
		return "found"
	}
	return "harmless"
}

// short reports whether the log has lost its end, which a reader that starts cannot notice.
func short(w *world, want []events.Message) bool {
	log := w.read(subject.LogStream("pods"))
	return len(log) == 0 || log[len(log)-1].Sequence < want[len(want)-1].Sequence
}

// turnOne flips a bit of a file of the log.
func turnOne(t *testing.T, dir string) string {
	t.Helper()
	var files []string
	var ends []int64
	var total int64
	err := filepath.WalkDir(filepath.Join(dir, "jetstream"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
			files, ends = append(files, path), append(ends, total)
		}
		return err
	})
	if err != nil || total == 0 {
		t.Fatalf("the stored log has %d bytes in the files %v: %v; want some", total, files, err)
	}
	at := rand.Int64N(total)
	i, _ := slices.BinarySearch(ends, at+1)
	data, err := os.ReadFile(files[i])
	if err != nil {
		t.Fatal(err)
	}
	at -= ends[i] - int64(len(data))
	bit := rand.IntN(8)
	data[at] ^= 1 << bit
	if err := os.WriteFile(files[i], data, 0o600); err != nil {
		t.Fatal(err)
	}
	rel, _ := filepath.Rel(dir, files[i])
	return fmt.Sprintf("bit %d of byte %d of %s", bit, at, rel)
}

// examine reads the log and reports whether a reader would find damage. Damage that a reader would not
// find is an error.
func examine(w *world, want []events.Message) (found bool, err error) {
	stored, needed := map[uint64]events.Message{}, map[uint64]bool{}
	for _, m := range want {
		if events.Op(m.Get(events.HeaderOp)) != events.Mark { // marks expire: without one the log is complete
			needed[m.Sequence] = true
		}
		stored[m.Sequence] = m
	}
	var chain events.Chain
	last := uint64(0)
	for _, m := range w.read(subject.LogStream("pods")) {
		if errors.Is(events.Verify(m), events.ErrDamaged) {
			found = true
			continue
		}
		was := stored[m.Sequence]
		if m.Subject != was.Subject || !bytes.Equal(m.Data, was.Data) || !maps.EqualFunc(m.Header, was.Header, slices.Equal) {
			return found, fmt.Errorf("message %d differs from the one that was stored, and its sums are right", m.Sequence)
		}
		delete(needed, m.Sequence)
		ref, err := subject.ParseDelta(m.Subject)
		if err != nil {
			return found, err
		}
		d, err := events.DecodeDelta(ref, m)
		if err != nil {
			return found, err
		}
		last = m.Sequence
		if _, ok := chain.Next(m, d); !ok {
			found = true
		}
	}
	found = found || last < want[len(want)-1].Sequence
	if len(needed) > 0 && !found && !headOnly(needed, want) {
		return found, fmt.Errorf("%d messages are missing, and no reader notices", len(needed))
	}
	return found, nil
}

// headOnly reports whether only the beginning of a log is missing, as if it had expired.
func headOnly(missing map[uint64]bool, want []events.Message) bool {
	for _, m := range want {
		if len(missing) == 0 {
			return true
		}
		if !missing[m.Sequence] && m.Get(events.HeaderOp) != string(events.Mark) {
			return false
		}
		delete(missing, m.Sequence)
	}
	return len(missing) == 0
}
