package command

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// leastRoom is how much may be allocated between two collections even where
	// little is alive: small heaps are cheap to collect, but not for nothing.
	leastRoom = 64 << 20
	// respite is how far apart collections should be where much is allocated, as far as
	// no more than Go's own share of room, as much again as is alive, is needed for it:
	// each costs a look at all that is alive.
	respite = 3 * time.Second
	// step is what the room for that goes up and down by: telling the runtime stops the
	// world.
	step = 16 << 20
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

// boundMemory lets the process use half as much again as is alive, and where much is
// allocated up to the twice as much that Go uses otherwise, until the context ends. The embedded
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
	var (
		e release
		f flow
	)
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
		limit = roomy(memoryLimit(alive), alive, gaps(), room(alive, f.measure(time.Now(), allocated)))
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

// room is how much there must be above what is alive and all that lies beside it,
// where so much is allocated in a second.
func room(alive int64, perSecond float64) int64 {
	wanted := int64(math.Ceil(perSecond*respite.Seconds()/step)) * step
	return max(leastRoom/2, min(wanted, max(alive, 2*leastRoom)))
}

// flow is how much has lately been allocated in a second. The zero value is ready.
type flow struct {
	at        time.Time
	allocated int64
	perSecond float64
}

// lately is how long ago what was allocated still counts, roughly.
const lately = 5 * time.Second

// measure is to be told now and then how much has ever been allocated.
func (f *flow) measure(now time.Time, allocated int64) (perSecond float64) {
	if took := now.Sub(f.at).Seconds(); !f.at.IsZero() && took > 0 {
		news := 1 - math.Exp(-took/lately.Seconds())
		f.perSecond += news * (float64(allocated-f.allocated)/took - f.perSecond)
	}
	f.at, f.allocated = now, allocated
	return f.perSecond
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
