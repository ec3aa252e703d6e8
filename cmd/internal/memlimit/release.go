package memlimit

import (
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// flood is the allocation rate of a burst, in bytes per second. Free memory is given back once
	// the rate has been below it for releaseAfter, because the embedded server has released its
	// blocks by then.
	flood        = 8 << 20
	releaseAfter = 15 * time.Second
	// releaseEvery is the least time between two releases, since each takes two collections.
	releaseEvery = time.Minute
)

// release tells when to give back the memory of a burst. At low allocation rates the collector
// would not run for minutes, and the memory would stay at its peak. The zero value is ready.
type release struct {
	at        time.Time
	allocated int64
	flooded   time.Time // the end of the last burst; zero: none since the last release
	given     time.Time
}

// due is whether to release now. Call it about every second, with the total of all allocations.
func (e *release) due(now time.Time, allocated int64) bool {
	took := now.Sub(e.at).Seconds()
	if e.at.IsZero() || float64(allocated-e.allocated) >= flood*took {
		e.flooded = now
	}
	e.at, e.allocated = now, allocated
	if e.flooded.IsZero() || now.Sub(e.flooded) < releaseAfter || now.Sub(e.given) < releaseEvery {
		return false
	}
	e.flooded, e.given = time.Time{}, now
	return true
}

// giveBack collects twice, because pooled objects survive one collection, and returns free memory
// to the system.
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}
