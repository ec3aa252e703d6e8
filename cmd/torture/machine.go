package main

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
)

// machine notes when the machine had no time for its processes: that is a fault, too,
// though nothing was broken on purpose. A writer that cannot say within a second that it
// works on a turn loses it to another one.
type machine struct {
	mu     sync.Mutex
	stalls []check.Fault
}

const (
	// tick is how often it looks, and stalled how late it must be to call it a stall: half
	// of what a writer has.
	tick    = 20 * time.Millisecond
	stalled = 400 * time.Millisecond
)

// watch looks until the context ends.
func (m *machine) watch(ctx context.Context) {
	for last := time.Now(); sleep(ctx, tick); last = time.Now() {
		m.note(last, time.Now())
	}
}

// note is told of two looks, one after the other.
func (m *machine) note(last, now time.Time) {
	if now.Sub(last) < tick+stalled {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stalls = append(m.stalls, check.Fault{Kind: "stall", Target: check.Machine, Began: last, Ended: now})
}

// faults are the stalls so far.
func (m *machine) faults() []check.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]check.Fault(nil), m.stalls...)
}
