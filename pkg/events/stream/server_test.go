package stream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/stream/embedded/datadir"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/port"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

func TestDirectoryIsForOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := serve(t, embedded.Options{Dir: dir})
	if _, err := embedded.Serve(embedded.Options{Dir: dir}); !errors.Is(err, datadir.ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("a second server on the directory: %v, want ErrInUse with its path", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := serve(t, embedded.Options{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"a file": file, "below a file": filepath.Join(file, "data"), "none": "", "a device": "/dev/null/x"} {
		s, err := embedded.Serve(embedded.Options{Dir: dir})
		if err == nil {
			_ = s.Close()
			t.Errorf("a server started on %s", name)
			continue
		}
		if !strings.Contains(err.Error(), "data directory "+dir) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is %q", name, err)
		}
	}
}

func TestDamagedStreamIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, embedded.Options{Dir: dir})
	b := connect(t, stream.Options{Server: s})
	if err := errors.Join(b.EnsureKind(t.Context(), kinds.Pods.Kind), b.EnsureController(t.Context(), "c")); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	folder := damage(t, dir, subject.TurnStream("c"))
	damage(t, dir, subject.LogStream("pods"))
	_, err := embedded.Serve(embedded.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "TURN_c") || strings.Contains(err.Error(), "OUTCOME_c") {
		t.Fatalf("a server on a damaged directory: %v, want the stream's name", err)
	}
	// The directory is free again, for the operator who repairs it.
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	serve(t, embedded.Options{Dir: dir})
}

// TestDamagedLogIsSetAside, and begins anew: what it held the API server still has.
func TestDamagedLogIsSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, embedded.Options{Dir: dir})
	b := connect(t, stream.Options{Server: s})
	for _, k := range []kinds.Kind{kinds.Pods.Kind, kinds.Deployments.Kind} {
		if err := b.EnsureKind(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	_ = b.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damage(t, dir, subject.LogStream("pods"))
	b = connect(t, stream.Options{Server: serve(t, embedded.Options{Dir: dir})})
	if aside, err := filepath.Glob(filepath.Join(dir, "damaged", "EV_pods-*", "meta.inf")); err != nil || len(aside) != 1 {
		t.Errorf("set aside are %v, %v", aside, err)
	}
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Append(t.Context(), podDelta("a", 1)), a.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	err = b.Follow(t.Context(), subject.LogStream("pods"), 0, func(batch []events.Message) error { return errRead })
	if !errors.Is(err, errRead) {
		t.Fatal(err)
	}
}

// damage makes a stream unreadable, and gives its folder.
func damage(t *testing.T, dir, name string) (folder string) {
	t.Helper()
	folder = filepath.Join(dir, "jetstream", "$G", "streams", name)
	if err := os.WriteFile(filepath.Join(folder, "meta.inf"), []byte(`{"name":"`), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

var errRead = errors.New("read")

// TestRestart: across clean restarts of the server nothing that was
// acknowledged is lost, and readers and workers go on by themselves.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept, err := port.Free() // no other process takes it while the server is away
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", kept)
	server := serve(t, embedded.Options{Dir: dir, Listen: address})
	b := connect(t, stream.Options{URL: server.URL()})
	if err := errors.Join(b.EnsureKind(t.Context(), kinds.Pods.Kind), b.EnsureController(t.Context(), "c")); err != nil {
		t.Fatal(err)
	}
	read, worked := watch(t, b)

	const rounds, perRound = 3, 400
	var acknowledged []uint64
	next, failures := 0, 0
	for round := range rounds {
		for n := 0; n < perRound; {
			sequences, err := publish(t.Context(), b, next, perRound-n)
			n, next = n+len(sequences), next+len(sequences)
			acknowledged = append(acknowledged, sequences...)
			if err != nil { // the message that failed may be stored all the same
				next, failures = next+1, failures+1
				t.Logf("publishing again after: %v", err)
			}
		}
		if round == rounds-1 {
			break
		}
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.Healthy(); err == nil {
			eventually(t, "the bus knows that it is disconnected", func() bool { return b.Healthy() != nil })
		}
		server = serve(t, embedded.Options{Dir: dir, Listen: address})
		eventually(t, "the bus is healthy again", func() bool { return b.Healthy() == nil })
	}
	last := acknowledged[len(acknowledged)-1]
	if want := rounds * perRound; len(acknowledged) != want || last < uint64(want) || last > uint64(want+failures) {
		t.Fatalf("%d messages were acknowledged, the last as %d; want %d, and of %d it is unknown", len(acknowledged), last, want, failures)
	}
	eventually(t, "everything is read", func() bool { return len(read.all()) >= int(last) })
	for i, sequence := range read.all() {
		if sequence != uint64(i+1) {
			t.Fatalf("message %d was read in the place of %d", sequence, i+1)
		}
	}
	eventually(t, "everything was worked on", func() bool { return len(worked.distinct()) >= int(last) })
}

// publish appends pods until all are stored or something fails, and gives the
// sequences of those that are known to be stored.
func publish(ctx context.Context, b *stream.Bus, first, n int) (stored []uint64, err error) {
	a, err := b.Append(ctx, kinds.Pods.Name)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	for i := range n {
		if err := a.Append(ctx, podDelta(fmt.Sprint("pod-", first+i), first+i)); err != nil {
			return stored, err
		}
		if err := a.Flush(ctx); err != nil {
			return stored, err
		}
		stored = append(stored, a.Last())
	}
	return stored, nil
}

// tally is a list of sequences that grows.
type tally struct {
	mu   sync.Mutex
	seen []uint64
}

func (s *tally) add(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, n)
}

func (s *tally) all() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func (s *tally) distinct() []uint64 {
	all := s.all()
	slices.Sort(all)
	return slices.Compact(all)
}

// watch follows and works on the log of pods until the test ends.
func watch(t *testing.T, b *stream.Bus) (read, worked *tally) {
	read, worked = &tally{}, &tally{}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		err := b.Follow(ctx, subject.LogStream("pods"), 0, func(batch []events.Message) error {
			for _, m := range batch {
				read.add(m.Sequence)
			}
			return nil
		})
		if err != nil {
			t.Errorf("the reader ended: %v", err)
		}
	})
	wg.Go(func() {
		job := bus.Work{Stream: subject.LogStream("pods"), Durable: "c", AckWait: 2 * time.Second}
		err := b.Work(ctx, job, func(d bus.Delivery) {
			worked.add(d.Message().Sequence)
			d.Ack()
		})
		if err != nil {
			t.Errorf("the worker ended: %v", err)
		}
	})
	return read, worked
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(streamtest.Patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("after %v still not: %s", streamtest.Patience, what)
		case <-tick.C:
		}
	}
}
