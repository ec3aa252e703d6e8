package process

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/millrace/millrace/pkg/events/sleep"
)

// gcPercent is GOGC where the environment does not set it: the garbage collector runs when the heap
// has grown by half of what is alive. With Go's default of 100 it may double, and the embedded server
// keeps blocks of several megabytes alive for a while after every write.
const gcPercent = 50

func limitGarbage(lookup func(string) (value string, set bool)) {
	if value, _ := lookup("GOGC"); value == "" {
		debug.SetGCPercent(gcPercent)
	}
}

const (
	// idleTime is for how long a process collects no garbage before it counts as idle.
	idleTime = 30 * time.Second
	// worthReturning is the least memory that an idle process returns, in bytes. It costs a garbage
	// collection, and page faults when the memory is needed again.
	worthReturning = 32 << 20
)

// returnIdleMemory returns unused memory to the operating system whenever the process is idle, until the
// context ends. The runtime by itself keeps as much as the heap may grow to before the next garbage
// collection, and an idle process would hold what its last work took.
func returnIdleMemory(ctx context.Context, read func() heap, free func()) {
	before := read()
	for sleep.For(ctx, idleTime) {
		now := read()
		if now.cycles == before.cycles && now.unused() >= worthReturning {
			free()
			now = read() // free has collected garbage
		}
		before = now
	}
}

// heap is a reading of the runtime's heap.
type heap struct {
	cycles  uint64 // garbage collections so far
	free    uint64 // bytes that the heap has neither in use nor returned
	objects uint64 // bytes of objects, alive or not yet collected
	live    uint64 // bytes that were alive after the last garbage collection
}

// unused is about how many bytes could be returned after a garbage collection.
func (h heap) unused() uint64 { return h.free + h.objects - min(h.live, h.objects) }

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	return heap{
		cycles: samples[0].Value.Uint64(), free: samples[1].Value.Uint64(),
		objects: samples[2].Value.Uint64(), live: samples[3].Value.Uint64(),
	}
}
