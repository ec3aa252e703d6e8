package audit

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestAnInterruptedVerifyIsNoAnswer: it does not end with success.
func TestAnInterruptedVerifyIsNoAnswer(t *testing.T) {
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	if err := b.EnsureController(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: "k"}), Data: []byte("{}")}, "id"); err != nil {
		t.Fatal(err)
	}
	var record bytes.Buffer
	if _, err := archive.Export(t.Context(), b, &record, archive.Selection{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "record")
	if err := os.WriteFile(file, record.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for interrupted, want := range map[bool]error{false: nil, true: errInterrupted} {
		ctx, cancel := context.WithCancel(t.Context())
		if interrupted {
			cancel()
		}
		cmd := newVerify()
		cmd.SetArgs([]string{"--record=" + file})
		cmd.SetOut(&bytes.Buffer{})
		if err := cmd.ExecuteContext(ctx); !errors.Is(err, want) {
			t.Errorf("interrupted: %v, it ends with %v", interrupted, err)
		}
		cancel()
	}
}
