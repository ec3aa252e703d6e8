package claim

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// The measures of the protocol.
const (
	// AckWait is how long the bus waits for a writer that has a turn before it gives the turn
	// to another one.
	AckWait = time.Second
	// Interval is how often a writer says what it has in flight.
	Interval = 200 * time.Millisecond
	// Expiry is how long after the last heartbeat that came back a turn may be in flight elsewhere.
	Expiry = AckWait * 4 / 5
	// Listening is how long a writer listens before it takes what may be in flight elsewhere.
	Listening = 2 * Interval
	// Doubt is how long after the last heartbeat that came back in time a turn may be
	// uncertain before it is given up. The bus keeps for longer than this what it could not
	// tell a writer that is stopped.
	Doubt = 8 * time.Second
	// forgotten is when a writer that has fallen silent is forgotten.
	forgotten = 2 * Doubt
	// onTheWay is how many heartbeats may be on their way.
	onTheWay = 64
)

// Place is where a turn is stored.
type Place struct {
	Controller string
	Sequence   uint64
}

// Standing is what can be said of a turn in flight.
type Standing int

const (
	// Held: no other writer is given the turn.
	Held Standing = iota
	// Uncertain: another writer may have the turn, and nothing more is to be requested for it.
	Uncertain
	// Free: another writer may have had the turn and be done with it, and none has it now.
	Free
	// Lost: the turn is not to be gone on with.
	Lost
)

// String is its name.
func (s Standing) String() string {
	return [...]string{"Held", "Uncertain", "Free", "Lost"}[s]
}

// Claims is what a writer knows of the turns that it and others have in flight. It is for one
// goroutine at a time. Times are those of one clock that does not go back.
type Claims struct {
	id        string
	flights   map[Place]*flight
	most      map[string]int       // how many turns of a controller the bus gives at a time
	number    uint64               // of the last heartbeat
	saidAt    map[uint64]time.Time // of the heartbeats that have not come back
	heard     uint64               // the newest heartbeat that came back
	confirmed time.Time            // when that was said
	since     time.Time            // since when heartbeats come back in time
	expiries  int                  // how often they did not
	unheard   time.Time            // when others may last have said something that was not heard
	others    map[string]other
	contests  map[Place]*contest // the turns that others were last said to have, and that were asked for here
	crowded   time.Time          // when a writer was last heard for which there was no room
	company   time.Time          // since when there have been other writers; zero: there is none
	given     time.Time          // when a turn was last given up by a writer that may have begun it
	newest    map[string]uint64  // the newest turn that was taken, by controller
}

// flight is a turn in flight.
type flight struct {
	taken    time.Time
	said     bool      // the others are told of it
	first    bool      // nothing behind it in the stream was taken before
	expiries int       // of the writer, when the turn was last held
	until    time.Time // when that was, once the writer has had another expiry
	// contested: another writer has said that it has the turn, or may have without
	// having been heard.
	contested bool
}

// other is another writer, as it was last heard.
type other struct {
	at     time.Time
	number uint64 // of that heartbeat
	turns  map[Place]bool
}

// New is the claims of a writer that has just started; its ID tells it from others.
func New(id string, now time.Time) *Claims {
	return &Claims{
		id: id, flights: map[Place]*flight{}, most: map[string]int{}, saidAt: map[uint64]time.Time{},
		confirmed: now, since: now, unheard: now, others: map[string]other{}, newest: map[string]uint64{}, contests: map[Place]*contest{},
	}
}

// Limit says how many turns of a controller the bus gives the writer at a time.
func (c *Claims) Limit(controller string, most int) { c.most[controller] = most }

// Take takes in a delivery; known tells whether its turn is in flight here already. The
// others are told at once of a turn that comes for the first time as far as anybody can
// know, and of another one only when it is claimed.
func (c *Claims) Take(at Place, fresh bool, now time.Time) (known bool) {
	if _, known = c.flights[at]; known {
		return true
	}
	c.flights[at] = &flight{said: fresh, expiries: c.expiries, first: at.Sequence > c.newest[at.Controller], taken: now}
	c.newest[at.Controller] = max(c.newest[at.Controller], at.Sequence)
	return false
}

