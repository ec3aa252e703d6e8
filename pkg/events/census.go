package events

import (
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Census counts the objects of a kind that exist after one delta of its log, with a digest that
// does not depend on their order. A reader that has folded the log up to that delta
// has the same census; otherwise the reader lacks objects, or holds objects that should not
// exist.
type Census struct {
	Known   bool
	Objects uint64
	// Digest is the sum of a hash of each object's name, uid, version and epoch.
	Digest uint64
}

// String is "<objects> <digest>", or "" when the census is not known.
func (c Census) String() string {
	if !c.Known {
		return ""
	}
	return strconv.FormatUint(c.Objects, 10) + " " + hex(c.Digest)
}

// Of is the share of this kind's census in the digest of all kinds that a turn was decided on
// ([Turn]); 0 when the kind has no objects.
func (c Census) Of(kind kinds.Name) uint64 {
	if c.Objects == 0 {
		return 0
	}
	var h xxhash.Digest
	h.Reset()
	_, _ = h.WriteString(string(kind))
	var room [64]byte // avoids allocations: a turn's digest covers up to a hundred kinds
	digest := digits(c.Digest)
	text := strconv.AppendUint(append(room[:0], 0), c.Objects, 10)
	_, _ = h.Write(append(append(text, 0), digest[:]...))
	return h.Sum64()
}

func parseCensus(text string) (c Census, err error) {
	if text == "" {
		return c, nil
	}
	objects, digest, _ := strings.Cut(text, " ")
	if c.Objects, err = strconv.ParseUint(objects, 10, 64); err == nil {
		c.Digest, err = parseHex(digest)
	}
	c.Known = err == nil
	return c, err
}

// Tally computes the census of a kind. It takes 16 bytes and map overhead per object. The zero
// value is ready to use; it is not safe for concurrent use.
type Tally struct {
	objects map[uint64]uint64 // hash of the name: hash of the object
	digest  uint64
}

// Fold applies the next delta of a log.
func (t *Tally) Fold(d Delta) {
	if d.Op != Is && d.Op != Gone {
		return
	}
	name, object := hashes(d)
	t.digest -= t.objects[name]
	delete(t.objects, name)
	if d.Op == Gone {
		return
	}
	if t.objects == nil {
		t.objects = map[uint64]uint64{}
	}
	t.objects[name] = object
	t.digest += object
}

// Holds reports whether the tally counts the object exactly as the delta has it: same uid, version
// and epoch.
func (t *Tally) Holds(d Delta) bool {
	name, object := hashes(d)
	counted, there := t.objects[name]
	return there && counted == object
}

// hashes gives the hash of the name of a delta's object, and the hash of name, uid, version and
// epoch.
func hashes(d Delta) (name, object uint64) {
	var h xxhash.Digest
	h.Reset()
	for _, part := range [...]string{d.Ref.Namespace, d.Ref.Name} {
		_, _ = h.WriteString(part)
		_, _ = h.WriteString("\x00")
	}
	name = h.Sum64()
	for _, part := range [...]string{string(d.UID), d.ResourceVersion} {
		_, _ = h.WriteString(part)
		_, _ = h.WriteString("\x00")
	}
	_, _ = h.WriteString(strconv.FormatUint(d.Epoch, 10))
	return name, h.Sum64()
}

// Census is the census of all deltas folded so far.
func (t *Tally) Census() Census {
	return Census{Known: true, Objects: uint64(len(t.objects)), Digest: t.digest}
}

// Link is a message's sequence in its log, and its sum. Sum is empty when a version without sums
// stored the message.
type Link struct {
	Sequence uint64
	Sum      string
}

// String is "<sequence> <sum>", or "" for the zero Link.
func (l Link) String() string {
	if l.Sequence == 0 {
		return ""
	}
	return strings.TrimSpace(strconv.FormatUint(l.Sequence, 10) + " " + l.Sum) // the server trims header values
}

func parseLink(text string) (l Link, err error) {
	if text == "" {
		return l, nil
	}
	sequence, sum, _ := strings.Cut(text, " ")
	l.Sum = sum
	l.Sequence, err = strconv.ParseUint(sequence, 10, 64)
	return l, err
}

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
