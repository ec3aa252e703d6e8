package integrity_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestLostTail: the machine stops while pods change, and the newest messages of the log never reached
// the disk. Services that run know it; those that start cannot, and go on from where the log ends. (F12)
func TestLostTail(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		lost int
		run  bool // the services outlive the bus
		says string
	}{
		{"one behind the services", 1, true, `"the log has lost its end","from":%d,"to":%d`},
		{"many behind the services", 60, true, `"the log has lost its end","from":%d,"to":%d`},
		{"one", 1, false, "has forgotten the changes"},
		{"many", 60, false, "has forgotten the changes"},
		{"of the first list", 110, false, "a relist was not finished"},
		{"of the first list, behind the services", 110, true, `"the log has lost its end","from":%d,"to":%d`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 30)
			w.open()
			w.outlive()
			stop := w.watch()
			quit := w.decide()
			last := w.change()
			if !tc.run {
				quit()
				stop()
			}
			w.restart(true, func(store string) { cut(t, store, "EV_pods", tc.lost) })
			w.views()
			w.api.remove("pod-3")
			w.api.Compact() // a watch cannot return the lost changes any more
			if !tc.run {
				w.watch()
				w.decide()
			}
			w.settle()
			w.sound()
			if tc.run {
				tc.says = fmt.Sprintf(tc.says, last-uint64(tc.lost)+1, last)
			}
			w.told(tc.says)
			w.whole()
			// Stale views are allowed after the loss, wrong ones are not: each pod that was not
			// deleted exists.
			w.neverFewer(29)
			w.goesOn()
		})
	}
}

// change changes each of 30 pods three times, and returns the last message of the log behind that.
func (w *world) change() (last uint64) {
	w.Helper()
	w.settle()
	for i := range 90 {
		w.api.put(podName(i%30), fmt.Sprint("node-", i))
	}
	w.settle()
	eventually.True(w, patience, "the log has all", func() bool {
		log, err := w.bus.StreamState(w.Context(), subject.LogStream("pods"))
		last = log.Last
		return err == nil && last >= 31+90
	})
	return last
}

// sound fails the test unless each message of the log follows the message before which it was
// stored: there are gaps in the place of lost ones.
func (w *world) sound() {
	w.Helper()
	for _, h := range w.holes() {
		w.Errorf("the log lacks messages without a gap in their place: %+v", h)
	}
}

// holes are the holes in the log.
func (w *world) holes() (found []events.Hole) {
	w.Helper()
	var chain events.Chain
	for _, m := range w.read(subject.LogStream("pods")) {
		ref, err := subject.ParseDelta(m.Subject)
		if err != nil {
			w.Fatal(err)
		}
		d, err := events.DecodeDelta(ref, m)
		if err != nil {
			w.Fatal(err)
		}
		if h, ok := chain.Next(m, d); !ok {
			found = append(found, h)
		}
	}
	return found
}

// TestAReaderThatTheLogHasPassed: the log has a bound in bytes, and a reader was away while
// more was stored. The first message whose predecessor the reader lacks reveals the loss. A
// reader that begins where the newest mark says lacks nothing. (F25)
func TestAReaderThatTheLogHasPassed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20)
	w.limit = 100_000
	w.open()
	w.watch()
	w.decide()
	w.settle()
	var chain events.Chain
	var last uint64
	passed := events.Hole{}
	read := func(until uint64) {
		w.Helper()
		err := w.bus.Follow(t.Context(), subject.LogStream("pods"), last+1, func(batch []events.Message) error {
			for _, m := range batch {
				d, err := events.DecodeDelta(events.Ref{Kind: "pods", Namespace: "default", Name: "any"}, m)
				if err != nil {
					return err
				}
				if h, ok := chain.Next(m, d); !ok {
					passed = h
				}
				if last = m.Sequence; last >= until {
					return errEnough
				}
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			t.Fatal(err)
		}
	}
	read(10)
	for i := range 300 {
		w.api.put(podName(i%20), strings.Repeat(fmt.Sprint(i), 500))
	}
	w.settle()
	at, err := w.bus.StreamState(t.Context(), subject.LogStream("pods"))
	if err != nil || at.First < 100 {
		t.Fatalf("the log has the state %+v, %v; want its first 100 messages dropped", at, err)
	}
	read(at.Last)
	if passed.From != 11 || passed.To < 100 {
		t.Errorf("the reader got the gap %+v, want 11 to about %d", passed, at.First)
	}
	w.whole()
	w.neverFewer(20)
}

// TestDeletesBehindACompaction: while no watcher runs, a thousand pods are deleted and the API
// server compacts the history. (F10)
func TestDeletesBehindACompaction(t *testing.T) {
	t.Parallel()
	const pods = 1000
	w := newWorld(t, pods)
	w.open()
	stop := w.watch()
	w.decide()
	w.settle()
	stop()
	for i := range pods {
		w.api.remove(podName(i))
	}
	w.api.Compact()
	w.watch()
	w.settle()
	w.told("has forgotten the changes")
	gone := 0
	for _, m := range w.read(subject.LogStream("pods")) {
		if m.Get(events.HeaderOp) == string(events.Gone) {
			gone++
		}
	}
	if gone != pods {
		t.Errorf("the log has the deletions of %d pods, want %d", gone, pods)
	}
	w.sound()
}

var errEnough = errors.New("enough")

// cut removes the last messages of a stream from its files.
func cut(t *testing.T, store, name string, messages int) {
	t.Helper()
	files := blocks(t, store, name)
	for messages > 0 {
		last := files[len(files)-1]
		data, err := os.ReadFile(last)
		if err != nil {
			t.Fatal(err)
		}
		// Each message has the subject once, after its length and sequence.
		at := len(data)
		for ; messages > 0; messages-- {
			found := bytes.LastIndex(data[:at], []byte("ev.pods."))
			if found < 0 {
				break
			}
			at = found
		}
		if messages > 0 && len(files) > 1 {
			if err := os.Remove(last); err != nil {
				t.Fatal(err)
			}
			files = files[:len(files)-1]
			continue
		}
		if err := os.Truncate(last, int64(at)); err != nil {
			t.Fatal(err)
		}
		return
	}
}
