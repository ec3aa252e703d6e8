package integrity_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ghosts are pods that ended, and whose ends have expired. The bus knows from its
// index alone that their last changes are no more.
const ghosts = 50

// TestGhosts: the ends of pods have expired from the log and from the state when the
// machine stops, and the index of the bus was not written down. Then the state
// tells of all of them as if they lived. Nobody may decide on that, and the watcher
// has to say again that they are gone.
func TestGhosts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		late bool // the watcher comes back after the reconcilers
		mute bool // it had been away, and its last marks have expired too
	}{
		"with a watcher":                 {},
		"the reconcilers come first":     {late: true},
		"nobody had said anything since": {mute: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 5)
			w.haunt(tc.mute)
			w.open()
			w.lengthen()
			state, log := subject.StateStream("pods"), subject.LogStream("pods")
			if stand := w.count(state, events.Is); stand != 5+ghosts {
				t.Fatalf("the state tells of %d pods; without %d ghosts this test shows nothing", stand, ghosts)
			}
			if stand := w.count(log, events.Is); stand > 2*5 { // each is said again twice in the age of the log
				t.Errorf("the log tells of pods %d times", stand)
			}
			if !tc.late {
				w.watch()
			}
			w.decide()
			if tc.late {
				w.watch()
			}
			w.eventually("all ghosts are said to be gone", func() bool { return w.count(log, events.Gone) == ghosts })
			w.settle()
			w.truthful()
			w.eventually("the state tells of none of them", func() bool { return w.count(state, events.Is) == 5 })
			if holes, _ := w.gaps(1); len(holes) == 0 {
				t.Error("no gap tells of it")
			}
		})
	}
}

// haunt leaves a store on which pods that ended stand up again.
func (w *world) haunt(mute bool) {
	w.Helper()
	w.age = 5 * time.Second
	w.open()
	stop := w.watch()
	state, store := subject.StateStream("pods"), w.store
	change := func(times int) {
		for i := range times * ghosts {
			w.api.put(podName(100+i%ghosts), fmt.Sprint("node-", i))
		}
	}
	change(1)
	w.eventually("the pods are told", func() bool { return w.count(state, events.Is) == 5+ghosts })
	change(3)
	for i := range ghosts {
		w.api.remove(podName(100 + i))
	}
	w.eventually("the ends are told", func() bool { return w.count(state, events.Is) == 5 })
	if mute {
		stop()
		w.eventually("marks have expired", func() bool { return w.count(state, events.Mark) == 0 })
	}
	w.eventually("ends have expired", func() bool { return w.count(state, events.Gone) == 0 })
	w.eventually("their removal is on the disk", func() bool {
		w.store = w.imageOf(store)
		return w.buried(state)
	})
	stop()
	_ = w.bus.Close()
	if err := w.server.Close(); err != nil {
		w.Fatal(err)
	}
	indexes, err := filepath.Glob(filepath.Join(w.store, "jetstream", "*", "streams", "*", "msgs", "index.db"))
	if err != nil {
		w.Fatal(err)
	}
	for _, index := range indexes { // those that were written in time are out of date
		if err := os.Remove(index); err != nil {
			w.Fatal(err)
		}
	}
}

// buried tells whether the files of a stream say of each end in them that it was
// removed. The server writes that a moment after it answers; an end that is on the
// disk without it expires anew, and no ghost rises.
func (w *world) buried(stream string) bool {
	w.Helper()
	const head, tombstone = 4 + 8 + 8 + 2, uint64(1) << 62
	ends, removed := map[uint64]bool{}, map[uint64]bool{}
	for _, block := range blocks(w.T, w.store, stream) {
		data, err := os.ReadFile(block)
		if err != nil {
			w.Fatal(err)
		}
		for len(data) >= head {
			length := binary.LittleEndian.Uint32(data) &^ (1 << 31)
			if length < head || int(length) > len(data) {
				return false // it was being written
			}
			switch sequence := binary.LittleEndian.Uint64(data[4:]); {
			case sequence&tombstone != 0:
				removed[sequence&^tombstone] = true
			case bytes.Contains(data[:length], []byte(events.HeaderOp+": "+string(events.Gone))):
				ends[sequence] = true
			}
			data = data[length:]
		}
	}
	for sequence := range ends {
		if !removed[sequence] {
			return false
		}
	}
	return len(ends) >= ghosts
}

// lengthen keeps what is said from now on for a day, so that what mends can be
// counted at leisure.
func (w *world) lengthen() {
	w.Helper()
	w.adjust(subject.LogStream("pods"), func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = 24*time.Hour, 10*time.Second })
	w.age = 0
}

// count is how many messages of a kind a stream has.
func (w *world) count(stream string, op events.Op) (n int) {
	w.Helper()
	for _, m := range w.read(stream) {
		if m.Get(events.HeaderOp) == string(op) {
			n++
		}
	}
	return n
}
