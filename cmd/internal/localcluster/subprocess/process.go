// Package subprocess starts programs as processes, each with its output in a log, waits until they
// answer, and ends them by their ids. They die with the process that started them unless they are
// detached.
package subprocess

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is one started program.
type Process struct {
	// Name tells it from the cluster's other processes.
	Name string
	// Path is the program.
	Path string
	// PID is its process id.
	PID int
	// Log is the file with its output.
	Log string

	args   []string // nil for a process that another one started
	abrupt bool
	ended  chan struct{} // closed at its end; nil for a process that another one started
	code   int           // its exit code, once ended is closed
}

// Spec says what is started.
type Spec struct {
	// Name tells the process from others, Path is the program, Log the file for its output, and
	// Args its arguments.
	Name, Path, Log string
	Args            []string
	// Detached leaves the process running when its starter ends.
	Detached bool
	// Abrupt: the process needs no time to end, and Stop kills it.
	Abrupt bool
	// Append keeps what is in the log.
	Append bool
}

// State is what is stored of a detached process, for [Find].
type State struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	PID    int    `json:"pid"`
	Log    string `json:"log"`
	Abrupt bool   `json:"abrupt,omitempty"`
}

// State is what [Find] needs.
func (p *Process) State() State {
	return State{Name: p.Name, Path: p.Path, PID: p.PID, Log: p.Log, Abrupt: p.abrupt}
}

// Find is the process that another process started.
func Find(s State) *Process {
	return &Process{Name: s.Name, Path: s.Path, PID: s.PID, Log: s.Log, abrupt: s.Abrupt}
}

// Start starts a program in a process group of its own, so that an interrupt from the
// terminal reaches only this process, which ends the others in order.
//
// Errors: the log cannot be opened; the program cannot be started.
func Start(s Spec) (*Process, error) {
	how := os.O_TRUNC
	if s.Append {
		how = os.O_APPEND
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_WRONLY|how, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", s.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(s.Detached)
	p := &Process{Name: s.Name, Path: s.Path, Log: s.Log, args: s.Args, abrupt: s.Abrupt, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The parent death signal is sent when the thread that started the child ends, so
		// that thread must not end before the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			p.code = cmd.ProcessState.ExitCode()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	p.PID = cmd.Process.Pid
	return p, nil
}

// Running is whether the process is still running.
func (p *Process) Running() bool {
	if p.ended == nil {
		return runs(p.PID, p.Path)
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Again is the spec with which a program that has ended is started once more, with the same
// arguments; ok is false while it runs and for a process that another process started.
func (p *Process) Again() (s Spec, ok bool) {
	if p.ended == nil || p.Running() {
		return Spec{}, false
	}
	return Spec{Name: p.Name, Path: p.Path, Args: p.args, Abrupt: p.abrupt, Append: true}, true
}

// Ended is closed when the process has ended; nil for a process that another process
// started.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// ExitCode is the exit code of the process, -1 after a signal; ok is false while it runs and
// for a process that another process started.
func (p *Process) ExitCode() (code int, ok bool) {
	if p.ended == nil || p.Running() {
		return 0, false
	}
	return p.code, true
}

// endDeadline is how long a process may take to end, on a loaded machine: Millrace takes up to
// 10 s for what it has in flight, and its bus up to 30 s.
const endDeadline = time.Minute

// Kill kills the process, like a crash, and returns when it has ended.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, endDeadline) }

// Stop asks the process to end, and kills it if it takes longer than endDeadline.
func (p *Process) Stop() error {
	if p.abrupt {
		return p.Kill()
	}
	if err := p.end(syscall.SIGTERM, endDeadline); err == nil {
		return nil
	}
	return p.Kill()
}

func (p *Process) end(signal syscall.Signal, patience time.Duration) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s (%d): %w", p.Name, p.PID, err)
	}
	deadline := time.Now().Add(patience)
	for p.Running() {
		if time.Now().After(deadline) {
			return fmt.Errorf("end %s (%d): still running %v after %v", p.Name, p.PID, patience, signal)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// ReadyDeadline is how long a program may take until it answers, on a loaded
// machine.
const ReadyDeadline = 10 * time.Minute

// Ready waits until url answers 200.
//
// Errors: the process ended, or did not answer in time. They name the process and quote the
// end of its log.
func (p *Process) Ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, ReadyDeadline)
	defer cancel()
	// The certificate is not verified: some programs make their own, and the request only
	// asks on the loopback interface whether a server answers.
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	for {
		if !p.Running() {
			return fmt.Errorf("start %s: it ended; the end of %s:\n%s", p.Name, p.Log, tail(p.Log))
		}
		if answers(ctx, client, url) {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s at %s: %w; the end of %s:\n%s", p.Name, url, ctx.Err(), p.Log, tail(p.Log))
		}
	}
}

func answers(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// tail is the end of a log, for an error message.
func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	data = bytes.TrimSpace(data)
	lines := bytes.Split(data, []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
}
