package claim

import (
	"time"

	"github.com/millrace/millrace/pkg/events/report"
)

// The measures of the protocol.
const (
	// AckWait is how long the bus waits for a writer to acknowledge a turn, or mark it as in
	// progress, before it redelivers the turn to another one.
	AckWait = 800 * time.Millisecond
	// Interval is the time between a writer's heartbeats.
	Interval = 200 * time.Millisecond
	// Expiry is the time after the last heartbeat that came back from which a turn may be in
	// flight elsewhere.
	Expiry = AckWait * 7 / 8
	// Listening is how long a writer listens before it takes what may be in flight elsewhere.
	Listening = 2 * Interval
	// UncertainFor is how long after the last heartbeat that came back in time a turn may be uncertain
	// before the writer gives it up. The bus keeps messages for a stopped writer for longer than
	// this.
	UncertainFor = 8 * time.Second
	// forgetAfter is when a silent writer is forgotten.
	forgetAfter = 2 * UncertainFor
	// maxOnTheWay is how many own heartbeats may be outstanding.
	maxOnTheWay = 64
)

// Place identifies a stored turn: the controller's stream and the sequence in it.
type Place struct {
	Controller string
	Sequence   uint64
}

// Status is the state of a turn in flight.
type Status int

const (
	// Held: the bus gives the turn to no other writer.
	Held Status = iota
	// Uncertain: another writer may have the turn; this one must make no more requests for it.
	Uncertain
	// Free: another writer may have had the turn and be done with it; none has it now.
	Free
	// Lost: this writer must not go on with the turn.
	Lost
)

// String returns the name of the standing.
func (s Status) String() string {
	return [...]string{"Held", "Uncertain", "Free", "Lost"}[s]
}

// Claims is what a writer knows of the turns that it and others have in flight. It is not safe for
// concurrent use. All times must come from one clock that does not go back.
type Claims struct {
	id              string
	inFlight        map[Place]*flight
	most            map[string]int       // how many turns of a controller the bus gives at a time
	number          uint64               // the number of the last own heartbeat
	sentAt          map[uint64]time.Time // when the own heartbeats that have not come back were sent
	heard           uint64               // the newest heartbeat that came back
	confirmed       time.Time            // when that heartbeat was sent
	since           time.Time            // since when heartbeats come back in time
	expiries        int                  // how often heartbeats did not come back in time
	unheard         time.Time            // when this writer may last have missed heartbeats of others
	others          map[string]other
	contests        map[Place]*contestedTurn // turns that others claim and that this writer was asked for
	unknownWriterAt time.Time                // when a writer beyond the bounds was last heard
	othersSince     time.Time                // since when other writers have been known; zero if there are none
	gaveUpAt        time.Time                // when a writer last gave up a turn that it may have begun
	newest          map[string]uint64        // the newest turn taken, by controller
}

// flight is a turn in flight.
type flight struct {
	taken    time.Time
	said     bool      // the heartbeats claim it
	first    bool      // no later turn of the stream was taken before it
	expiries int       // the writer's count of expiries when the turn was last held
	until    time.Time // when the turn was last held, once the writer has had another expiry
	// contested: another writer has claimed the turn, or may have in a heartbeat that was missed.
	contested bool
}

// other is the last heartbeat of another writer.
type other struct {
	at     time.Time
	number uint64 // the heartbeat's number
	turns  map[Place]bool
}

// New returns the claims of a writer that has just started, under an ID of its own.
func New(id string, now time.Time) *Claims {
	return &Claims{
		id: id, inFlight: map[Place]*flight{}, most: map[string]int{}, sentAt: map[uint64]time.Time{},
		confirmed: now, since: now, unheard: now, others: map[string]other{}, newest: map[string]uint64{}, contests: map[Place]*contestedTurn{},
	}
}

// Limit sets how many turns of a controller the bus gives the writer at a time.
func (c *Claims) Limit(controller string, most int) { c.most[controller] = most }

// Take records a delivery; known reports whether its turn is in flight here already. The next
// heartbeat claims a fresh turn, one that comes for the first time as far as this writer can know.
// It claims another one only after [Claims.Claim].
func (c *Claims) Take(at Place, fresh bool, now time.Time) (known bool) {
	if _, known = c.inFlight[at]; known {
		return true
	}
	c.inFlight[at] = &flight{said: fresh, expiries: c.expiries, first: at.Sequence > c.newest[at.Controller], taken: now}
	c.newest[at.Controller] = max(c.newest[at.Controller], at.Sequence)
	return false
}

