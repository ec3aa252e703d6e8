package notary

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/millrace/millrace/pkg/events/bus"
)

// Checkpoint is what a notary signs about a stream.
type Checkpoint struct {
	// Stream and Created identify the stream: a re-created stream of the same name is another
	// one.
	Stream  string    `json:"stream"`
	Created time.Time `json:"created"`
	// Number is the number of the page in its tree, from 1.
	Number uint64 `json:"number"`
	// Size and Root are the size and root of the tree.
	Size int64     `json:"size"`
	Root tlog.Hash `json:"root"`
	// First and Last bound the messages that the page covers: all that existed from First to
	// Last. Last is First-1 if there was none.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Time is the time of the signature, by the bus's clock.
	Time time.Time `json:"time"`
	// Keeps is the retention of the stream at that time.
	Keeps bus.Retention `json:"keeps"`
	// Listed is the number of the last list of the streams that the notary knew; 0: none.
	Listed uint64 `json:"listed,omitempty"`
	// Break says why a new tree begins; empty: none begins, or it is the first.
	Break string `json:"break,omitempty"`
}

// Entry is a message in a page.
type Entry struct {
	Sequence uint64
	Leaf     tlog.Hash
	// Time is when the message was stored, in seconds since 1970.
	Time int64
	// Expires is when the message may expire before the ones around it, in seconds since 1970;
	// 0: never.
	Expires int64
}

// Page is a checkpoint with the entries that lead to it.
type Page struct {
	Checkpoint
	// Before and Edge are the size and edge of the tree without these entries.
	Before  int64
	Edge    []tlog.Hash
	Entries []Entry

	by []note.Signature
}

// origin is the first line of a checkpoint.
const origin = "millrace checkpoint"

// text is the signed text: origin, size and root, in the form of other logs' checkpoints, and
// then one line for each further field.
func (c Checkpoint) text(page []byte) string {
	var b strings.Builder
	sum := sha256.Sum256(page)
	fmt.Fprintf(&b, "%s %s %d\n%d\n%s\n", origin, c.Stream, c.Created.UnixNano(), c.Size, c.Root)
	fmt.Fprintf(&b, "number %d messages %d %d", c.Number, c.First, c.Last)
	if c.Listed > 0 { // versions without lists ignore the rest of the line
		fmt.Fprintf(&b, " list %d", c.Listed)
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, "time %s\n", c.Time.UTC().Format(time.RFC3339Nano))
	fmt.Fprintf(&b, "keeps %d %d\n", int64(c.Keeps.Age), c.Keeps.Bytes)
	fmt.Fprintf(&b, "page %s\n", base64.StdEncoding.EncodeToString(sum[:]))
	if c.Break != "" {
		fmt.Fprintf(&b, "break %s\n", strings.Join(strings.Fields(c.Break), " "))
	}
	return b.String()
}

var errPage = errors.New("it is not written as a page is")

// parseCheckpoint parses the output of text, including the sum of the page.
func parseCheckpoint(text string) (c Checkpoint, sum []byte, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 7 || len(lines) > 8 {
		return c, nil, errPage
	}
	var created, age int64
	var at, packed string
	for _, part := range []struct {
		line, form string
		into       []any
	}{
		{lines[0], origin + " %s %d", []any{&c.Stream, &created}},
		{lines[1], "%d", []any{&c.Size}},
		{lines[3], "number %d messages %d %d", []any{&c.Number, &c.First, &c.Last}},
		{lines[4], "time %s", []any{&at}},
		{lines[5], "keeps %d %d", []any{&age, &c.Keeps.Bytes}},
		{lines[6], "page %s", []any{&packed}},
	} {
		if _, err := fmt.Sscanf(part.line, part.form, part.into...); err != nil {
			return c, nil, errPage
		}
	}
	if len(lines) == 8 {
		reason, is := strings.CutPrefix(lines[7], "break ")
		if !is {
			return c, nil, errPage
		}
		c.Break = reason
	}
	if _, listed, is := strings.Cut(lines[3], " list "); is {
		if c.Listed, err = strconv.ParseUint(listed, 10, 64); err != nil {
			return c, nil, errPage
		}
	}
	c.Created, c.Keeps.Age = time.Unix(0, created), time.Duration(age)
	c.Root, err = tlog.ParseHash(lines[2])
	if err == nil {
		c.Time, err = time.Parse(time.RFC3339Nano, at)
	}
	if err == nil {
		sum, err = base64.StdEncoding.DecodeString(packed)
	}
	return c, sum, err
}

const pageVersion = 1

