package command

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestMemoryLimitLeavesRoom(t *testing.T) {
	for _, tc := range []struct{ alive, room, limit int64 }{
		{0, leastRoom, 128 << 20},
		{40 << 20, leastRoom, 144 << 20},
		{40 << 20, mostRoom, 176 << 20},
		{128 << 20, leastRoom, 232 << 20},
		{128 << 20, mostRoom, 264 << 20},
		{1 << 30, mostRoom, 3<<29 + 40<<20},
	} {
		if got := memoryLimit(tc.alive, tc.room); got != tc.limit {
			t.Errorf("with %d MiB alive and room for %d the limit is %d MiB, want %d", tc.alive>>20, tc.room>>20, got>>20, tc.limit>>20)
		}
	}
}

func TestThereIsRoomForWhatIsAllocatedUntilTheNextCollection(t *testing.T) {
	var p pulse
	now, allocated := time.Unix(0, 0), int64(1<<40)
	for at, step := range []struct {
		after     time.Duration
		allocated int64
		room      int64
	}{
		{0, 0, leastRoom},
		{time.Millisecond, 5 << 20, leastRoom}, // too short a time to tell
		{999 * time.Millisecond, 40 << 20, 80 << 20},
		{time.Second, 40 << 20, 80 << 20},
		{2 * time.Second, 900 << 20, mostRoom},
		{window / 2, 0, mostRoom},
		{window / 2, 0, leastRoom},
	} {
		now, allocated = now.Add(step.after), allocated+step.allocated
		if got := p.room(now, allocated); got != step.room {
			t.Errorf("step %d: room for %d MiB, want %d", at, got>>20, step.room>>20)
		}
	}
}

func TestMemoryIsMeasuredOftenWhileItGrows(t *testing.T) {
	wait := nextLook(measureEvery, 200<<20, 300<<20)
	if wait != measureSoon {
		t.Errorf("after it has grown it is measured again after %v, want %v", wait, measureSoon)
	}
	looks := 0
	for ; wait < measureEvery; looks++ {
		next := nextLook(wait, 300<<20, 300<<20)
		if next <= wait {
			t.Fatalf("after %v it is measured after %v, though nothing grows", wait, next)
		}
		wait = next
	}
	if wait != measureEvery || looks > 10 {
		t.Errorf("after %d looks it is measured every %v, want %v", looks, wait, measureEvery)
	}
	if next := nextLook(wait, 300<<20, 200<<20); next != measureEvery {
		t.Errorf("when it shrinks it is measured after %v", next)
	}
}

func TestMemoryIsBoundedUnlessTheOperatorHasDecided(t *testing.T) {
	before, growth := debug.SetMemoryLimit(-1), debug.SetGCPercent(99)
	defer func() { debug.SetMemoryLimit(before); debug.SetGCPercent(growth) }()
	held := make([]byte, 256<<20)
	runtime.GC()
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		debug.SetMemoryLimit(math.MaxInt64)
		boundMemory(t.Context(), func(asked string) (string, bool) { return "100", asked == name })
		if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
			t.Errorf("with %s set the limit is %d", name, got)
		}
	}
	ended, end := context.WithTimeout(t.Context(), time.Nanosecond)
	defer end()
	boundMemory(ended, func(string) (string, bool) { return "", false })
	if got := debug.SetMemoryLimit(-1); got < int64(len(held)) || got > 2*int64(len(held)) {
		t.Errorf("with %d MiB alive the limit is %d MiB", len(held)>>20, got>>20)
	}
	if got := debug.SetGCPercent(99); got != 99 {
		t.Errorf("afterwards the heap may grow by %d %%", got)
	}
	runtime.KeepAlive(held)
}
