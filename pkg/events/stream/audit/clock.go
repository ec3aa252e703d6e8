package audit

import "time"

// ClockReading is a time that another machine reported.
type ClockReading struct {
	// At is the time, rounded down to a multiple of Precision; zero: none was reported.
	At        time.Time
	Precision time.Duration
	// Asked and Answered are the times of the request and of the answer, by the local clock.
	Asked, Answered time.Time
}

// Offset is the least difference between the other clock and the local one: negative if the
// other clock is behind. A difference that the answer's travel time explains does not count.
func (t ClockReading) Offset() time.Duration {
	if t.At.IsZero() {
		return 0
	}
	switch latest := t.At.Add(t.Precision); {
	case latest.Before(t.Asked):
		return latest.Sub(t.Asked)
	case t.At.After(t.Answered):
		return t.At.Sub(t.Answered)
	default:
		return 0
	}
}
