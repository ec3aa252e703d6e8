package beside

import (
	"slices"
	"time"
)

// counted is the most time since the last round that counts. A process that was
// stopped, or got no processor, has read nothing in the rest.
const counted = 5 * tick

// rounds are the rounds of the loop. They measure time in which the loop was running
// and could read.
type rounds struct {
	keep time.Duration // how long they are remembered
	last []round       // newest last
}

type round struct {
	at  time.Time
	ran time.Duration // running time until then
}

// begin begins a round.
func (r *rounds) begin(present time.Time) {
	now := round{at: present}
	if n := len(r.last); n > 0 {
		now.ran = r.last[n-1].ran + min(present.Sub(r.last[n-1].at), counted)
	}
	r.last = append(r.last, now)
	for len(r.last) > 1 && now.ran-r.last[1].ran >= r.keep {
		r.last = slices.Delete(r.last, 0, 1)
	}
}

// ago is when a round began that is at least so long ago in running time; zero if
// there is none.
func (r *rounds) ago(long time.Duration) time.Time {
	for _, before := range slices.Backward(r.last) {
		if r.last[len(r.last)-1].ran-before.ran >= long {
			return before.at
		}
	}
	return time.Time{}
}
