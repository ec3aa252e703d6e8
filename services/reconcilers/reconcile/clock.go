package reconcile

import "time"

// apart is the largest clock difference that is tolerated where times of objects are
// compared.
const apart = 10 * time.Second

// Ahead reports whether a time of an object lies so far in the future that one of the two
// clocks was or is wrong. Such a time says nothing about what came first. Times of the key's
// own outcomes and notes need no such check, because they are never later than the moment at
// which the service received them ([events.Outcome.KnownBy]).
func Ahead(at, now time.Time) bool { return at.After(now.Add(apart)) }
