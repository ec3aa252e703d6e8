package command

import (
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// flood is how much is allocated in a second, at least, where much happens, and
	// ebbAfter for how long less must have been before what is free is given back: the
	// embedded server lets go of its blocks by then.
	flood    = 8 << 20
	ebbAfter = 15 * time.Second
	// ebbEvery bounds how often: it takes two collections.
	ebbEvery = time.Minute
)

// ebb tells when to give back what a burst has left. Where little is allocated the
// collector would not come for minutes, and the memory stay what it was at the most.
// The zero value is ready.
type ebb struct {
	at        time.Time
	allocated int64
	flooded   time.Time // when much was last allocated; zero: nothing since it was given back
	given     time.Time
}

// due is to be told about every second how much has ever been allocated.
func (e *ebb) due(now time.Time, allocated int64) bool {
	took := now.Sub(e.at).Seconds()
	if e.at.IsZero() || float64(allocated-e.allocated) >= flood*took {
		e.flooded = now
	}
	e.at, e.allocated = now, allocated
	if e.flooded.IsZero() || now.Sub(e.flooded) < ebbAfter || now.Sub(e.given) < ebbEvery {
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
