package stream

import "time"

// Told is a moment that another machine has told.
type Told struct {
	// At is the moment, which was told as a multiple of Precision, rounded down; zero: none
	// was told.
	At        time.Time
	Precision time.Duration
	// Asked and Answered are when it was asked for and when it came, by the own clock.
	Asked, Answered time.Time
}

// Apart is by how much the clock that told differs at least from the own one: less than 0
// where it is behind. The answer took a while on its way; what that explains is no difference.
func (t Told) Apart() time.Duration {
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
