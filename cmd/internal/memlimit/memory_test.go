package memlimit

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestMemoryLimitLeavesRoom(t *testing.T) {
	for _, tc := range []struct{ alive, limit int64 }{
		{0, 168 << 20},
		{64 << 20, 168 << 20},
		{128 << 20, 232 << 20},
		{1 << 30, 3<<29 + 40<<20},
	} {
		if got := memoryLimit(tc.alive); got != tc.limit {
			t.Errorf("with %d MiB alive the limit is %d MiB, want %d", tc.alive>>20, got>>20, tc.limit>>20)
		}
	}
}

func TestThereIsMoreRoomWhereMuchIsAllocated(t *testing.T) {
	for _, tc := range []struct{ alive, perSecond, room int64 }{
		{100 << 20, 0, 32 << 20},
		{100 << 20, 5 << 20, 32 << 20},
		{100 << 20, 32 << 20, 96 << 20},
		{100 << 20, 300 << 20, 128 << 20},
		{1 << 30, 300 << 20, 912 << 20},
		{1 << 30, 1 << 30, 1 << 30},
	} {
		if got := room(tc.alive, float64(tc.perSecond)); got != tc.room {
			t.Errorf("with %d MiB alive and %d MiB allocated in a second there is room for %d MiB, want %d",
				tc.alive>>20, tc.perSecond>>20, got>>20, tc.room>>20)
		}
	}
}

func TestWhatIsAllocatedIsMeasuredWhateverTheRhythm(t *testing.T) {
	for _, every := range []time.Duration{measureSoon, measureEvery} {
		var f flow
		now, allocated := time.Unix(1000, 0), int64(1<<40)
		pass := func(seconds, perSecond int64) (found float64) {
			for end := now.Add(time.Duration(seconds) * time.Second); now.Before(end); {
				now, allocated = now.Add(every), allocated+int64(every.Seconds()*float64(perSecond))
				found = f.measure(now, allocated)
			}
			return found / (1 << 20)
		}
		for _, step := range []struct {
			what               string
			seconds, perSecond int64
			least, most        float64
		}{
			{"what was before it began", 1, 0, 0, 0},
			{"a moment of it", 2, 100 << 20, 20, 50},
			{"much", 30, 100 << 20, 98, 101},
			{"a moment of rest", 2, 0, 50, 80},
			{"rest", 30, 0, 0, 1},
		} {
			if got := pass(step.seconds, step.perSecond); got < step.least || got > step.most {
				t.Errorf("looked at every %v, %s is %.1f MiB a second, want %v to %v", every, step.what, got, step.least, step.most)
			}
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
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	held := make([]byte, 256<<20)
	runtime.GC()
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		debug.SetMemoryLimit(math.MaxInt64)
		Bound(t.Context(), func(asked string) (string, bool) { return "100", asked == name })
		if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
			t.Errorf("with %s set the limit is %d", name, got)
		}
	}
	ended, end := context.WithTimeout(t.Context(), time.Nanosecond)
	defer end()
	Bound(ended, func(string) (string, bool) { return "", false })
	if got := debug.SetMemoryLimit(-1); got < int64(len(held)) || got > 2*int64(len(held)) {
		t.Errorf("with %d MiB alive the limit is %d MiB", len(held)>>20, got>>20)
	}
	runtime.KeepAlive(held)
}
