package readertest

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// Output runs one of some commands, and returns its output.
func Output(ctx context.Context, commands []*cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	err := Run(ctx, commands, &out, args...)
	return out.String(), err
}

// Run runs one of some commands, and writes its output to out. args begin with the command's
// name. Run ends the command after five minutes.
//
// Errors: [os.ErrNotExist], no command has the name; those of the command.
func Run(ctx context.Context, commands []*cobra.Command, out io.Writer, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, c := range commands {
		if c.Name() != args[0] {
			continue
		}
		c.SetOut(out)
		c.SetErr(out)
		c.SetArgs(args[1:])
		return c.ExecuteContext(ctx)
	}
	return os.ErrNotExist
}

// Buffer is the output of a command that is read while the command runs.
type Buffer struct {
	mu   sync.Mutex
	said bytes.Buffer
}

// Write appends the text.
func (b *Buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.Write(text)
}

// String is the output so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.String()
}

// Must ends the test after an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Says checks that the error of a command has each of some words.
func Says(t *testing.T, err error, args []string, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("millrace %s: no error, want %q", strings.Join(args, " "), words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("millrace %s: %v\nit does not say %q", strings.Join(args, " "), err, w)
		}
	}
}
