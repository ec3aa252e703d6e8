package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/pkg/events/sleep"
)

// slot is the place of one process: when the process ends, the slot starts another one, as kubelet would.
type slot struct {
	name  string
	ours  bool // a process of Millrace, not of the control plane
	start func(life int) (*subprocess.Process, error)
	ready string // the URL of the readiness check; empty: not checked

	mu      sync.Mutex
	process *subprocess.Process
	lives   int
	away    time.Duration // how long the slot stays empty when the process ends
	asked   bool          // torture requested the end of the process
	pauses  int
	held    chan struct{} // closed when the slot may start a process again; nil: it may
	crashes []string
}

// crashRest is how long a slot stays empty after an end that torture did not request.
const crashRest = 500 * time.Millisecond

// keep starts the process, and restarts it whenever it ends, until the context ends. It leaves the last
// process running.
func (s *slot) keep(ctx context.Context) error {
	for {
		s.mu.Lock()
		s.lives++
		life := s.lives
		s.mu.Unlock()
		p, err := s.start(life)
		if err != nil {
			return err
		}
		s.take(p)
		select {
		case <-ctx.Done():
			return nil
		case <-p.Ended():
		}
		if !sleep.For(ctx, s.ended(p)) || !s.free(ctx) {
			return nil
		}
	}
}

// free waits until the slot is not held, and reports whether it is free before the context ended.
func (s *slot) free(ctx context.Context) bool {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held == nil {
		return true
	}
	select {
	case <-held:
		return true
	case <-ctx.Done():
		return false
	}
}

// hold kills the process and keeps the slot empty until release is called. If the process has just ended,
// hold waits for the next one.
func (s *slot) hold(ctx context.Context) (release func(), err error) {
	held := make(chan struct{})
	release = sync.OnceFunc(func() {
		s.mu.Lock()
		s.held = nil
		s.mu.Unlock()
		close(held)
	})
	s.mu.Lock()
	s.held = held
	s.mu.Unlock()
	for {
		err := s.kill(false, 0)
		if err == nil {
			return release, nil
		}
		s.mu.Lock()
		ended := s.process != nil && !s.process.Running()
		s.mu.Unlock()
		if ended {
			return release, nil
		}
		if !errors.Is(err, errAway) || !sleep.For(ctx, 10*time.Millisecond) {
			release()
			return nil, err
		}
	}
}

func (s *slot) take(p *subprocess.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, s.pauses = p, 0
}

// ended returns how long the slot stays empty.
func (s *slot) ended(p *subprocess.Process) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	away, asked := s.away, s.asked
	s.away, s.asked = 0, false
	code, _ := p.ExitCode()
	if asked && code <= 0 { // 0: a clean exit; less: ended by the signal that was sent
		return away
	}
	s.crashes = append(s.crashes, fmt.Sprintf("%s ended by itself with code %d: %s", p.Name, code, lastLines(p.Log, 10)))
	return max(away, crashRest)
}

// kill ends the process like a crash, or politely, and leaves the slot empty for a while.
func (s *slot) kill(politely bool, away time.Duration) error {
	s.mu.Lock()
	p := s.process
	if p == nil || !p.Running() {
		s.mu.Unlock()
		return errAway
	}
	s.away, s.asked = away, true
	s.mu.Unlock()
	if politely {
		return p.Stop()
	}
	return p.Kill()
}

// errAway reports that a fault finds no process to hit, because an earlier fault is not over.
var errAway = errors.New("it does not run at the moment")

// pause stops the process with a signal, and continues it later.
func (s *slot) pause(ctx context.Context, d time.Duration) error {
	s.mu.Lock()
	p := s.process
	if p == nil || !p.Running() {
		s.mu.Unlock()
		return errAway
	}
	s.pauses++
	s.mu.Unlock()
	if err := send(p, syscall.SIGSTOP); err != nil {
		return err
	}
	sleep.For(ctx, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != p {
		return nil
	}
	if s.pauses--; s.pauses > 0 {
		return nil // another pause holds it
	}
	return send(p, syscall.SIGCONT)
}

func send(p *subprocess.Process, what syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(p.PID, what); err != nil && !errors.Is(err, syscall.ESRCH) { // the process may end at any moment
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// awaitReady waits until the process reports that it is ready.
func (s *slot) awaitReady(ctx context.Context) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: loopback()}
	for {
		if s.ready == "" || answers(ctx, client, s.ready) {
			return nil
		}
		if !sleep.For(ctx, 50*time.Millisecond) {
			return fmt.Errorf("wait for %s to be ready: %w", s.name, context.Cause(ctx))
		}
	}
}

// stop ends the process for good, and expects a clean exit. The slot must not be kept any more.
func (s *slot) stop() error {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if p == nil || !p.Running() {
		return fmt.Errorf("stop %s: it does not run", s.name)
	}
	if err := p.Stop(); err != nil {
		return err
	}
	if code, ok := p.ExitCode(); !ok || code != 0 {
		return fmt.Errorf("stop %s: it ended with code %d, want 0: %s", s.name, code, lastLines(p.Log, 10))
	}
	return nil
}

// lastLines is the end of a log.
func lastLines(file string, n int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
