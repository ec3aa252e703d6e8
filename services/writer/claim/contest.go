package claim

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// A writer announces which turns it has in flight, and others leave them alone. Where there are
// keys, only a process that has one can do so. Where there are none, every process that may
// publish on the topic can, forever, in the name of a writer that is dead or never existed. So a
// claim is believed for a bounded time, and an honest writer gives the turn up before that. Then
// no writer has the turn, and one carries it on as after the death of a writer.
const (
	// believed is how long this writer leaves a turn that it is given to others that claim it
	// without a pause.
	believed = 2 * time.Minute
	// longestFlight is how long a writer that is not alone keeps a turn in flight. A request begun
	// before that takes 15 s at most.
	longestFlight = believed - 30*time.Second
	// pause is how long others must stop claiming a turn before they are believed anew. It is
	// shorter than the bus takes to redeliver a turn that was given up.
	pause = AckWait * 3 / 4
)

// contest is a turn that this writer was given and left to others.
type contest struct {
	since time.Time // since when others have claimed it
	said  time.Time // when others last claimed it
	asked time.Time // when it was last asked for here

	stranger time.Time // when a writer beyond the bounds claimed it
}

// claimed tells whether another writer has just claimed a turn. Of a writer beyond the bounds only
// its claims on turns that are here are remembered, so a turn has to be here for long enough for
// such a claim to arrive.
func (c *Claims) claimed(at Place, now time.Time) bool {
	if k := c.contests[at]; k != nil && now.Sub(k.stranger) < Expiry {
		return true
	}
	if f := c.flights[at]; f != nil && now.Sub(c.crowded) < Expiry && now.Sub(f.taken) < Listening {
		return true
	}
	for _, p := range c.others {
		if p.turns[at] && now.Sub(p.at) < Expiry {
			return true
		}
	}
	return false
}

// believes tells whether a claim on a turn is still believed.
func (c *Claims) believes(at Place, now time.Time) bool {
	k := c.contests[at]
	if k == nil {
		k = &contest{since: now}
		c.contests[at] = k
	}
	k.asked = now
	return now.Sub(k.since) < believed
}

// repeated records that another writer claims a turn.
func (c *Claims) repeated(at Place, now time.Time) {
	k := c.contests[at]
	switch {
	case k == nil && c.flights[at] == nil:
		return
	case k == nil:
		k = &contest{since: now, asked: now}
		c.contests[at] = k
	case now.Sub(k.said) >= pause:
		k.since = now
	}
	k.said = now
}

// strange processes the heartbeat of a writer beyond the bounds.
func (c *Claims) strange(b events.Heartbeat, now time.Time) {
	c.crowded = now
	c.Missed(now)
	for controller, turns := range b.Turns {
		for _, sequence := range turns {
			at := Place{controller, sequence}
			if c.repeated(at, now); c.contests[at] != nil {
				c.contests[at].stranger = now
			}
		}
	}
}

// overdue tells whether a turn has been in flight for so long that others will soon stop believing
// its claim.
func (c *Claims) overdue(f *flight, now time.Time) bool {
	if c.company.IsZero() {
		return false
	}
	since := f.taken
	if c.company.After(since) {
		since = c.company
	}
	return now.Sub(since) >= longestFlight
}
