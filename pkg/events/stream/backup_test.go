package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// heard is what a server logs.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(line)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// backups counts the backups of a stream that the server has begun.
func (h *heard) backups(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.text.String(), fmt.Sprintf("Starting snapshot for stream '$G > %s'", name))
}

// long fills the log of pods with more than a backup may have in flight.
func long(t *testing.T, b *stream.Bus) (messages int) {
	t.Helper()
	ctx := t.Context()
	if err := b.EnsureKind(ctx, kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	a, err := b.Append(ctx, kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	random := rand.New(rand.NewPCG(1, 2))
	for messages = range 2600 {
		m := podDelta(fmt.Sprint("pod-", messages%7), messages+1)
		m.Data = make([]byte, random.IntN(6000)) // incompressible
		for i := range m.Data {
			m.Data[i] = byte(random.Uint32())
		}
		if err := a.Append(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return messages + 1
}

// passageOf reads a passage of the log of pods.
func passageOf(t *testing.T, b bus.Archive, p bus.Passage) (all []events.Message) {
	t.Helper()
	p.Stream = subject.LogStream("pods")
	ctx, cancel := context.WithTimeout(t.Context(), streamtest.Patience)
	defer cancel()
	if err := b.Read(ctx, p, func(batch []events.Message) error { all = append(all, batch...); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLongPassagesAreReadFromBackups: the messages are the same to the byte as from a consumer,
// and only reads of most of the stream use a backup.
func TestLongPassagesAreReadFromBackups(t *testing.T) {
	t.Parallel()
	log := &heard{}
	s := serve(t, embedded.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	plain, backed := connect(t, stream.Options{Server: s}), connect(t, stream.Options{Server: s, Backups: true})
	last := uint64(long(t, plain))
	pod := subject.Delta(events.Ref{Kind: "pods", Namespace: "default", Name: "pod-3"})
	for _, c := range []struct {
		name    string
		passage bus.Passage
		backups int
	}{
		{"all", bus.Passage{}, 1},
		{"all but the beginning", bus.Passage{From: last / 3}, 1},
		{"all but the end", bus.Passage{From: 1, To: last * 2 / 3}, 1},
		{"the lesser half", bus.Passage{From: last/2 + 10}, 0},
		{"one object", bus.Passage{Subject: pod}, 0},
		{"headers", bus.Passage{HeadersOnly: true}, 0},
		{"nothing", bus.Passage{From: last + 1}, 0},
	} {
		before := log.backups(subject.LogStream("pods"))
		got := passageOf(t, backed, c.passage)
		if made := log.backups(subject.LogStream("pods")) - before; made != c.backups {
			t.Errorf("%s: %d backups were made, want %d", c.name, made, c.backups)
		}
		if want := passageOf(t, plain, c.passage); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: there are %d messages, of a consumer %d, or they are other ones", c.name, len(got), len(want))
		}
	}
	enough := errors.New("enough")
	if err := backed.Read(t.Context(), bus.Passage{Stream: subject.LogStream("pods")}, func([]events.Message) error { return enough }); err != enough {
		t.Errorf("a handler that has enough got %v", err)
	}
}

// TestArchiveFromBackups: what a bus must answer about the past, with backups.
func TestArchiveFromBackups(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{})
	streamtest.Archived(t, connect(t, stream.Options{Server: s}), func(bus.Archive) bus.Archive {
		return connect(t, stream.Options{Server: s, Backups: true})
	})
}

// TestABackupThatBreaksOff: a consumer delivers the rest, and no message twice.
func TestABackupThatBreaksOff(t *testing.T) {
	t.Parallel()
	log := &heard{}
	s := serve(t, embedded.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	b := connect(t, stream.Options{Server: s, Backups: true})
	n := long(t, b)
	var got []uint64
	err := b.Read(t.Context(), bus.Passage{Stream: subject.LogStream("pods")}, func(batch []events.Message) error {
		if len(got) == 0 {
			b.Shake() // as after a reconnect
		}
		for _, m := range batch {
			got = append(got, m.Sequence)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, sequence := range got {
		if sequence != uint64(i+1) {
			t.Fatalf("message %d is %d", i+1, sequence)
		}
	}
	if len(got) != n || log.backups(subject.LogStream("pods")) != 1 {
		t.Errorf("there are %d messages of %d, from %d backups", len(got), n, log.backups(subject.LogStream("pods")))
	}
}

// TestABackupThatIsRefused: a user without the right reads like the services, and does not ask
// again.
func TestABackupThatIsRefused(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Users: []*server.User{{Username: "looker", Password: "looker", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{">"}, Deny: []string{"$JS.API.STREAM.SNAPSHOT.*"}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	eventually(t, "the server listens", func() bool { return s.Addr() != nil && s.ReadyForConnections(streamtest.Patience) })
	log := &heard{}
	b := connect(t, stream.Options{
		URL: "nats://looker:looker@" + s.Addr().String(), Backups: true, Timeout: streamtest.Patience, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	n := long(t, b)
	for range 2 {
		if got := passageOf(t, b, bus.Passage{}); len(got) != n {
			t.Errorf("there are %d messages of %d", len(got), n)
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if asked := strings.Count(log.text.String(), "STREAM.SNAPSHOT"); asked != 1 {
		t.Errorf("the snapshot was asked for %d times after its refusal, want once", asked)
	}
}
