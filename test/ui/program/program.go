// Package program builds and runs the millrace program, for tests of its web page.
package program

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is the time-out for the start and the end of a process.
const patience = 2 * time.Minute

// Build builds the program into a directory and returns its path.
func Build(dir string) (string, error) {
	binary := filepath.Join(dir, "millrace")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/millrace/millrace/cmd/millrace").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build millrace: %w\n%s", err, out)
	}
	return binary, nil
}

// Process is a running program.
type Process struct {
	// Said is the rest of the line after the words that Start waited for.
	Said string

	cmd *exec.Cmd
}

// Start starts a binary, and waits for a line that begins with words; "" matches any line. The process ends
// with this process at the latest.
func Start(binary, words string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(binary, args...)}
	p.cmd.Dir, p.cmd.SysProcAttr = filepath.Dir(binary), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start millrace %s: %w", args[0], err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start millrace %s: %w", args[0], err)
	}
	found, log := make(chan string, 1), &strings.Builder{}
	go func() {
		defer close(found)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			fmt.Fprintln(log, lines.Text())
			if said, ok := strings.CutPrefix(lines.Text(), words); ok {
				found <- said
				_, _ = io.Copy(io.Discard, out) // until the process ends
				return
			}
		}
	}()
	select {
	case said, ok := <-found:
		if !ok {
			return nil, errors.Join(fmt.Errorf("start millrace %s: it ended\n%s", args[0], log), p.Stop())
		}
		p.Said = said
		return p, nil
	case <-time.After(patience):
		return nil, errors.Join(fmt.Errorf("start millrace %s: it does not say %q", args[0], words), p.Stop())
	}
}

// Stop ends a process, and kills it if it does not end in time. It does nothing for nil, or for a process
// that has already been stopped.
func (p *Process) Stop() error {
	if p == nil || p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	return p.cmd.Wait()
}
