// Package memlimit bounds the memory of a process: it keeps the Go runtime's memory limit (GOMEMLIMIT)
// a little above the live heap, and gives free memory back to the system after a burst of allocations.
package memlimit

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// leastRoom is how much may be allocated between two collections even if the live heap is
	// small: collecting a small heap is cheap, but not free.
	leastRoom = 64 << 20
	// respite is the desired time between collections at high allocation rates, because each
	// collection scans the whole live heap. The room for it is at most the size of the live heap,
	// which is Go's default (GOGC=100).
	respite = 3 * time.Second
	// step is the granularity of the room for respite, because each change of the limit stops
	// the world.
	step = 16 << 20
	// beside is for the runtime's other memory: stacks, its own data structures, and heap
	// fragmentation.
	beside = 40 << 20
	// leastLimit is the lowest limit.
	leastLimit = 168 << 20
	// measureSoon and measureEvery are how often the limit is adjusted to the live heap: while
	// the limit grows, as at a start, and otherwise. A limit that stays behind makes the collector
	// run continuously.
	measureSoon, measureEvery = 20 * time.Millisecond, time.Second
)

// Bound limits the process's memory to 1.5 times the live heap, and at high allocation rates
// to up to twice, which is Go's default, until the context ends. The embedded server keeps blocks
// of several megabytes for a while after every write, and without a limit the runtime would not
// give them back once they are freed. The limit always leaves room above the live heap, so that
// the collector never runs continuously.
//
// If GOGC or GOMEMLIMIT is set, the operator has decided, and Bound does nothing.
func Bound(ctx context.Context, lookup func(string) (string, bool)) {
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
		if limit != before { // setting the limit stops the world
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

// nextLook is the wait before the next measurement: measureSoon after the limit has grown, then
// doubling up to measureEvery.
func nextLook(wait time.Duration, before, now int64) time.Duration {
	if now > before {
		return measureSoon
	}
	return min(2*wait, measureEvery)
}

// memoryLimit is the limit for a live heap of that size.
func memoryLimit(alive int64) int64 {
	return max(alive+max(alive/2, leastRoom)+beside, leastLimit)
}

// room is how much room there must be above the live heap and gaps at an allocation rate, in
// bytes per second.
func room(alive int64, perSecond float64) int64 {
	wanted := int64(math.Ceil(perSecond*respite.Seconds()/step)) * step
	return max(leastRoom/2, min(wanted, max(alive, 2*leastRoom)))
}

// flow is the recent allocation rate. The zero value is ready.
type flow struct {
	at        time.Time
	allocated int64
	perSecond float64
}

// lately is the time constant of the moving average.
const lately = 5 * time.Second

// measure updates the rate, in bytes per second, from the total of all allocations so far.
func (f *flow) measure(now time.Time, allocated int64) (perSecond float64) {
	if took := now.Sub(f.at).Seconds(); !f.at.IsZero() && took > 0 {
		news := 1 - math.Exp(-took/lately.Seconds())
		f.perSecond += news * (float64(allocated-f.allocated)/took - f.perSecond)
	}
	f.at, f.allocated = now, allocated
	return f.perSecond
}

// heap is the live heap at the last collection, and the total of all allocations, in bytes.
func heap() (alive, allocated int64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	for at, into := range []*int64{&alive, &allocated} {
		if samples[at].Value.Kind() == metrics.KindUint64 { // a later Go may not have it
			*into = int64(samples[at].Value.Uint64())
		}
	}
	return alive, allocated
}
