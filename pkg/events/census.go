package events

import (
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Census counts the objects of a kind that are there, behind one delta of its
// log: how many, and a digest that does not depend on their order. A reader that
// has folded the log, or its state, up to that delta has the same census, or lacks
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

// Of is what a census of a kind adds to the digest of all kinds that are read
// ([Turn]); 0 where there is no object. What a census is of several readers of one
// log, this is of several readers of many.
func (c Census) Of(kind kinds.Name) uint64 {
	if c.Objects == 0 {
		return 0
	}
	var h xxhash.Digest
	h.Reset()
	_, _ = h.WriteString(string(kind))
	var room [64]byte // a turn's digest is of up to a hundred kinds
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

// Holds tells whether an object is counted exactly as a delta has it.
func (t *Tally) Holds(d Delta) bool {
	name, object := hashes(d)
	counted, there := t.objects[name]
	return there && counted == object
}

// hashes are those of the name of a delta's object, and of all that counts of it.
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

// Census is what has been folded so far.
func (t *Tally) Census() Census {
	return Census{Known: true, Objects: uint64(len(t.objects)), Digest: t.digest}
}

// Verdict is what comparing two censuses says about a reader.
type Verdict int

const (
	// Untold: nothing tells what there should be.
	Untold Verdict = iota
	// Whole: the reader holds exactly what is there.
	Whole
	// Unsure: there is more to be read, and what was coalesced away may explain
	// the difference.
	Unsure
	// Wrong: the reader or its stream lacks something, or holds too much.
	Wrong
)

// Doubt judges a reader that follows a state stream. It may differ from the
// census of a delta and be right all the same: the stream has one message per
// object, and lacks what was overwritten before it was read. But then what has
// overwritten it comes soon. So a difference counts at the very end of the
// stream, or when it is still the same behind what was the end when it was first
// seen. The zero value is ready.
type Doubt struct {
	objects, digest uint64
	until           uint64 // 0: there is none
}

// Settled tells whether no difference has been seen that may still be explained.
func (d *Doubt) Settled() bool { return *d == Doubt{} }

// Judge compares the census said by the delta that was folded last, at a
// position of the stream, with what the reader has. end tells the last message
// that the stream holds, and the last one that it ever had; it is asked only
// where the two differ.
//
// Errors: those of end.
func (d *Doubt) Judge(said, has Census, position uint64, end func() (held, last uint64, err error)) (Verdict, error) {
	if !said.Known {
		return Untold, nil
	}
	if said == has {
		*d = Doubt{}
		return Whole, nil
	}
	if position < d.until {
		return Unsure, nil // there is no need to ask before
	}
	now := Doubt{objects: said.Objects - has.Objects, digest: said.Digest - has.Digest}
	if d.until != 0 && now.objects == d.objects && now.digest == d.digest {
		return Wrong, nil
	}
	held, last, err := end()
	switch {
	case err != nil:
		return Unsure, err
	case position >= last, position >= held && has.Objects > said.Objects:
		return Wrong, nil // what has expired made nothing more
	case position >= held:
		return Untold, nil // the end was deleted objects' or marks', and has expired
	}
	now.until = last
	*d = now
	return Unsure, nil
}

// Link is a message's place in its log, and its sum; none where the message was
// stored by a version that knew no sums.
type Link struct {
	Sequence uint64
	Sum      string
}

// String is "<sequence> <sum>", or "" for none.
func (l Link) String() string {
	if l.Sequence == 0 {
		return ""
	}
	return strings.TrimSpace(strconv.FormatUint(l.Sequence, 10) + " " + l.Sum) // a server trims headers, too
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
