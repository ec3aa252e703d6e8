package events

import "time"

// The back-off of a key whose turns fail.
//
// Upstream: workqueue.DefaultTypedControllerRateLimiter.
const (
	FirstBackoff   = 5 * time.Millisecond
	LongestBackoff = 1000 * time.Second
)

// Backoff is the wait after n failures in a row: first, doubled for each further failure, at
// most longest.
//
// Upstream: client-go's per-item exponential failure rate limiter.
func Backoff(n int, first, longest time.Duration) time.Duration {
	d := first
	for ; n > 1 && d < longest; n-- {
		d *= 2
	}
	return min(d, longest)
}
