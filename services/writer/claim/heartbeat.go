package claim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events/report"
)

const (
	// mostOthers bounds the other writers that are remembered. Every process that may publish on
	// the topic can make one up.
	mostOthers = 64
	// mostClaims bounds the remembered claims of other writers. Beyond it only claims on turns
	// that are here are remembered, as for writers beyond mostOthers.
	mostClaims = 1 << 16
)

// Heartbeat returns the next heartbeat.
func (c *Claims) Heartbeat(now time.Time) report.Heartbeat {
	c.number++
	c.sentAt[c.number] = now
	delete(c.sentAt, c.number-maxOnTheWay)
	c.forget(now)
	said := report.Heartbeat{Writer: c.id, Number: c.number, Turns: map[string][]uint64{}, Waiting: map[string][]uint64{}}
	for at, f := range c.inFlight {
		turns := said.Waiting
		if f.said {
			turns = said.Turns
		}
		turns[at.Controller] = append(turns[at.Controller], at.Sequence)
	}
	for controller, most := range c.most {
		slices.Sort(said.Turns[controller])
		slices.Sort(said.Waiting[controller])
		if len(said.InFlight(controller)) >= most {
			said.Full = append(said.Full, controller)
		}
	}
	return said
}

// forget drops the writers that have been silent for long, and the contests that are over. Such a
// writer may have begun turns until its expiry.
func (c *Claims) forget(now time.Time) {
	for id, p := range c.others {
		if now.Sub(p.at) < forgetAfter {
			continue
		}
		if delete(c.others, id); p.at.Add(Expiry).After(c.gaveUpAt) {
			c.gaveUpAt = p.at.Add(Expiry)
		}
	}
	if len(c.others) == 0 {
		c.othersSince = time.Time{}
	}
	for at, k := range c.contests {
		if now.Sub(k.deliveredAt) >= forgetAfter {
			delete(c.contests, at)
		}
	}
}

// Hear processes a heartbeat, this writer's own or another's, and reports whether it shows an
// expiry. Where writers have keys, the caller must have verified that a writer signed another's
// heartbeat.
func (c *Claims) Hear(b report.Heartbeat, now time.Time) (expired bool) {
	if c.Is(b) {
		return c.confirm(b.Number, now)
	}
	before, known := c.others[b.Writer]
	switch {
	case !known && len(c.others) >= mostOthers:
		c.hearUnknownWriter(b, now)
		return false
	case known && b.Number <= before.number: // a copy
		return false
	}
	if c.othersSince.IsZero() {
		c.othersSince = now
	}
	if b.Number != before.number+1 {
		c.Missed(now)
	}
	c.note(b, now)
	return false
}

// note records which turns another writer has in flight.
func (c *Claims) note(b report.Heartbeat, now time.Time) {
	p, room := other{at: now, number: b.Number, turns: map[Place]bool{}}, mostClaims
	for id, o := range c.others {
		if id != b.Writer {
			room -= len(o.turns)
		}
	}
	defer func() { c.others[b.Writer] = p }()
	for controller, turns := range b.Turns {
		for _, sequence := range turns {
			at := Place{controller, sequence}
			if len(p.turns) >= room {
				c.hearUnknownWriter(b, now)
				return
			}
			p.turns[at] = true
			c.noteClaim(at, now)
			if f, ok := c.inFlight[at]; ok {
				f.contested = true
			}
		}
	}
}

// confirm processes the writer's own heartbeat, and counts an expiry if it comes back too late.
func (c *Claims) confirm(number uint64, now time.Time) (expired bool) {
	said, ok := c.sentAt[number]
	if !ok || !said.After(c.confirmed) {
		return false
	}
	delete(c.sentAt, number)
	if expired = now.Sub(c.confirmed) >= Expiry; expired {
		for _, f := range c.inFlight {
			f.until = c.last(f)
		}
		c.expiries++
		c.since = said
	}
	c.heard, c.confirmed = number, said
	return expired
}
