package events

// Chain follows the links of a log, message by message, and detects missing messages. Marks may
// be missing, because they expire. The zero value is ready to use.
type Chain struct {
	last  Link // the last message that is not a mark
	begun bool
}

// Next takes the next message of the log that exists, and its delta. ok is false when messages
// before it are missing, or are not the messages that it was stored after; the hole says which,
// as far as that is known. A delta without a link begins a new chain.
//
// A message at the head of the log may be missing because it has expired. Next cannot tell: the
// caller has to compare with the log's first message.
func (c *Chain) Next(m Message, d Delta) (h Hole, ok bool) {
	before, begun := c.last, c.begun
	c.begun = true
	switch c.last = d.After; {
	case d.Op != Mark:
		c.last = Link{m.Sequence, m.Get(HeaderSum)}
	case d.After.Sequence == 0:
		c.last = before
	}
	switch {
	case !begun, d.After.Sequence == 0, d.After == before, before.Sequence == 0:
		return Hole{}, true
	case d.After.Sequence > before.Sequence:
		return Hole{Reason: "messages of the log are lost or damaged", From: before.Sequence + 1, To: d.After.Sequence}, false
	default:
		return Hole{Reason: "messages of the log are not those that were stored", From: d.After.Sequence, To: m.Sequence - 1}, false
	}
}
