package archive_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
)

// exported is an exported file of a bus.
func exported(t *testing.T, from bus.Archive, s archive.Selection) *archive.File {
	t.Helper()
	var out bytes.Buffer
	if _, err := archive.Export(context.Background(), from, &out, s); err != nil {
		t.Fatal(err)
	}
	return reopened(t, out.Bytes())
}

func reopened(t *testing.T, text []byte) *archive.File {
	t.Helper()
	f, err := archive.New("test", bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestFileConforms: a file gives the same answers as the bus that it was exported from.
func TestFileConforms(t *testing.T) {
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	streamtest.Archived(t, b, func(b bus.Archive) bus.Archive { return exported(t, b, archive.Selection{}) })
}
