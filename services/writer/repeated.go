package writer

import (
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

const (
	// quietFor is how long a failure that repeats is only counted.
	quietFor = time.Minute
	// forgottenAfter is when a failure that did not repeat is forgotten: after the longest
	// back-off it would have.
	forgottenAfter = 2 * events.LongestBackoff
)

// turnsOf is a key of a controller, in a lane.
type turnsOf struct {
	controller string
	key        events.Key
	lane       events.Lane
}

// cause is why turns fail, without what differs from one attempt to the next, as the
// generated name of a pod does.
type cause struct {
	verb   events.Verb
	kind   string
	status events.Status
	code   int
	reason string
}

// failing are the failures of turns that have not succeeded since, so that one that
// repeats is not logged each time.
type failing struct {
	mu  sync.Mutex
	all map[turnsOf]*repeats
}

type repeats struct {
	cause               cause
	times               int
	since, said, newest time.Time
}

// failed counts a failure, and tells how often it has come, since when, and whether that
// is to be logged: the first time at once, and then once in a while.
func (f *failing) failed(of turnsOf, why cause, now time.Time) (times int, since time.Time, say bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[turnsOf]*repeats{}
	}
	r := f.all[of]
	if r == nil || r.cause != why {
		f.sweep(now)
		r = &repeats{cause: why, since: now}
		f.all[of] = r
	}
	r.times++
	r.newest = now
	if say = r.times == 1 || now.Sub(r.said) >= quietFor; say {
		r.said = now
	}
	return r.times, r.since, say
}

// succeeded forgets the failure of a key.
func (f *failing) succeeded(of turnsOf) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, of)
}

// sweep forgets failures of keys that are not tried any more.
func (f *failing) sweep(now time.Time) {
	for of, r := range f.all {
		if now.Sub(r.newest) > forgottenAfter {
			delete(f.all, of)
		}
	}
}
