package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/pkg/events/eventually"
)

// place is a slot for shell scripts, kept until the test ends. If gate is not nil, the second process and
// later ones begin when gate is closed.
func place(t *testing.T, script string, gate <-chan struct{}) *slot {
	t.Helper()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	cluster := &localcluster.Cluster{Dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(cluster.Dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &slot{name: "script", start: func(life int) (*subprocess.Process, error) {
		if life > 1 && gate != nil {
			select {
			case <-gate:
			case <-t.Context().Done():
			}
		}
		return cluster.Run(fmt.Sprintf("script.%d", life), shell, "-c", script)
	}}
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- s.keep(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-kept, cluster.Stop()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// life waits until the slot has its nth process, and returns it.
func (s *slot) life(t *testing.T, n int) *subprocess.Process {
	t.Helper()
	var p *subprocess.Process
	eventually.True(t, eventually.Long, fmt.Sprint("there is process number ", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		p = s.process
		return s.lives >= n && p != nil && strings.HasSuffix(p.Name, fmt.Sprint(".", n))
	})
	return p
}

const forever = "while true; do sleep 0.02; done"

func TestSlotComesBackAfterAKill(t *testing.T) {
	gate := make(chan struct{})
	s := place(t, forever, gate)
	first := s.life(t, 1)
	begun := time.Now()
	if err := s.kill(false, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if first.Running() {
		t.Error("it lives")
	}
	if err := s.kill(false, 0); !errors.Is(err, errAway) {
		t.Errorf("killed while no process was there: %v", err)
	}
	close(gate)
	s.life(t, 2)
	if away := time.Since(begun); away < 200*time.Millisecond {
		t.Errorf("its place was empty for %v, want at least 200 ms", away)
	}
	if len(s.crashes) != 0 {
		t.Errorf("a kill counts as %v", s.crashes)
	}
}

// TestSlotNotesCrashes: the slot restarts a process that ends by itself, and reports the crash.
func TestSlotNotesCrashes(t *testing.T) {
	s := place(t, "echo one; echo the reason; exit 3", nil)
	again := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lives >= 2 && len(s.crashes) > 0
	}
	eventually.True(t, eventually.Long, "it is started again", again)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.Contains(s.crashes[0], "code 3: one\nthe reason") {
		t.Errorf("the ends are %q", s.crashes)
	}
}

// TestSlotNotesEndsInDisorder: the slot reports a process that fails when it is asked to end.
func TestSlotNotesEndsInDisorder(t *testing.T) {
	s := place(t, "trap 'echo the reason; exit 4' TERM; "+forever, nil)
	p := s.life(t, 1)
	eventually.True(t, eventually.Long, "the trap is set", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		return err == nil && caught(string(status), 15)
	})
	if err := s.kill(true, 0); err != nil {
		t.Fatal(err)
	}
	s.life(t, 2)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.crashes) != 1 || !strings.Contains(s.crashes[0], "code 4: the reason") {
		t.Errorf("the ends are %q", s.crashes)
	}
}

// caught reports whether a process has a handler for a signal, from its status file.
func caught(status string, signal int) bool {
	_, rest, _ := strings.Cut(status, "SigCgt:")
	var mask uint64
	_, err := fmt.Sscanf(rest, "%x", &mask)
	return err == nil && mask&(1<<(signal-1)) != 0
}

// TestSlotPauses: a stopped process makes no progress until the last of its pauses
// is over.
func TestSlotPauses(t *testing.T) {
	s := place(t, "n=0; while true; do n=$((n+1)); echo $n; sleep 0.02; done", nil)
	p := s.life(t, 1)
	ticks := func() int {
		text, err := os.ReadFile(p.Log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	ended := make(chan error, 2)
	var ends []context.CancelFunc
	for range 2 {
		ctx, end := context.WithCancel(t.Context())
		ends = append(ends, end)
		go func() { ended <- s.pause(ctx, time.Hour) }()
	}
	stopped := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		return s.pauses == 2 && err == nil && strings.Contains(string(state), ") T ")
	}
	eventually.True(t, eventually.Long, "it is stopped", stopped)
	before := ticks()
	for i, end := range ends {
		if after := ticks(); after != before {
			t.Errorf("it went from %d to %d while %d pauses were left", before, after, 2-i)
		}
		end()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	eventually.True(t, eventually.Long, "it goes on", func() bool { return ticks() != before })
}
