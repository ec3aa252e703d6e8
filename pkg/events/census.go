package events

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Census counts the objects of a kind that are there, behind one delta of its
// log: how many, and a digest that does not depend on their order. Whoever has
// folded the log, or its state, up to that delta has the same census, or lacks
// something, or holds something that should not be there.
type Census struct {
	Known   bool
	Objects uint64
	// Digest is the sum of a hash of each object's name, uid, version and epoch.
	Digest uint64
}

// String is "<objects> <digest>", or "" when it is not known.
func (c Census) String() string {
	if !c.Known {
		return ""
	}
	return strconv.FormatUint(c.Objects, 10) + " " + hex(c.Digest)
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

// Tally takes the census of a kind: 16 bytes and some air for each object. The
// zero value is ready; it is not safe for concurrent use.
type Tally struct {
	objects map[uint64]uint64 // hash of the name: of the object
	digest  uint64
}

// Fold takes in the next delta of a log or state stream.
func (t *Tally) Fold(d Delta) {
	if d.Op != Is && d.Op != Gone {
		return
	}
	var h xxhash.Digest
	h.Reset()
	for _, part := range [...]string{d.Ref.Namespace, d.Ref.Name} {
		_, _ = h.WriteString(part)
		_, _ = h.WriteString("\x00")
	}
	name := h.Sum64()
	t.digest -= t.objects[name]
	delete(t.objects, name)
	if d.Op == Gone {
		return
	}
	for _, part := range [...]string{string(d.UID), d.ResourceVersion} {
		_, _ = h.WriteString(part)
		_, _ = h.WriteString("\x00")
	}
	_, _ = h.WriteString(strconv.FormatUint(d.Epoch, 10))
	if t.objects == nil {
		t.objects = map[uint64]uint64{}
	}
	object := h.Sum64()
	t.objects[name] = object
	t.digest += object
}

// Census is what has been folded so far.
func (t *Tally) Census() Census {
	return Census{Known: true, Objects: uint64(len(t.objects)), Digest: t.digest}
}

// Link is a message's place in its log, and its sum.
type Link struct {
	Sequence uint64
	Sum      string
}

// String is "<sequence> <sum>", or "" for none.
func (l Link) String() string {
	if l.Sequence == 0 {
		return ""
	}
	return strconv.FormatUint(l.Sequence, 10) + " " + l.Sum
}

func parseLink(text string) (l Link, err error) {
	if text == "" {
		return l, nil
	}
	sequence, sum, found := strings.Cut(text, " ")
	if l.Sequence, err = strconv.ParseUint(sequence, 10, 64); err != nil {
		return l, err
	}
	if l.Sum = sum; !found {
		return l, fmt.Errorf("%q is not a sequence and a sum", text)
	}
	return l, nil
}
