package memlimit

import (
	"testing"
	"time"
)

// TestMemoryIsGivenBackOnceAfterABurst: not during a burst, and not after each of several
// bursts in a row.
func TestMemoryIsGivenBackOnceAfterABurst(t *testing.T) {
	var e release
	now, allocated := time.Unix(1000, 0), int64(0)
	pass := func(seconds int, each int64) (due int) {
		for range seconds {
			now, allocated = now.Add(time.Second), allocated+each
			if e.due(now, allocated) {
				due++
			}
		}
		return due
	}
	for _, step := range []struct {
		what    string
		seconds int
		each    int64
		due     int
	}{
		{"a burst", 100, 4 * flood, 0},
		{"a moment after it", 14, flood / 8, 0},
		{"rest", 600, flood / 8, 1},
		{"another burst", 1, flood, 0},
		{"rest again", 30, 0, 1},
		{"the next one soon", 1, flood, 0},
		{"less than a minute after memory was given back", 30, 0, 0},
		{"more than a minute after it", 30, 0, 1},
	} {
		if got := pass(step.seconds, step.each); got != step.due {
			t.Errorf("%s: given back %d times, want %d", step.what, got, step.due)
		}
	}
}
