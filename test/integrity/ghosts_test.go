package integrity_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ghosts are deleted pods whose tombstones have expired. Only the index of the bus knows that
// their last changes are gone.
const ghosts = 50

// TestGhosts: the tombstones of pods have expired from the log and from the state when the
// machine stops, and the index of the bus was not written. Then the state has all of those pods
// as if they existed. No reconciler may decide on that, and the watcher has to say again that
// they are gone.
func TestGhosts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		late bool // the watcher comes back after the reconcilers
		mute bool // the watcher had been away, and its last marks have expired too
	}{
		"with a watcher":                 {},
		"the reconcilers come first":     {late: true},
		"a watcher that had been silent": {mute: true},
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

// haunt returns a store in which deleted pods exist again.
func (w *world) haunt(mute bool) {
	w.Helper()
	w.age = 5 * time.Second
	w.open()
	stop := w.watch()
	state := subject.StateStream("pods")
	change := func(times int) {
		for i := range times * ghosts {
			w.api.put(podName(100+i%ghosts), fmt.Sprint("node-", i))
		}
	}
	change(1)
	w.eventually("the pods are told", func() bool { return w.shows(state, 5+ghosts, events.Is) })
	change(3)
	for i := range ghosts {
		w.api.remove(podName(100 + i))
	}
	w.eventually("the ends are told", func() bool { return w.shows(state, 5, events.Is) })
	if mute {
		stop()
		w.eventually("marks have expired", func() bool { return w.count(state, events.Mark) == 0 })
	}
	w.eventually("ends have expired", func() bool { return w.shows(state, 5, events.Is, events.Gone) })
	stop()
	w.close() // writes what it holds back; the index is another file
	w.forget()
}

// forget deletes the files that the server wrote about its streams beside the messages
// themselves, as if the machine had stopped before.
func (w *world) forget() {
	w.Helper()
	for _, beside := range []string{"index.db", "thw.db"} { // the index, and when what expires
		found, err := filepath.Glob(filepath.Join(w.store, "jetstream", "*", "streams", "*", "msgs", beside))
		if err != nil {
			w.Fatal(err)
		}
		for _, file := range found {
			if err := os.Remove(file); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// lengthen keeps messages from now on for a day, so that the repairs can be counted at leisure.
func (w *world) lengthen() {
	w.Helper()
	w.adjust(subject.LogStream("pods"), func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = 24*time.Hour, 10*time.Second })
	w.age = 0
}

// shows tells whether a stream has so many messages of some kinds at one moment: a reader would
// miss messages that are replaced while it reads.
func (w *world) shows(stream string, n int, ops ...events.Op) bool {
	w.Helper()
	all, next := w.readFrom(stream, 1)
	for _, m := range all {
		if slices.Contains(ops, events.Op(m.Get(events.HeaderOp))) {
			n--
		}
	}
	_, after := w.readFrom(stream, next)
	return n == 0 && after == next
}

// count is how many messages with an operation a stream has.
func (w *world) count(stream string, op events.Op) (n int) {
	w.Helper()
	for _, m := range w.read(stream) {
		if m.Get(events.HeaderOp) == string(op) {
			n++
		}
	}
	return n
}
