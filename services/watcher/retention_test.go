package watcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// onRecord checks that the log has an object, and that the record shows it now, and knows that this is
// complete.
func onRecord(t *testing.T, b *stream.Bus, name string) error {
	t.Helper()
	ref := events.Ref{Kind: "pods", Namespace: "default", Name: name}
	if _, there, err := b.Last(t.Context(), subject.LogStream("pods"), subject.Delta(ref)); err != nil || !there {
		return fmt.Errorf("the log has %v: %t, %w", ref, there, err)
	}
	r := record.New(b)
	if _, err := r.One(t.Context(), kinds.Pods.Kind, ref, record.Moment{}); err != nil {
		return err
	}
	all, err := r.At(t.Context(), kinds.Pods.Kind, "", record.Moment{})
	if err != nil || !all.Whole {
		return fmt.Errorf("the record has all of now: %v, %w", all, err)
	}
	return nil
}

// pulse measures for how long at a time this process, which holds the whole record, stands still.
func pulse() (stop func() (longest time.Duration)) {
	const heartbeat = 10 * time.Millisecond
	end, ended := make(chan struct{}), make(chan time.Duration)
	go func() {
		longest, last := time.Duration(0), time.Now()
		for heartbeats := time.NewTicker(heartbeat); ; {
			select {
			case <-heartbeats.C:
				longest, last = max(longest, time.Since(last)-heartbeat), time.Now()
			case <-end:
				heartbeats.Stop()
				ended <- max(longest, time.Since(last)-heartbeat)
				return
			}
		}
	}()
	return func() time.Duration { close(end); return <-ended }
}

// TestAQuietObjectNeverFallsOutOfTheRecord: the object does not change for many times the log's
// age. A new reader has it, and so has a new watcher.
func TestAQuietObjectNeverFallsOutOfTheRecord(t *testing.T) {
	t.Parallel()
	const age = 2 * time.Second
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	b, err := stream.Connect(t.Context(), stream.Options{
		Server: server, Name: "test", Retention: map[string]bus.Retention{"pods": {Age: age}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s := watchertest.Serve(t)
	s.PutPod("quiet", 0)
	_, stop := start(t, s, b, "one")
	watchertest.Until(t, func() bool {
		log, err := b.StreamState(t.Context(), subject.LogStream("pods"))
		return err == nil && log.Last >= 2
	})
	for on := false; !on; { // or again: a watcher that stands still records nothing in time
		first := watchertest.Standing(t, b, subject.LogStream("pods")).Last
		stop := pulse()
		watchertest.Until(t, func() bool { return watchertest.Standing(t, b, subject.LogStream("pods")).First > first+3 })
		err := onRecord(t, b, "quiet")
		if stood := stop(); err != nil && stood <= age/8 {
			t.Fatal(err)
		}
		on = err == nil
	}
	stop()
	// No object is recorded again while no watcher runs: the log becomes empty, and the next watcher
	// records everything again.
	watchertest.Until(t, func() bool { return watchertest.Standing(t, b, subject.LogStream("pods")).Messages == 0 })
	s.PutPod("late", 0)
	start(t, s, b, "two")
	watchertest.Until(t, func() bool { return onRecord(t, b, "quiet") == nil && onRecord(t, b, "late") == nil })
}
