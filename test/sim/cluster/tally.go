package cluster

import (
	"fmt"
	"time"
)

// Tally counts what happened in a world.
type Tally struct {
	Steps, Faults, Changes, Turns, Writes, Conflicts int
	// Held counts the commands that a write limit held.
	Held int
	// Judged counts the decisions judged by their view, and Effects the requests whose effect
	// was checked.
	Judged, Effects int
	// Busiest is the most writes of one object while nothing else happened, and Latest the
	// longest time that a key was undecided.
	Busiest int
	Latest  time.Duration
	// Spared counts, for each exception, how often it was made.
	Spared [exceptions]int
}

// Add sums the counts of two worlds.
func (t Tally) Add(o Tally) Tally {
	sum := Tally{
		Steps: t.Steps + o.Steps, Faults: t.Faults + o.Faults, Changes: t.Changes + o.Changes, Turns: t.Turns + o.Turns,
		Writes: t.Writes + o.Writes, Conflicts: t.Conflicts + o.Conflicts, Held: t.Held + o.Held, Judged: t.Judged + o.Judged, Effects: t.Effects + o.Effects,
		Busiest: max(t.Busiest, o.Busiest), Latest: max(t.Latest, o.Latest), Spared: t.Spared,
	}
	for e, n := range o.Spared {
		sum.Spared[e] += n
	}
	return sum
}

func (t Tally) String() string {
	return fmt.Sprintf("%d steps, %d faults, %d changes, %d turns, %d writes, at most %d of one object at once, a key undecided for %v at most",
		t.Steps, t.Faults, t.Changes, t.Turns, t.Writes, t.Busiest, t.Latest)
}
