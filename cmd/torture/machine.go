package main

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events/sleep"
)

// machine records when the machine had no time for its processes: that is a fault, too, although torture
// broke nothing. A writer that cannot send a heartbeat for a turn within a second loses the turn to another
// writer.
type machine struct {
	mu     sync.Mutex
	stalls []check.Fault
}

const (
	// tick is how often machine checks the clock, and stalled is the lateness that counts as a stall: about
	// half of the writer's second.
	tick    = 20 * time.Millisecond
	stalled = 400 * time.Millisecond
)

// watch checks the clock until the context ends.
func (m *machine) watch(ctx context.Context) {
	for last := time.Now(); sleep.For(ctx, tick); last = time.Now() {
		m.note(last, time.Now())
	}
}

// note records a stall if two consecutive checks are too far apart.
func (m *machine) note(last, now time.Time) {
	if now.Sub(last) < tick+stalled {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stalls = append(m.stalls, check.Fault{Kind: "stall", Target: check.Machine, Began: last, Ended: now})
}

// faults returns the stalls so far.
func (m *machine) faults() []check.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]check.Fault(nil), m.stalls...)
}
