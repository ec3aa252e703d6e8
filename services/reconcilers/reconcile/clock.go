package reconcile

import "time"

// apart is how far two clocks may be apart where times of objects are compared.
const apart = 10 * time.Second

// Ahead tells whether a time of an object lies so far ahead that the clock which gave it was
// wrong, or is now: it says nothing of what came first. The times of the key's own outcomes
// and notes need no such look, since they are never later than they were heard
// ([events.Outcome.KnownBy]).
func Ahead(at, now time.Time) bool { return at.After(now.Add(apart)) }
