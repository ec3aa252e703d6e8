package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// appended is a bus with a log of pods that ends with these messages about no object.
func appended(t *testing.T, messages ...events.Message) *memory.Bus {
	t.Helper()
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		m.Subject = subject.Mark(kinds.Pods.Name)
		if err := a.Append(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// mark is a mark that names a message, as it is stored.
func mark(since uint64) events.Message {
	return events.Seal(subject.Message(events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "1", Since: since}))
}

// A reader begins with the message that the newest mark names. Where that does not say one, the
// reader begins with the whole log.
func TestSinceWhenEverythingIsRecorded(t *testing.T) {
	gap := events.Seal(subject.Message(events.Delta{Kind: kinds.Pods.Name, Op: events.Gap}))
	damaged := mark(7)
	damaged.Header[events.HeaderSince] = []string{"9"}
	unread := mark(7)
	unread.Header[events.HeaderSince] = []string{"x"}
	delete(unread.Header, events.HeaderSum)
	unread = events.Seal(unread)
	for name, c := range map[string]struct {
		messages []events.Message
		want     uint64
	}{
		"no mark":                     {nil, 1},
		"a mark":                      {[]events.Message{mark(7)}, 7},
		"the newest of two":           {[]events.Message{mark(9), mark(7)}, 7},
		"a mark that does not say it": {[]events.Message{mark(7), mark(0)}, 1},
		"a gap":                       {[]events.Message{mark(7), gap}, 1},
		"a mark behind a gap":         {[]events.Message{gap, mark(7)}, 7},
		"a damaged mark":              {[]events.Message{mark(3), damaged}, 1},
		"a mark that cannot be read":  {[]events.Message{mark(3), unread}, 1},
	} {
		got, err := bus.RecordedSince(t.Context(), appended(t, c.messages...), kinds.Pods.Name)
		if err != nil || got != c.want {
			t.Errorf("%s: everything is recorded since %d, %v; want %d", name, got, err, c.want)
		}
	}
}

// away is a bus that cannot be asked.
type away struct{ error }

func (a away) Last(context.Context, string, string) (events.Message, bool, error) {
	return events.Message{}, false, a.error
}

func TestSinceWhenEverythingIsRecordedIsNotGuessed(t *testing.T) {
	failed := errors.New("away")
	if got, err := bus.RecordedSince(t.Context(), away{failed}, kinds.Pods.Name); !errors.Is(err, failed) || got != 0 {
		t.Errorf("RecordedSince of a bus that is away: %d, %v; want its error", got, err)
	}
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	if _, err := bus.RecordedSince(t.Context(), b, kinds.Pods.Name); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("RecordedSince of a kind without a log: %v, want ErrNoStream", err)
	}
}
