package events

// Chain follows the links of a log, message by message, and tells where one is
// missing. Marks may be missing: they expire. The zero value is ready.
type Chain struct {
	last  Link // the last message that is not a mark
	begun bool
}

// Next takes in the next message of the log that is there, and the delta in it.
// ok is false when messages are missing before it, or are not those that it was
// stored behind; the hole says which, as far as can be told. A delta without a
// link begins a new chain.
//
// A message at the head of the log may be missing because its time had come;
// only who knows the log's first message can tell.
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
