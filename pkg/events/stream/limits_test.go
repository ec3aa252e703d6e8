package stream_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestStoreIsFull: a server without room refuses, says so, loses nothing that it
// has acknowledged, and goes on when there is room.
func TestStoreIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serve(t, embedded.Options{Dir: dir, MaxStore: 4 << 20})
	b := connect(t, stream.Options{Server: server})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	stored, err := fillUp(t, b, 10_000)
	if err == nil || !strings.Contains(err.Error(), "max_file_store") {
		t.Fatalf("%d messages were stored in 4 MiB, and then: %v; want an error that says what to do", stored, err)
	}
	if again, err := fillUp(t, b, 1); err == nil || again != 0 {
		t.Errorf("a full server stored %d more: %v", again, err)
	}
	if s, err := b.StreamState(t.Context(), subject.LogStream("pods")); err != nil || s.First != 1 || s.Last < stored {
		t.Errorf("%d messages were acknowledged, and %d to %d are there (%v)", stored, s.First, s.Last, err)
	}
	if err := errors.Join(b.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	b = connect(t, stream.Options{Server: serve(t, embedded.Options{Dir: dir, MaxStore: 64 << 20})})
	if more, err := fillUp(t, b, 10); err != nil || more != 10 {
		t.Errorf("with room again %d messages were stored: %v, want 10", more, err)
	}
}

// fillUp appends pods that do not compress, one by one, and gives how many are
// known to be stored.
func fillUp(t *testing.T, b *stream.Bus, n int) (stored uint64, err error) {
	t.Helper()
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	random := rand.NewChaCha8([32]byte{})
	for i := range n {
		m := podDelta(fmt.Sprint("pod-", i), i)
		m.Data = make([]byte, 16<<10)
		_, _ = random.Read(m.Data)
		if err := errors.Join(a.Append(t.Context(), m), a.Flush(t.Context())); err != nil {
			return stored, err
		}
		stored++
	}
	return stored, nil
}

// TestSlowReader: a reader that pauses while more is stored than client and server buffer for
// it gets all of it later, in order and once, in bounded batches.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const messages, size = 6000, 16 << 10 // three times what is kept for a reader
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
	b := connect(t, stream.Options{URL: s.URL()})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	var read []uint64
	largest := 0
	ended := make(chan error, 1)
	go func() {
		ended <- b.Follow(t.Context(), subject.LogStream("pods"), 1, func(batch []events.Message) error {
			if len(read) == 0 {
				close(begun)
				<-goOn
			}
			bytes := 0
			for _, m := range batch {
				read, bytes = append(read, m.Sequence), bytes+len(m.Data)
			}
			if largest = max(largest, bytes); len(read) >= messages {
				return errRead
			}
			return nil
		})
	}()
	if _, err := fillUp(t, b, 1); err != nil {
		t.Fatal(err)
	}
	<-begun
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for i := range messages - 1 {
		m := podDelta(fmt.Sprint("pod-", i), i)
		m.Data = make([]byte, size)
		if err := a.Append(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if err := <-ended; !errors.Is(err, errRead) {
		t.Fatal(err)
	}
	if len(read) != messages || read[0] != 1 || read[messages-1] != messages || !slices.IsSorted(read) {
		t.Errorf("%d messages were read, from %d to %d; want 1 to %d in order", len(read), read[0], read[len(read)-1], messages)
	}
	if bound := 40 << 20; largest > bound {
		t.Errorf("%d bytes were kept for a reader that stood still, want at most %d", largest, bound)
	}
}
