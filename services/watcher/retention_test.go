package watcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// standing returns the state of a stream.
func standing(t *testing.T, b bus.Bus, stream string) bus.State {
	t.Helper()
	s, err := b.StreamState(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

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
	s := serve(t)
	s.change("ADDED", "quiet", 0)
	_, stop := start(t, s, b, "one")
	until(t, func() bool {
		log, err := b.StreamState(t.Context(), subject.LogStream("pods"))
		return err == nil && log.Last >= 2
	})
	for on := false; !on; { // or again: a watcher that stands still records nothing in time
		first := standing(t, b, subject.LogStream("pods")).Last
		stop := pulse()
		until(t, func() bool { return standing(t, b, subject.LogStream("pods")).First > first+3 })
		err := onRecord(t, b, "quiet")
		if stood := stop(); err != nil && stood <= age/8 {
			t.Fatal(err)
		}
		on = err == nil
	}
	stop()
	// No object is recorded again while no watcher runs: the log becomes empty, and the next watcher
	// records everything again.
	until(t, func() bool { return standing(t, b, subject.LogStream("pods")).Messages == 0 })
	s.change("ADDED", "late", 0)
	start(t, s, b, "two")
	until(t, func() bool { return onRecord(t, b, "quiet") == nil && onRecord(t, b, "late") == nil })
}

// TestAQuietObjectStaysThoughTheLogIsSmall: other objects change so often that the log, which is
// bounded by size, is replaced many times within a fraction of its age.
func TestAQuietObjectStaysThoughTheLogIsSmall(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{LogBytes: 20_000})
	k := past(t, b, 3, 0)
	quiet := subject.Delta(events.Ref{Kind: "pods", Namespace: "default", Name: "p0"})
	turnedOver := 0
	for i := 0; turnedOver < 5; i++ {
		log := standing(t, b, subject.LogStream("pods"))
		k.noteLimits(t.Context(), log)
		if k.aboutToExpire() {
			if _, err := k.keyframes(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		d := events.Delta{
			Kind: "pods", Op: events.Is, UID: "u2", ResourceVersion: fmt.Sprint(10 + i), At: time.Now(),
			Ref: events.Ref{Kind: "pods", Namespace: "default", Name: "p2"}, Body: []byte(strings.Repeat("x", 200)),
		}
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if _, there, err := b.Last(t.Context(), subject.LogStream("pods"), quiet); err != nil || !there {
			t.Fatalf("after %d messages the log of %d to %d has the quiet object: %t, %v", i, log.First, log.Last, there, err)
		}
		turnedOver = int(log.First) / max(1, int(log.Messages))
	}
	if again := k.appender.Last(); again < 100 {
		t.Errorf("only %d messages were stored", again)
	}
}

// TestALogThatIsTooSmallIsNotFilledWithWhatIsThere: otherwise it would hold nothing but keyframes.
func TestALogThatIsTooSmallIsNotFilledWithWhatIsThere(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{LogBytes: 2_000}), 200, 0)
	log := standing(t, k.bus, subject.LogStream("pods"))
	if k.noteLimits(t.Context(), log); !k.overfull {
		t.Errorf("%d bytes are enough for 200 objects", log.Keeps.Bytes)
	}
	if k.aboutToExpire() {
		t.Errorf("a log of %d messages is to have 200 objects", log.Messages)
	}
}

// TestAShorterAgeIsNoticed: the age limit becomes lower while the watcher runs, and it records
// older objects again at once.
func TestAShorterAgeIsNoticed(t *testing.T) {
	t.Parallel()
	k := past(t, memory.New(memory.Options{}), 3, 0)
	log := standing(t, k.bus, subject.LogStream("pods"))
	k.noteLimits(t.Context(), log)
	k.ageLowered = false
	if k.noteLimits(t.Context(), log); k.aboutToExpire() {
		t.Fatal("nothing has changed")
	}
	log.Keeps.Age /= 2
	if k.noteLimits(t.Context(), log); k.age != log.Keeps.Age || !k.aboutToExpire() || k.aboutToExpire() {
		t.Errorf("an age of %v is not noticed once", k.age)
	}
}
