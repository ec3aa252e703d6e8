package claim

import (
	"time"

	"github.com/millrace/millrace/pkg/events/report"
)

// A writer announces which turns it has in flight, and others leave them alone. Where there are
// keys, only a process that has one can do so. Where there are none, every process that may
// publish on the topic can, forever, in the name of a writer that is dead or never existed. So a
// claim is believed for a bounded time, and an honest writer gives the turn up before that. Then
// no writer has the turn, and one carries it on as after the death of a writer.
const (
	// claimBelieved is how long this writer leaves a turn that it is given to others that claim it
	// without a pause.
	claimBelieved = 2 * time.Minute
	// maxFlight is how long a writer that is not alone keeps a turn in flight. A request begun
	// before that takes 15 s at most.
	maxFlight = claimBelieved - 30*time.Second
	// redeliveryPause is how long others must stop claiming a turn before they are believed anew. It is
	// shorter than the bus takes to redeliver a turn that was given up.
	redeliveryPause = AckWait * 3 / 4
)

// contestedTurn is a turn that this writer was given and left to others.
type contestedTurn struct {
	since       time.Time // since when others have claimed it
	claimedAt   time.Time // when others last claimed it
	deliveredAt time.Time // when it was last asked for here

	unknownWriterAt time.Time // when a writer beyond the bounds claimed it
}

// claimed reports whether another writer has just claimed a turn. Of a writer beyond the bounds only
// its claims on turns that are here are remembered, so a turn has to be here for long enough for
// such a claim to arrive.
func (c *Claims) claimed(at Place, now time.Time) bool {
	if k := c.contests[at]; k != nil && now.Sub(k.unknownWriterAt) < Expiry {
		return true
	}
	if f := c.inFlight[at]; f != nil && now.Sub(c.unknownWriterAt) < Expiry && now.Sub(f.taken) < Listening {
		return true
	}
	for _, p := range c.others {
		if p.turns[at] && now.Sub(p.at) < Expiry {
			return true
		}
	}
	return false
}

// believes reports whether a claim on a turn is still believed.
func (c *Claims) believes(at Place, now time.Time) bool {
	k := c.contests[at]
	if k == nil {
		k = &contestedTurn{since: now}
		c.contests[at] = k
	}
	k.deliveredAt = now
	return now.Sub(k.since) < claimBelieved
}

// noteClaim records that another writer claims a turn.
func (c *Claims) noteClaim(at Place, now time.Time) {
	k := c.contests[at]
	switch {
	case k == nil && c.inFlight[at] == nil:
		return
	case k == nil:
		k = &contestedTurn{since: now, deliveredAt: now}
		c.contests[at] = k
	case now.Sub(k.claimedAt) >= redeliveryPause:
		k.since = now
	}
	k.claimedAt = now
}

// hearUnknownWriter processes the heartbeat of a writer beyond the bounds.
func (c *Claims) hearUnknownWriter(b report.Heartbeat, now time.Time) {
	c.unknownWriterAt = now
	c.Missed(now)
	for controller, turns := range b.Turns {
		for _, sequence := range turns {
			at := Place{controller, sequence}
			if c.noteClaim(at, now); c.contests[at] != nil {
				c.contests[at].unknownWriterAt = now
			}
		}
	}
}

// overdue reports whether a turn has been in flight for so long that others will soon stop believing
// its claim.
func (c *Claims) overdue(f *flight, now time.Time) bool {
	if c.othersSince.IsZero() {
		return false
	}
	since := f.taken
	if c.othersSince.After(since) {
		since = c.othersSince
	}
	return now.Sub(since) >= maxFlight
}
