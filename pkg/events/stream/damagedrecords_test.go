package stream_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestABitDoesNotKeepTheServerFromStarting: one bit is flipped in the sequence of a message, so
// that the server would count all messages that seem to be missing before it; or in the body of
// a message in a block with TTLs, which ends a server after an unclean stop. The server starts,
// without that one message.
func TestABitDoesNotKeepTheServerFromStarting(t *testing.T) {
	t.Parallel()
	const told, damaged = 20, 7
	for name, tc := range map[string]struct {
		at      int // of the byte, behind the beginning of the subject
		crashed bool
	}{
		"in a sequence":                  {-recordHead + 4 + 5, false},
		"in a sequence, after a crash":   {-recordHead + 4 + 5, true},
		"in what it says":                {80, false},
		"in what it says, after a crash": {80, true},
		"in the length of its headers":   {len(podDelta(fmt.Sprint("pod-", damaged), 0).Subject), false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tell(t, dir, told)
			if tc.crashed {
				forget(t, dir)
			}
			blocks := filepath.Join(dir, "jetstream", "$G", "streams", subject.LogStream(kinds.Pods.Name), "msgs", "1.blk")
			data, err := os.ReadFile(blocks)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(data, []byte(podDelta(fmt.Sprint("pod-", damaged), 0).Subject))
			data[at+tc.at] ^= 1 << 5
			if err := os.WriteFile(blocks, data, 0o600); err != nil {
				t.Fatal(err)
			}
			b := connect(t, stream.Options{Server: serve(t, embedded.Options{Dir: dir})})
			for i := range uint64(told) {
				m, there, err := b.At(t.Context(), subject.LogStream(kinds.Pods.Name), i+1)
				if err != nil || there != (i != damaged) || there && m.Subject != podDelta(fmt.Sprint("pod-", i), 0).Subject {
					t.Errorf("message %d is there: %t, under %s (%v)", i+1, there, m.Subject, err)
				}
			}
			if kept, err := filepath.Glob(filepath.Join(dir, "damaged", "EV_pods-1.blk-*")); err != nil || len(kept) != 1 {
				t.Errorf("set aside are %v, %v", kept, err)
			}
		})
	}
}

// recordHead is what stands before the subject of a message in a block.
const recordHead = 22

// tell leaves a store with a log that ends with a mark, which has a time to live.
func tell(t *testing.T, dir string, pods int) {
	t.Helper()
	s := serve(t, embedded.Options{Dir: dir})
	b := connect(t, stream.Options{Server: s})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		if err := a.Append(t.Context(), podDelta(fmt.Sprint("pod-", i), i)); err != nil {
			t.Fatal(err)
		}
	}
	mark := subject.Message(events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "1"})
	if err := a.Append(t.Context(), mark); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// forget takes away what a server writes down when it is stopped.
func forget(t *testing.T, dir string) {
	t.Helper()
	for _, pattern := range []string{"index.db", "thw.db"} {
		found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("the files %s are %v, %v; want some", pattern, found, err)
		}
		for _, file := range append(found, filepath.Join(dir, "closed")) {
			if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
}
