package process

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// An idle process returns what it does not use; one that works, or has little to return, does not.
func TestAnIdleProcessReturnsMemory(t *testing.T) {
	const live = 100 << 20
	for what, c := range map[string]struct {
		second heap // half a minute after a first reading with 7 cycles
		freed  int
	}{
		"free memory":           {heap{7, worthReturning, live, live}, 1},
		"garbage":               {heap{7, 0, live + worthReturning, live}, 1},
		"some of each":          {heap{7, worthReturning / 2, live + worthReturning/2, live}, 1},
		"too little":            {heap{7, worthReturning - 1, live, live}, 0},
		"it works":              {heap{8, 2 * worthReturning, live, live}, 0},
		"less than was alive":   {heap{7, 0, live, live + worthReturning}, 0},
		"a little beyond alive": {heap{7, worthReturning - 1, live, live + 10}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				readings, freed := []heap{{7, 0, live, live}, c.second}, 0
				read := func() heap {
					if len(readings) == 0 {
						return heap{cycles: 9}
					}
					r := readings[0]
					readings = readings[1:]
					return r
				}
				go returnIdleMemory(ctx, read, func() { freed++ })
				time.Sleep(idleTime + time.Second)
				if synctest.Wait(); freed != c.freed {
					t.Errorf("memory was returned %d times, want %d", freed, c.freed)
				}
			})
		})
	}
}

// The garbage collection of a return does not count as work: the process may return memory again half a
// minute later.
func TestMemoryIsReturnedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		cycles, freed := uint64(1), 0
		go returnIdleMemory(ctx, func() heap { return heap{cycles: cycles, free: worthReturning} }, func() { freed++; cycles++ })
		time.Sleep(3*idleTime + time.Second)
		if synctest.Wait(); freed != 3 {
			t.Errorf("in three periods memory was returned %d times, want 3", freed)
		}
	})
}

// The readings follow the runtime.
func TestHeapIsReadFromTheRuntime(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no garbage collection but that of this test
	debug.FreeOSMemory()
	before := readHeap()
	block := make([]byte, 64<<20)
	grown := readHeap()
	if grown.objects-before.objects < 60<<20 || grown.unused()-before.unused() < 60<<20 {
		t.Errorf("with 64 MB of new objects the reading went from %+v to %+v, want 60 MB more of objects, which may be unused", before, grown)
	}
	runtime.KeepAlive(block)
	debug.FreeOSMemory()
	if after := readHeap(); after.cycles <= grown.cycles || after.unused() > worthReturning {
		t.Errorf("after a return the reading is %+v, want more cycles than %d, and less than %d bytes unused", after, grown.cycles, worthReturning)
	}
}