// Release removes a turn that is no longer in flight here.
func (c *Claims) Release(at Place) { delete(c.inFlight, at) }

// Empty reports whether nothing is in flight here.
func (c *Claims) Empty() bool { return len(c.inFlight) == 0 }

// Claim claims a turn for this writer, and returns false if the turn may be in flight elsewhere.
// The next heartbeat tells the others.
func (c *Claims) Claim(at Place, now time.Time) bool {
	if c.Elsewhere(at, now) {
		return false
	}
	if f, ok := c.inFlight[at]; ok {
		f.said, f.contested, f.expiries = true, false, c.expiries
	}
	return true
}

// Elsewhere reports whether a turn may be in flight elsewhere.
func (c *Claims) Elsewhere(at Place, now time.Time) bool {
	return !c.hearsAll(now) || c.claimed(at, now) && c.believes(at, now)
}

// hearsAll reports whether this writer hears itself, and has for long enough to have received all
// heartbeats of the others but those of the last moment.
func (c *Claims) hearsAll(now time.Time) bool {
	return now.Sub(c.confirmed) < Expiry && c.confirmed.Sub(c.since) >= Listening
}

// Sent returns the number of the last heartbeat sent; later heartbeats announce what is claimed
// now.
func (c *Claims) Sent() uint64 { return c.number }

// Announced reports whether a heartbeat later than a number has come back, so that all writers know
// what this one has claimed.
func (c *Claims) Announced(after uint64) bool { return c.heard > after }

// NoneBegunSince reports whether no other writer can have begun a turn since a moment without this one
// knowing. This writer must have received all heartbeats of the others since before then, even if
// late, no other writer may have fallen silent, and no writer may have given up a turn since.
func (c *Claims) NoneBegunSince(since, now time.Time) bool {
	if !c.hearsAll(now) || c.unheard.Add(Listening).After(since) || !c.gaveUpAt.Before(since) {
		return false
	}
	for _, p := range c.others {
		if now.Sub(p.at) >= Expiry {
			return false
		}
	}
	return true
}

// NeverDelivered reports whether a turn that was stored at a moment was never given to any writer before:
// this writer has heard no other one for longer than the turn exists, and reaches it for the first
// time. If so, the next heartbeat claims the turn. Alone is false for a turn as old as [UncertainFor],
// since the reconcilers may have stored a repetition of it.
func (c *Claims) NeverDelivered(at Place, stored, now time.Time) bool {
	f, ok := c.inFlight[at]
	if !ok || !f.first || len(c.others) > 0 || now.Sub(stored) >= UncertainFor {
		return false
	}
	f.said = true
	return true
}

// GiveUp records that this writer gives up a turn that it may have begun, without an outcome.
func (c *Claims) GiveUp(now time.Time) { c.gaveUpAt = now }

// Status returns the standing of a turn.
func (c *Claims) Status(at Place, now time.Time) Status {
	f, quiet := c.inFlight[at], now.Sub(c.confirmed) >= Expiry
	switch {
	case f == nil, c.overdue(f, now):
		return Lost
	case f.expiries == c.expiries && !quiet:
		return Held
	case f.contested, now.Sub(c.last(f)) >= UncertainFor:
		return Lost
	case quiet, c.confirmed.Sub(c.since) < Listening:
		return Uncertain
	default:
		return Free
	}
}

// last returns when the newest heartbeat was sent with which a turn was held.
func (c *Claims) last(f *flight) time.Time {
	if f.expiries == c.expiries {
		return c.confirmed
	}
	return f.until
}

// HoldAgain holds a turn again if it is [Free].
func (c *Claims) HoldAgain(at Place, now time.Time) {
	if c.Status(at, now) == Free {
		c.inFlight[at].expiries = c.expiries
	}
}

// UnheardFor returns the time since the last heartbeat that came back was sent.
func (c *Claims) UnheardFor(now time.Time) time.Duration { return now.Sub(c.confirmed) }

// Missed records that this writer may have missed heartbeats of others.
func (c *Claims) Missed(now time.Time) {
	c.unheard = now
	for _, f := range c.inFlight {
		f.contested = true
	}
}

// Is reports whether a heartbeat is this writer's own.
func (c *Claims) Is(b report.Heartbeat) bool { return b.Writer == c.id }
