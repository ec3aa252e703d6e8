package writer

import (
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

const (
	// logEvery is how long a repeated failure is counted and not logged.
	logEvery = time.Minute
	// forgottenAfter is when a failure that did not repeat is forgotten. It is longer than the
	// longest back-off.
	forgottenAfter = 2 * events.LongestBackoff
)

// turnSource identifies the turns of a controller's key in a lane.
type turnSource struct {
	controller string
	key        events.Key
	lane       events.Lane
}

// cause is why turns fail, without the parts that differ between attempts, such as the generated
// name of a pod.
type cause struct {
	verb   events.Verb
	kind   string
	status events.Status
	code   int
	reason string
}

// repeatedFailures are the failures of keys that have not succeeded since, so that the writer does not log
// a repeated failure each time.
type repeatedFailures struct {
	mu  sync.Mutex
	all map[turnSource]*repeats
}

type repeats struct {
	cause                   cause
	times                   int
	since, loggedAt, newest time.Time
}

// count counts a failure and returns how often it has come, since when, and whether to log it: at
// once the first time, and then every logEvery.
func (f *repeatedFailures) count(of turnSource, why cause, now time.Time) (times int, since time.Time, say bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[turnSource]*repeats{}
	}
	r := f.all[of]
	if r == nil || r.cause != why {
		f.dropIdle(now)
		r = &repeats{cause: why, since: now}
		f.all[of] = r
	}
	r.times++
	r.newest = now
	if say = r.times == 1 || now.Sub(r.loggedAt) >= logEvery; say {
		r.loggedAt = now
	}
	return r.times, r.since, say
}

// forget forgets the failure of a key and lane.
func (f *repeatedFailures) forget(of turnSource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, of)
}

// dropIdle forgets failures of keys that are no longer tried.
func (f *repeatedFailures) dropIdle(now time.Time) {
	for of, r := range f.all {
		if now.Sub(r.newest) > forgottenAfter {
			delete(f.all, of)
		}
	}
}