func (p *Page) pack() []byte {
	text := binary.AppendUvarint(nil, pageVersion)
	text = binary.AppendUvarint(text, uint64(p.Before))
	text = binary.AppendUvarint(text, uint64(len(p.Edge)))
	for _, h := range p.Edge {
		text = append(text, h[:]...)
	}
	text = binary.AppendUvarint(text, uint64(len(p.Entries)))
	var before Entry
	for _, e := range p.Entries {
		text = binary.AppendUvarint(text, e.Sequence-before.Sequence)
		text = binary.AppendVarint(text, e.Time-before.Time)
		text = binary.AppendUvarint(text, uint64(e.Expires))
		text = append(text, e.Leaf[:]...)
		before = e
	}
	return text
}

// unpack parses the output of pack.
func (p *Page) unpack(text []byte) error {
	r := bytes.NewReader(text)
	var failed error
	number := func(most uint64) uint64 {
		n, err := binary.ReadUvarint(r)
		if err != nil || n > most {
			failed = errPage
			return 0
		}
		return n
	}
	hash := func() (h tlog.Hash) {
		if n, err := r.Read(h[:]); err != nil || n != len(h) {
			failed = errPage
		}
		return h
	}
	const any63 = 1<<63 - 1
	if number(pageVersion) != pageVersion {
		return errPage
	}
	p.Before = int64(number(any63))
	for n := number(64); n > 0 && failed == nil; n-- {
		p.Edge = append(p.Edge, hash())
	}
	var e Entry
	for n := number(uint64(len(text))); n > 0 && failed == nil; n-- {
		e.Sequence += number(any63)
		step, err := binary.ReadVarint(r)
		if err != nil {
			return errPage
		}
		e.Time += step
		e.Expires = int64(number(any63))
		e.Leaf = hash()
		p.Entries = append(p.Entries, e)
	}
	if r.Len() > 0 {
		return errPage
	}
	return failed
}

// Sign gives the stored form of a page: the length of the signed note, the note, and the packed
// entries.
func (p *Page) Sign(by note.Signer) ([]byte, error) {
	packed := p.pack()
	signed, err := note.Sign(&note.Note{Text: p.text(packed)}, by)
	if err != nil {
		return nil, fmt.Errorf("sign the checkpoint of %s: %w", p.Stream, err)
	}
	out := strconv.AppendInt(nil, int64(len(signed)), 10)
	return append(append(append(out, '\n'), signed...), packed...), nil
}

// Open parses a stored page, and checks that a known key has signed it, and that its entries
// lead from the tree that it continues to the signed tree.
//
// Errors: one of these checks failed, and which.
func Open(stored []byte, known note.Verifiers) (*Page, error) {
	head, rest, _ := bytes.Cut(stored, []byte{'\n'})
	size, err := strconv.Atoi(string(head))
	if err != nil || size < 0 || size > len(rest) || strconv.Itoa(size) != string(head) {
		return nil, errPage
	}
	signed, packed := rest[:size], rest[size:]
	n, err := note.Open(signed, known)
	if err != nil {
		return nil, fmt.Errorf("no known key has signed it: %w", err)
	}
	if err := exact(n); err != nil {
		return nil, err
	}
	p := &Page{by: n.Sigs}
	var sum []byte
	if p.Checkpoint, sum, err = parseCheckpoint(n.Text); err != nil {
		return nil, err
	}
	if have := sha256.Sum256(packed); !bytes.Equal(have[:], sum) {
		return nil, errors.New("its entries are not those that were signed")
	}
	if err := p.unpack(packed); err != nil {
		return nil, err
	}
	return p, p.check()
}

// exact checks that no signature was added to a note, and that its signatures are in canonical
// form: then no byte of the note can differ.
func exact(n *note.Note) error {
	if len(n.UnverifiedSigs) > 0 {
		return errors.New("it bears a signature of an unknown key")
	}
	for _, s := range n.Sigs {
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return fmt.Errorf("its signature is not as it was written: %w", err)
		}
	}
	return nil
}

// check recomputes the tree.
func (p *Page) check() error {
	t, err := Continue(p.Before, p.Edge)
	if err != nil {
		return err
	}
	before := p.First - 1
	for _, e := range p.Entries {
		if e.Sequence <= before || e.Sequence > p.Last {
			return fmt.Errorf("message %d is out of its order", e.Sequence)
		}
		before = e.Sequence
		if err := t.Add(e.Leaf); err != nil {
			return err
		}
	}
	root, err := t.Root()
	switch {
	case err != nil:
		return err
	case t.Size != p.Size || root != p.Root:
		return errors.New("its entries do not make up the tree that was signed")
	}
	return nil
}

// follows reports whether a page continues another one directly.
func (p *Page) follows(before *Page) bool {
	if p.Number != before.Number+1 || p.Before != before.Size || !p.Created.Equal(before.Created) || p.First != before.Last+1 {
		return false
	}
	t, err := Continue(p.Before, p.Edge)
	if err != nil {
		return false
	}
	root, err := t.Root()
	return err == nil && root == before.Root
}
