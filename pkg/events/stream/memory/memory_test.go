package memory_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

func open(t *testing.T) bus.Bus {
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestConforms(t *testing.T) { streamtest.Conform(t, open) }

func TestLogsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or a tombstone may be gone before anybody looks
		streamtest.Expire(t, 500*time.Millisecond, func(t *testing.T) bus.Bus {
			b := memory.New(memory.Options{LogAge: 500 * time.Millisecond})
			t.Cleanup(func() { _ = b.Close() })
			return b
		})
	})
}

// TestTimeIsTheTests: a day passes at once where the test owns the time.
func TestTimeIsTheTests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		if err := b.EnsureController(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		key := events.Key{Namespace: "default", Name: "a"}
		if err := b.Schedule(t.Context(), events.Wake{Controller: "c", Key: key, At: start.Add(24 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
		fired := make(chan time.Duration)
		go func() {
			_ = b.Follow(t.Context(), subject.WakeStream, 1, func(batch []events.Message) error {
				for _, m := range batch {
					if m.Subject == subject.Wake("c", key) {
						fired <- time.Since(start)
					}
				}
				return nil
			})
		}()
		if got := <-fired; got != 24*time.Hour {
			t.Errorf("the wake fired after %v", got)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTruncateIsNoticed(t *testing.T) {
	b := memory.New(memory.Options{})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		ref := events.Ref{Kind: kinds.Pods.Name, Name: name}
		m := subject.Message(events.Delta{Kind: ref.Kind, Ref: ref, Op: events.Is, UID: "u", ResourceVersion: "1"})
		if err := a.Append(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	err = b.Follow(t.Context(), subject.LogStream("pods"), 0, func(batch []events.Message) error {
		return b.Truncate(subject.LogStream("pods"), 1)
	})
	if !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("a reader of a stream that lost its end: %v, want ErrOvertaken", err)
	}
	if err := a.Append(t.Context(), events.Message{Subject: subject.Mark("pods")}); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("a publisher to a log that lost its end: %v, want ErrOvertaken", err)
	}
}
