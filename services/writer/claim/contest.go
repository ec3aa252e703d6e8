package claim

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// A writer says which turns it has in flight, and others let those be. Where there are keys,
// only a process that has one can say so. Where there are none, every process that may
// publish on the topic can, for ever, in the name of a writer that is dead or never was. So
// a claim is believed for a bounded time, and an honest writer lets go before that: then no
// writer has the turn, and it is carried on as after the death of a writer.
const (
	// believed is for how long a turn that comes here is left to others that say, without a
	// pause, that they have it.
	believed = 2 * time.Minute
	// longestFlight is for how long a writer that is not alone has a turn in flight. A request
	// that was begun before takes 15 s at most.
	longestFlight = believed - 30*time.Second
	// pause is how long others must not have said that they have a turn until they are
	// believed anew. It is shorter than the bus takes to give a turn again that was let go.
	pause = AckWait * 3 / 4
)

// contest is a turn that came here and was left to others.
type contest struct {
	since time.Time // since when others have said that they have it
	said  time.Time // when they said so last
	asked time.Time // when it was last asked for here

	stranger time.Time // when one said so for which there is no room
}

// claimed tells whether another writer has just said that it has a turn. Of those for which
// there is no room only what they say of turns that are here is remembered: a turn has to
// be here for long enough to have heard them.
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

// believes tells whether a claim on a turn is to be believed still.
func (c *Claims) believes(at Place, now time.Time) bool {
	k := c.contests[at]
	if k == nil {
		k = &contest{since: now}
		c.contests[at] = k
	}
	k.asked = now
	return now.Sub(k.since) < believed
}

// repeated notes that another writer says that it has a turn.
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

// strange hears a writer for which there is no room.
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

// overdue tells whether a turn has been in flight for so long that others will soon cease to
// believe that it is.
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