// Release says that a turn is not in flight here any more.
func (c *Claims) Release(at Place) { delete(c.flights, at) }

// Empty tells whether nothing is in flight here.
func (c *Claims) Empty() bool { return len(c.flights) == 0 }

// Claim tells whether a turn that may be in flight elsewhere is not; then it is this
// writer's, and the others are told.
func (c *Claims) Claim(at Place, now time.Time) bool {
	if c.Elsewhere(at, now) {
		return false
	}
	if f, ok := c.flights[at]; ok {
		f.said, f.contested, f.expiries = true, false, c.expiries
	}
	return true
}

// Elsewhere tells whether a turn may be in flight elsewhere.
func (c *Claims) Elsewhere(at Place, now time.Time) bool {
	return !c.listens(now) || c.claimed(at, now) && c.believes(at, now)
}

// listens tells whether this writer hears itself, and has for long enough to have heard
// everything that the others have said until a moment ago.
func (c *Claims) listens(now time.Time) bool {
	return now.Sub(c.confirmed) < Expiry && c.confirmed.Sub(c.since) >= Listening
}

// Said is the number of the last heartbeat: what is claimed now is said by a later one.
func (c *Claims) Said() uint64 { return c.number }

// Announced tells whether a heartbeat that was said after the one with a number has come
// back, so that all writers know what is claimed here.
func (c *Claims) Announced(after uint64) bool { return c.heard > after }

// Watched tells whether no other writer can have begun a turn since a moment without this
// one knowing: since before then it has heard everything that the others said, if late, and
// none of them has fallen silent, nor has it given up anything itself.
func (c *Claims) Watched(since, now time.Time) bool {
	if !c.listens(now) || c.unheard.Add(Listening).After(since) || !c.given.Before(since) {
		return false
	}
	for _, p := range c.others {
		if now.Sub(p.at) >= Expiry {
			return false
		}
	}
	return true
}

// Alone tells whether a turn that was stored at a moment was never given to any writer
// before: none but this one has been heard of for longer than the turn is there, and this
// one comes to it for the first time. The others are told then. Of a turn that has waited
// for longer than that, a repetition may have been stored.
func (c *Claims) Alone(at Place, stored, now time.Time) bool {
	f, ok := c.flights[at]
	if !ok || !f.first || len(c.others) > 0 || now.Sub(stored) >= Doubt {
		return false
	}
	f.said = true
	return true
}

// GiveUp says that a turn is let go that may have been begun, without an outcome.
func (c *Claims) GiveUp(now time.Time) { c.given = now }

// Standing tells how a turn in flight stands.
func (c *Claims) Standing(at Place, now time.Time) Standing {
	f, quiet := c.flights[at], now.Sub(c.confirmed) >= Expiry
	switch {
	case f == nil, c.overdue(f, now):
		return Lost
	case f.expiries == c.expiries && !quiet:
		return Held
	case f.contested, now.Sub(c.last(f)) >= Doubt:
		return Lost
	case quiet, c.confirmed.Sub(c.since) < Listening:
		return Uncertain
	default:
		return Free
	}
}

// last is when the newest heartbeat was said with which a turn was held.
func (c *Claims) last(f *flight) time.Time {
	if f.expiries == c.expiries {
		return c.confirmed
	}
	return f.until
}

// Regain holds a turn again if it is free.
func (c *Claims) Regain(at Place, now time.Time) {
	if c.Standing(at, now) == Free {
		c.flights[at].expiries = c.expiries
	}
}

// Deaf is for how long heartbeats have not come back.
func (c *Claims) Deaf(now time.Time) time.Duration { return now.Sub(c.confirmed) }

// Missed says that others may have said something that was not heard.
func (c *Claims) Missed(now time.Time) {
	c.unheard = now
	for _, f := range c.flights {
		f.contested = true
	}
}

// Is tells whether a heartbeat is this writer's own.
func (c *Claims) Is(b events.Heartbeat) bool { return b.Writer == c.id }
