package command

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// leastRoom is how much may be allocated between two collections even where
	// little is alive: small heaps are cheap to collect, but not for nothing. mostRoom
	// is how much may be where so much is allocated that the least would be used up
	// several times a second, and the collector would take an eighth of the processor
	// time.
	leastRoom, mostRoom = 64 << 20, 96 << 20
	// roomStep keeps the limit from following every whim: telling the runtime stops
	// the world.
	roomStep = 16 << 20
	// beside is what the runtime needs beside that: stacks, its own books, and the
	// gaps in the heap.
	beside = 40 << 20
	// leastLimit is never gone below.
	leastLimit = 128 << 20
	// spacious is the growth, in per cent, at which the runtime collects without being
	// near the limit: late enough that the limit alone decides.
	spacious = 400
	// measureSoon and measureEvery are how often the limit follows what is alive:
	// while that grows, as it does at a start, and otherwise. A limit that stays
	// behind has the collector work without end.
	measureSoon, measureEvery = 20 * time.Millisecond, time.Second
	// window is over what time at least it is measured how much is allocated, and apart
	// is how far apart collections are to be.
	window, apart = time.Second / 2, 2 * time.Second
)

// boundMemory lets the process use half as much again as is alive, instead of
// the twice as much that Go uses otherwise, until the context ends; more only while
// much is allocated. The embedded server keeps blocks of several megabytes for a
// while after every write, and what is freed of them would not be given back. The
// limit always leaves room above what is alive, so that it never makes the collector
// work without end.
//
// Where GOGC or GOMEMLIMIT is set, the operator has decided and nothing is done.
func boundMemory(ctx context.Context, lookup func(string) (string, bool)) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if value, set := lookup(name); set && value != "" {
			return
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(spacious))
	var p pulse
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
		limit = roomy(memoryLimit(alive, p.room(time.Now(), allocated)), alive, gaps(), leastRoom/2)
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

// pulse is how much is allocated. The zero value is ready.
type pulse struct {
	at        time.Time
	allocated int64
	wide      int64 // the room that the last window asked for
}

// room is how much may be allocated between two collections: what is allocated from one
// to the next if they are as far apart as they are to be, within its bounds.
func (p *pulse) room(now time.Time, allocated int64) int64 {
	if took := now.Sub(p.at); p.at.IsZero() {
		p.at, p.allocated = now, allocated
	} else if took >= window {
		between := int64(float64(allocated-p.allocated) * apart.Seconds() / took.Seconds())
		p.at, p.allocated, p.wide = now, allocated, between/roomStep*roomStep
	}
	return min(max(p.wide, leastRoom), mostRoom)
}

// nextLook is when to measure again: soon after the limit has grown, and then less
// and less often.
func nextLook(wait time.Duration, before, now int64) time.Duration {
	if now > before {
		return measureSoon
	}
	return min(2*wait, measureEvery)
}

// memoryLimit is the limit for what is alive, and the room that is wanted above it.
func memoryLimit(alive, room int64) int64 {
	return max(alive+max(alive/2, room)+beside, leastLimit)
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
