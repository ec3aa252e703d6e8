package notary

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events"
)

// List is what a notary signs about all streams together: which streams exist, and the last page
// about each. Without it, a stream could be left out of a record together with its pages, and no
// check would notice. Lists are numbered, and each has the sum of its predecessor.
type List struct {
	// Number of the list, from 1.
	Number uint64 `json:"number"`
	// Before is the sum of the previous list; zero: this is the first one.
	Before [sha256.Size]byte `json:"-"`
	// Time is the time of the signature, by the bus's clock.
	Time time.Time `json:"time"`
	// Break says why the lists begin anew; empty: they do not, or this is the first one.
	Break string `json:"break,omitempty"`
	// Streams are the streams that have or had a page, by name.
	Streams []Listed `json:"streams"`

	by []note.Signature
}

// Listed is a stream in a list.
type Listed struct {
	Stream  string    `json:"stream"`
	Created time.Time `json:"created"`
	// Page is the number of the last page about the stream, and Last the last message in it.
	Page uint64 `json:"page"`
	Last uint64 `json:"last"`
	// Gone is since when the stream has been missing; zero: it existed.
	Gone time.Time `json:"gone,omitzero"`
}

// listOrigin is the first line of a list.
const listOrigin = "millrace streams"

// text is the signed text.
func (l *List) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nnumber %d before %s\n", listOrigin, l.Number, base64.StdEncoding.EncodeToString(l.Before[:]))
	fmt.Fprintf(&b, "time %s\n", l.Time.UTC().Format(time.RFC3339Nano))
	if l.Break != "" {
		fmt.Fprintf(&b, "break %s\n", strings.Join(strings.Fields(l.Break), " "))
	}
	for _, s := range l.Streams {
		fmt.Fprintf(&b, "stream %s %d %d %d", s.Stream, s.Created.UnixNano(), s.Page, s.Last)
		if !s.Gone.IsZero() {
			fmt.Fprintf(&b, " gone %d", s.Gone.UnixNano())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Sum identifies the list in its successor.
func (l *List) Sum() [sha256.Size]byte { return sha256.Sum256([]byte(l.text())) }

var errList = errors.New("it is not written as a list of streams is")

// parseList parses the output of text.
func parseList(text string) (*List, error) {
	l, lines := &List{}, strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 3 {
		return nil, errList
	}
	var before, at string
	_, err := fmt.Sscanf(lines[1], "number %d before %s", &l.Number, &before)
	if err == nil {
		_, err = fmt.Sscanf(lines[2], "time %s", &at)
	}
	if err == nil {
		l.Time, err = time.Parse(time.RFC3339Nano, at)
	}
	sum, bad := base64.StdEncoding.DecodeString(before)
	if err != nil || bad != nil || copy(l.Before[:], sum) != sha256.Size {
		return nil, errList
	}
	lines = lines[3:]
	if len(lines) > 0 {
		if reason, is := strings.CutPrefix(lines[0], "break "); is {
			l.Break, lines = reason, lines[1:]
		}
	}
	for _, line := range lines {
		s, err := parseListed(line)
		if err != nil || len(l.Streams) > 0 && l.Streams[len(l.Streams)-1].Stream >= s.Stream {
			return nil, errList
		}
		l.Streams = append(l.Streams, s)
	}
	if l.text() != text { // accept only the exact form
		return nil, errList
	}
	return l, nil
}

func parseListed(line string) (s Listed, err error) {
	var created, gone int64
	if strings.Count(line, " ") > 4 {
		_, err = fmt.Sscanf(line, "stream %s %d %d %d gone %d", &s.Stream, &created, &s.Page, &s.Last, &gone)
		s.Gone = time.Unix(0, gone)
	} else {
		_, err = fmt.Sscanf(line, "stream %s %d %d %d", &s.Stream, &created, &s.Page, &s.Last)
	}
	s.Created = time.Unix(0, created)
	return s, err
}

// Sign gives the stored form of a list: a signed note.
func (l *List) Sign(by note.Signer) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: l.text()}, by)
	if err != nil {
		return nil, fmt.Errorf("sign the list of streams: %w", err)
	}
	return signed, nil
}

// OpenList parses a stored list, and checks that a known key has signed it.
//
// Errors: the list is malformed, or not signed by a known key.
func OpenList(stored []byte, known note.Verifiers) (*List, error) {
	n, err := note.Open(bytes.Clone(stored), known)
	if err != nil {
		return nil, fmt.Errorf("no known key has signed it: %w", err)
	}
	if err := exact(n); err != nil {
		return nil, err
	}
	l, err := parseList(n.Text)
	if err != nil {
		return nil, err
	}
	l.by = n.Sigs
	return l, nil
}

// openList opens the list in a message, and checks when it was signed.
func openList(m events.Message, known note.Verifiers) (*List, error) {
	if err := events.Verify(m); err != nil {
		return nil, err
	}
	l, err := OpenList(m.Data, known)
	if err == nil {
		err = counts(known, l.by, l.Time, m.Time)
	}
	return l, err
}

// follows reports whether a list is the direct successor of another.
func (l *List) follows(before *List) bool {
	return l.Number == before.Number+1 && l.Before == before.Sum()
}
