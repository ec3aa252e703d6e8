package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// capped keeps the beginning of its input, because a broken program may write for ever.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	const most = 1 << 20
	c.Buffer.Write(p[:min(len(p), max(0, most-c.Len()))])
	return len(p), nil
}

// settled makes rapid draw the same cases each time, so that a mutant that was killed once is killed again,
// write no file into the tree, and search no smaller example.
var settled = []string{"RAPID_SEED=1", "RAPID_NOFAILFILE=true", "RAPID_SHRINKTIME=1ms"}

// supervised runs a command with all of its children until it ends or the limit is over, and returns its
// output.
//
// Errors: the command failed; context.DeadlineExceeded if the limit ended it.
func supervised(ctx context.Context, dir string, env []string, limit time.Duration, args []string) (out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir = dir
	command.Env = append(append(os.Environ(), settled...), env...)
	// The go command does not end its test binaries when it is killed.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = 10 * time.Second // for a child in a group of its own that holds the pipe
	var text capped
	command.Stdout, command.Stderr = &text, &text
	err = command.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return text.String(), err
}
