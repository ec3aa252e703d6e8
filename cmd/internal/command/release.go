package command

import (
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// flood is how much is allocated in a second, at least, where much happens, and
	// releaseAfter for how long less must have been before what is free is given back: the
	// embedded server lets go of its blocks by then.
	flood        = 8 << 20
	releaseAfter = 15 * time.Second
	// releaseEvery bounds how often: it takes two collections.
	releaseEvery = time.Minute
)

// release tells when to give back what a burst has left. Where little is allocated the
// collector would not come for minutes, and the memory stay what it was at the most.
// The zero value is ready.
type release struct {
	at        time.Time
	allocated int64
	flooded   time.Time // when much was last allocated; zero: nothing since it was given back
	given     time.Time
}

// due is to be told about every second how much has ever been allocated.
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

// giveBack has what is not in use collected and given back to the system. What is
// pooled outlives one collection.
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}
