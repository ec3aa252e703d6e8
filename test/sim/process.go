package sim

import "time"

// process is the common part of all processes: a clock of its own, and pauses.
type process struct {
	world *World
	// skew is how far its clock is ahead of the world's.
	skew time.Duration
	// asleep is until when it is stopped; then it continues where it was.
	asleep time.Time
}

func (p *process) clock() time.Time { return p.world.now.Add(p.skew) }

func (p *process) stalled() bool { return p.asleep.After(p.world.now) }
