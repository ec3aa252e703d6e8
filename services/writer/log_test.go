package writer_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/services/writer"
)

// book records what is written to it.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

// line returns the first line with a message, nil if there is none.
func (b *book) line(t *testing.T, message string) map[string]any {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for text := range strings.Lines(b.text.String()) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["msg"] == message {
			return fields
		}
	}
	return nil
}

// A turn that does not succeed is logged at every level.
func TestWhatDoesNotSucceedIsLogged(t *testing.T) {
	t.Parallel()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	traced := func(turn *events.Turn) { turn.Trace.Parent = "00-" + id + "-00f067aa0ba902b7-00" }
	s, log := newScene(t), &book{}
	stop := s.writer(func(c *writer.Config) { c.Log = slog.New(slog.NewJSONHandler(log, nil)) })
	s.store("web", traced, creates("web", 1)...)
	eventually.True(s, eventually.Long, "outcome of what succeeds", func() bool { return s.outcomes() == 1 })
	at := s.store("db", traced, events.Command{Verb: events.VerbDelete, Kind: "secrets", Version: "v1", Namespace: "ns", Name: "x"})
	eventually.True(s, eventually.Long, "outcome of what does not", func() bool { return s.outcomes() == 2 })
	stop() // the turns in flight are finished
	line := log.line(t, "a turn did not succeed")
	if line == nil {
		t.Fatal("the log has no line about a turn that did not succeed")
	}
	for field, want := range map[string]any{
		"level": "WARN", "key": "ns/db", "lane": "write", "sequence": float64(at), "traceID": id, "status": "refused", "verb": "delete",
	} {
		if line[field] != want {
			t.Errorf("%s is %v, want %v, in %v", field, line[field], want, line)
		}
	}
	if line := log.line(t, "carried out a turn"); line != nil {
		t.Errorf("the log has a line about a turn that succeeded, want none at this level: %v", line)
	}
}

// A repeated refusal has one line, with the attempt and when the next one is due.
func TestARefusalPerRetryIsOneLine(t *testing.T) {
	t.Parallel()
	s, log := newScene(t), &book{}
	stop := s.writer(func(c *writer.Config) { c.Log = slog.New(slog.NewJSONHandler(log, nil)) })
	for attempt := 1; attempt <= 5; attempt++ {
		s.store("db", func(turn *events.Turn) { turn.Attempt = attempt }, events.Command{Verb: events.VerbDelete, Kind: "secrets", Version: "v1", Namespace: "ns", Name: "x"})
		eventually.True(s, eventually.Long, "outcome", func() bool { return s.outcomes() == uint64(attempt) })
	}
	stop()
	if n := strings.Count(log.text.String(), "a turn did not succeed"); n != 1 {
		t.Errorf("five refusals have %d lines:\n%s", n, log.text.String())
	}
	line := log.line(t, "a turn did not succeed")
	if line["attempt"] != 1.0 || line["againIn"] != "5ms" || line["times"] != nil {
		t.Errorf("the line is %v", line)
	}
}

// An ask whose object is gone has its answer, and is no failure. A failed command after it is one.
func TestAnAnswerIsNoFailure(t *testing.T) {
	t.Parallel()
	s, log := newScene(t), &book{}
	stop := s.writer(func(c *writer.Config) { c.Log = slog.New(slog.NewJSONHandler(log, nil)) })
	gone := events.Command{Verb: events.VerbAsk, Kind: "persistentvolumes", Version: "v1", Name: "gone"}
	s.store("asks", nil, gone)
	if o := s.outcome("asks"); len(o.Results) != 1 || o.Results[0].Status != events.Absent {
		t.Fatalf("the answer is %+v", o.Results)
	}
	s.store("asks-and-fails", nil, gone, events.Command{Verb: events.VerbPatch, Kind: "pods", Version: "v1", Namespace: "ns", Name: "gone", PatchType: "application/merge-patch+json", Body: json.RawMessage(`{}`)})
	if o := s.outcome("asks-and-fails"); len(o.Results) != 2 || o.Results[1].OK() {
		t.Fatalf("the answers are %+v", o.Results)
	}
	stop()
	line := log.line(t, "a turn did not succeed")
	if line == nil || line["key"] != "ns/asks-and-fails" || line["verb"] != "patch" {
		t.Errorf("the first failure is %v", line)
	}
}
