package stream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ensured connects a process that began at a moment and wants pods, and what belongs to
// a controller, kept so long, and has it make their streams.
func ensured(t *testing.T, s *embedded.Server, began time.Time, keep bus.Retention) *stream.Bus {
	t.Helper()
	b := connect(t, stream.Options{
		Server: s, Began: began, LogAge: 48 * time.Hour, LogBytes: 1 << 20, Retention: map[string]bus.Retention{"pods": keep, "c": keep},
	})
	if err := errors.Join(b.EnsureKind(t.Context(), kinds.Pods.Kind), b.EnsureKind(t.Context(), kinds.Deployments.Kind), b.EnsureController(t.Context(), "c")); err != nil {
		t.Fatal(err)
	}
	return b
}

func expectKept(t *testing.T, b *stream.Bus, when string, want bus.Retention, streams ...string) {
	t.Helper()
	for _, name := range streams {
		s, err := b.StreamState(t.Context(), name)
		if err != nil || s.Keeps != want {
			t.Errorf("%s %s keeps %+v, want %+v (%v)", when, name, s.Keeps, want, err)
		}
	}
}

// TestTheLastWordHolds: processes that want different retentions do not change a stream in
// turn. The one that began last decides, whichever checks again; stored messages and running
// processes are not affected.
func TestTheLastWordHolds(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{})
	of := []string{subject.LogStream("pods"), subject.TurnStream("c"), subject.OutcomeStream("c")}
	rest := []string{subject.LogStream("deployments.apps")}
	began := time.Now()
	day, week := bus.Retention{Age: 24 * time.Hour, Bytes: 2 << 20}, bus.Retention{Age: 168 * time.Hour, Bytes: 4 << 20}
	old := ensured(t, s, began, day)
	expectKept(t, old, "at first", day, of...)
	expectKept(t, old, "at first", bus.Retention{Age: 48 * time.Hour, Bytes: 1 << 20}, rest...)
	expectKept(t, old, "at first", bus.Retention{}, subject.WakeStream)
	appender, err := old.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(appender.Append(t.Context(), podDelta("a", 1)), appender.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}

	recent := ensured(t, s, began.Add(time.Minute), week)
	expectKept(t, recent, "since another process began later", week, of...)
	if err := errors.Join(appender.Append(t.Context(), podDelta("a", 2)), appender.Flush(t.Context())); err != nil {
		t.Errorf("the log's publisher does not go on: %v", err)
	}
	if at, err := recent.StreamState(t.Context(), of[0]); err != nil || at.Messages != 2 {
		t.Errorf("the stream has %d messages (%v), want 2", at.Messages, err)
	}
	if err := errors.Join(old.EnsureKind(t.Context(), kinds.Pods.Kind), old.EnsureController(t.Context(), "c")); err != nil {
		t.Errorf("Ensure by a service that began earlier: %v, want no error", err)
	}
	expectKept(t, old, "when who began earlier has looked again", week, of...)
	// A zero field of the setting leaves it to what holds for all.
	shortest := ensured(t, s, began.Add(time.Hour), bus.Retention{Age: time.Minute})
	expectKept(t, shortest, "kept for less time than ids are remembered", bus.Retention{Age: time.Minute, Bytes: 1 << 20}, of...)
	longer := ensured(t, s, began.Add(2*time.Hour), week)
	expectKept(t, longer, "longer again", week, of...)
}

// A change by an operator stays until a process begins that wants another retention; settings
// that could lose messages are refused as ever.
func TestWhatWasChangedByHand(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
	js, began := admin(t, s.URL()), time.Now()
	edit := func(name string, change func(*jetstream.StreamConfig)) {
		t.Helper()
		found, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		config := found.CachedInfo().Config
		change(&config)
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	b := ensured(t, s, began, bus.Retention{Age: time.Hour})
	edit("EV_pods", func(c *jetstream.StreamConfig) { c.MaxAge = 3 * time.Hour })
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	expectKept(t, b, "by hand", bus.Retention{Age: 3 * time.Hour, Bytes: 1 << 20}, "EV_pods")
	expectKept(t, ensured(t, s, began.Add(time.Second), bus.Retention{Age: time.Hour}), "then", bus.Retention{Age: time.Hour, Bytes: 1 << 20}, "EV_pods")

	edit("WAKE", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	if err := b.EnsureController(t.Context(), "c"); !errors.Is(err, bus.ErrSettings) || !strings.Contains(err.Error(), "WAKE: max_age") {
		t.Errorf("wakes that are forgotten before they fire: %v", err)
	}
	edit("WAKE", func(c *jetstream.StreamConfig) { c.MaxAge = 0 })
	edit("TURN_c", func(c *jetstream.StreamConfig) { c.Duplicates = time.Second })
	if err := b.EnsureController(t.Context(), "c"); !errors.Is(err, bus.ErrSettings) || !strings.Contains(err.Error(), "duplicate_window") {
		t.Errorf("turns of which ids are forgotten at once: %v", err)
	}
}

func TestRetentionThatCannotBe(t *testing.T) {
	t.Parallel()
	_, err := stream.Connect(t.Context(), stream.Options{URL: "nats://127.0.0.1:1", Retention: map[string]bus.Retention{"pods": {Age: time.Millisecond}}})
	if err == nil || !strings.Contains(err.Error(), "pods") {
		t.Errorf("pods for a millisecond: %v", err)
	}
}

// TestTheRecordIsNotPurged: with every right on the bus, no stream of the record can be
// emptied, also one that an older version made.
func TestTheRecordIsNotPurged(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
	make := func() {
		b := connect(t, stream.Options{Server: s})
		if err := errors.Join(b.EnsureKind(t.Context(), kinds.Pods.Kind), b.EnsureController(t.Context(), "c"),
			b.EnsureShadow(t.Context(), "c"), b.EnsureNotary(t.Context(), time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	make()
	js := admin(t, s.URL())
	record := []string{"EV_pods", "TURN_c", "OUTCOME_c", "SHADOW_c", "NOTARY"}
	refused := func() {
		t.Helper()
		for _, name := range record {
			found, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if err := found.Purge(t.Context()); err == nil {
				t.Errorf("%s was purged", name)
			}
		}
	}
	refused()
	for _, name := range record {
		found, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		old := found.CachedInfo().Config
		old.DenyPurge = false
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), old); err != nil {
			t.Fatal(err)
		}
	}
	make()
	refused()
}
