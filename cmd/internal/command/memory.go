package command

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// leastRoom is how much may be allocated between two collections even where
	// little is alive: small heaps are cheap to collect, but not for nothing.
	leastRoom = 64 << 20
	// beside is what the runtime needs beside that: stacks, its own books, and the
	// gaps in the heap.
	beside = 40 << 20
	// leastLimit is never gone below.
	leastLimit = 168 << 20
	// measureSoon and measureEvery are how often the limit follows what is alive:
	// while that grows, as it does at a start, and otherwise. A limit that stays
	// behind has the collector work without end.
	measureSoon, measureEvery = 20 * time.Millisecond, time.Second
)

// boundMemory lets the process use half as much again as is alive, instead of
// the twice as much that Go uses otherwise, until the context ends. The embedded
// server keeps blocks of several megabytes for a while after every write, and what
// is freed of them would not be given back. The limit always leaves room above what
// is alive, so that it never makes the collector work without end.
//
// Where GOGC or GOMEMLIMIT is set, the operator has decided and nothing is done.
func boundMemory(ctx context.Context, lookup func(string) (string, bool)) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if value, set := lookup(name); set && value != "" {
			return
		}
	}
	var e ebb
	limit, wait := int64(0), measureSoon
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		before := limit
		alive, allocated := heap()
		if e.due(time.Now(), allocated) {
			giveBack()
			alive, allocated = heap()
		}
		limit = roomy(memoryLimit(alive), alive, gaps(), leastRoom/2)
		if limit != before { // telling the runtime stops the world
			debug.SetMemoryLimit(limit)
		}
		wait = nextLook(wait, before, limit)
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// nextLook is when to measure again: soon after the limit has grown, and then less
// and less often.
func nextLook(wait time.Duration, before, now int64) time.Duration {
	if now > before {
		return measureSoon
	}
	return min(2*wait, measureEvery)
}

// memoryLimit is the limit for what is alive.
func memoryLimit(alive int64) int64 {
	return max(alive+max(alive/2, leastRoom)+beside, leastLimit)
}

// heap is how much the last collection found in use, and how much has ever been
// allocated.
func heap() (alive, allocated int64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	for at, into := range []*int64{&alive, &allocated} {
		if samples[at].Value.Kind() == metrics.KindUint64 { // a later Go may have it no more
			*into = int64(samples[at].Value.Uint64())
		}
	}
	return alive, allocated
}
