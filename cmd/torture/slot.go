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

	"github.com/millrace/millrace/cmd/internal/localcluster"
)

// slot is the place of one process: whenever the process ends, another one takes
// its place, as kubelet would have it.
type slot struct {
	name  string
	start func(life int) (*localcluster.Process, error)
	ready string // the URL that says so; empty: not asked

	mu      sync.Mutex
	process *localcluster.Process
	lives   int
	away    time.Duration // how long the place stays empty when the process ends
	asked   bool          // its end was asked for
	pauses  int
	crashes []string
}

// crashRest is how long a place stays empty after an end that nobody asked for.
const crashRest = 500 * time.Millisecond

// keep starts the process, and starts it again whenever it ends, until the context
// ends; the process outlives that.
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
		if !sleep(ctx, s.ended(p)) {
			return nil
		}
	}
}

func (s *slot) take(p *localcluster.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, s.pauses = p, 0
}

// ended gives how long the place stays empty.
func (s *slot) ended(p *localcluster.Process) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	away, asked := s.away, s.asked
	s.away, s.asked = 0, false
	if asked {
		return away
	}
	code, _ := p.ExitCode()
	s.crashes = append(s.crashes, fmt.Sprintf("%s ended by itself with code %d: %s", p.Name, code, lastLine(p.Log)))
	return crashRest
}

// kill ends the process as a crash would, or politely, and leaves its place empty
// for a while.
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

// errAway is for faults that find nobody to hit: an earlier one is not over yet.
var errAway = errors.New("it does not run at the moment")

// pause stops the process where it is, and lets it go on later.
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
	sleep(ctx, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != p {
		return nil
	}
	if s.pauses--; s.pauses > 0 {
		return nil // somebody else holds it
	}
	return send(p, syscall.SIGCONT)
}

func send(p *localcluster.Process, what syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(p.PID, what); err != nil {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// awaitReady waits until the process says that it is ready.
func (s *slot) awaitReady(ctx context.Context) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: loopback()}
	for {
		if s.ready == "" || answers(ctx, client, s.ready) {
			return nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("wait for %s to be ready: %w", s.name, context.Cause(ctx))
		}
	}
}

// stop ends the process for good, and expects it to end well. It must not be kept
// any more.
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
		return fmt.Errorf("stop %s: it ended with code %d, want 0: %s", s.name, code, lastLine(p.Log))
	}
	return nil
}

func lastLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// sleep waits, and reports whether it did so to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
