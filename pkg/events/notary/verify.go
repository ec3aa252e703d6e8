package notary

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary/internal/consistency"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Finding is a problem in a record.
type Finding struct {
	Stream string `json:"stream"`
	// Sequence is the message, or the first one of a range up to To; 0: the finding is about the
	// whole stream.
	Sequence uint64 `json:"sequence,omitempty"`
	To       uint64 `json:"to,omitempty"`
	What     string `json:"what"`
}

// String describes the finding in one line.
func (f Finding) String() string {
	switch {
	case f.Sequence == 0:
		return f.Stream + ": " + f.What
	case f.To > f.Sequence:
		return fmt.Sprintf("%s %d to %d: %s", f.Stream, f.Sequence, f.To, f.What)
	default:
		return fmt.Sprintf("%s %d: %s", f.Stream, f.Sequence, f.What)
	}
}

// Standing is the result of verifying one stream.
type Standing struct {
	Stream   string `json:"stream"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Messages int    `json:"messages"`
	// Proven messages are exactly those that were signed. Unproven ones are in no page: From is
	// the first of those after the last page.
	Proven   int    `json:"proven"`
	Unproven int    `json:"unproven"`
	From     uint64 `json:"from,omitempty"`
	// Expired messages were signed, and have expired.
	Expired int `json:"expired,omitempty"`
	// Pages is the number of pages about the stream. The first one was signed at Since, the last
	// one at Until.
	Pages int       `json:"pages"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Gaps is the number of gaps that the watcher recorded.
	Gaps int `json:"gaps,omitempty"`
	// Left is the number of versions of objects that the watcher recorded as left out, because
	// they came faster than it records them.
	Left uint64 `json:"left,omitempty"`
	// Head is the newest checkpoint; nil: no page could be trusted.
	Head *Checkpoint `json:"head,omitempty"`
}

// Report is the result of verifying a record.
type Report struct {
	// Signed is false when no key was given: then Verify detects accidents, but no forgeries.
	Signed   bool       `json:"signed"`
	Streams  []Standing `json:"streams"`
	Findings []Finding  `json:"findings"`
	// Remarks are worth knowing but are no problems.
	Remarks []Finding `json:"remarks,omitempty"`
	// List is the last signed list of streams; nil: there is none.
	List *List `json:"list,omitempty"`
	// LeftOut are the streams of the list that a deliberately partial record leaves out.
	LeftOut []string `json:"leftOut,omitempty"`
}

// Heads are the newest trusted checkpoints, by stream, for [Trust.Witness].
func (r *Report) Heads() map[string]Checkpoint {
	heads := map[string]Checkpoint{}
	for _, s := range r.Streams {
		if s.Head != nil {
			heads[s.Stream] = *s.Head
		}
	}
	if r.List != nil {
		heads[subject.NotaryStream] = r.List.head()
	}
	return heads
}

// Trust is what a record is verified against.
type Trust struct {
	// Known are the notaries' public keys; nil: none.
	Known note.Verifiers
	// Now limits what may have expired; zero: the current time.
	Now time.Time
	// Until is true for a record that was cut off at its end on purpose.
	Until bool
	// Partial is true for a record from which whole streams were left out on purpose.
	Partial bool
	// File is true for a record in a file, whose author can claim anything about the streams'
	// states.
	File bool
	// Witness are the newest checkpoints of the streams that were seen at an earlier time: the
	// record must lead to them, or continue after them.
	Witness map[string]Checkpoint
}

// Verify reads a whole record, and reports what is proven, and any problems.
//
// Errors: the record cannot be read at all.
func Verify(ctx context.Context, from bus.Archive, t Trust) (*Report, error) {
	if t.Now.IsZero() {
		t.Now = time.Now()
	}
	v := &verifier{from: from, Trust: t, whole: map[string]uint64{}}
	lists, err := v.listing(ctx) // before the streams: a stream created meanwhile is in no list
	if err != nil {
		return nil, err
	}
	streams, err := Streams(ctx, from)
	if err != nil {
		return nil, err
	}
	r := &Report{Signed: t.Known != nil, Streams: []Standing{}, Findings: []Finding{}}
	for _, name := range streams {
		s, err := v.stream(ctx, name)
		if errors.Is(err, bus.ErrNoStream) {
			continue // the pages show whether it existed
		}
		if err != nil {
			return nil, fmt.Errorf("verify %s: %w", name, err)
		}
		v.whole[name] = s.state.Whole
		r.Streams = append(r.Streams, s.Standing)
		r.Findings, r.Remarks = append(r.Findings, s.findings...), append(r.Remarks, s.remarks...)
	}
	if err := v.listed(ctx, lists, r); err != nil {
		return nil, err
	}
	lost, err := v.lost(ctx, lists, r.Streams)
	if r.Findings = append(r.Findings, lost...); v.unread != nil {
		r.Findings = append(r.Findings, Finding{Stream: subject.NotaryStream, What: fmt.Sprintf("the pages cannot be read: %v", v.unread)})
	}
	return r, err
}

type verifier struct {
	from bus.Archive
	Trust

	unread    error             // why some pages could not be read
	vouched   bool              // some page could be trusted
	mentioned uint64            // the highest list number in any page
	whole     map[string]uint64 // by stream: the sequence at which an exported stretch begins
}

// scan is the verification of one stream.
type scan struct {
	*verifier
	Standing
	state    bus.State
	now      time.Time
	pages    []*Page
	entries  []Entry
	at       int   // the next entry
	absent   []int // entries whose messages were not read
	keeps    []bus.Retention
	findings []Finding
	remarks  []Finding
	checker  consistency.Checker
	front    front
}

func (v *verifier) stream(ctx context.Context, name string) (*scan, error) {
	s := &scan{verifier: v, Standing: Standing{Stream: name}}
	// Read the pages first: no page covers messages that are stored meanwhile.
	stored, err := v.stored(ctx, name)
	if err != nil {
		return nil, err
	}
	if s.state, err = v.from.StreamState(ctx, name); err != nil {
		return nil, err
	}
	s.First, s.Last = s.state.First, s.state.Last
	if s.now = v.Now; s.state.Now.Before(s.now) {
		s.now = s.state.Now // for a file: when the file ends
	}
	s.checker = consistency.New(s.state, name == subject.LogStream(kindOf(name)))
	s.open(stored)
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	for ; s.at < len(s.entries); s.at++ {
		s.absent = append(s.absent, s.at)
	}
	if err := s.concludeMissing(ctx); err != nil {
		return nil, err
	}
	s.conclude()
	return s, nil
}

func kindOf(stream string) kinds.Name {
	kind, _ := subject.KindOfStream(stream)
	return kind
}

// stored are the messages with the pages about a stream.
func (v *verifier) stored(ctx context.Context, name string) (stored []events.Message, err error) {
	err = v.from.Read(ctx, bus.Passage{Stream: subject.NotaryStream, Subject: subject.Notary(name)}, func(batch []events.Message) error {
		stored = append(stored, batch...)
		return nil
	})
	return stored, v.pagesRead(err)
}

// pagesRead handles the error of reading the notary's stream. Unreadable pages are reported
// once, and the messages that they cover are not proven.
func (v *verifier) pagesRead(err error) error {
	switch {
	case errors.Is(err, events.ErrDamaged):
		v.unread = err
		return nil
	case errors.Is(err, bus.ErrNoStream):
		return nil
	}
	return err
}

func (s *scan) find(sequence uint64, format string, args ...any) {
	s.findings = append(s.findings, Finding{Stream: s.Stream, Sequence: sequence, What: fmt.Sprintf(format, args...)})
}

// open opens the pages, and checks that they follow each other.
func (s *scan) open(stored []events.Message) {
	s.Pages = len(stored)
	if s.Known == nil {
		return
	}
	for _, m := range stored {
		p, err := openMessage(m, s.Stream, s.Known)
		if err != nil {
			s.findings = append(s.findings, Finding{Stream: subject.NotaryStream, Sequence: m.Sequence, What: fmt.Sprintf("the page about %s cannot be trusted: %v", s.Stream, err)})
			continue
		}
		s.vouched, s.mentioned = true, max(s.mentioned, p.Listed)
		s.join(p, m.Sequence)
		s.pages = append(s.pages, p)
	}
	s.take()
	if len(s.pages) == 0 && s.Last > 0 {
		s.find(0, "there is no page that could be trusted: no signature covers any of it")
	}
	if len(s.pages) > 0 {
		s.Since, s.Until = s.pages[0].Time, s.pages[len(s.pages)-1].Time
		s.Head = &s.pages[len(s.pages)-1].Checkpoint
		if last := s.Head; !last.Created.Equal(s.state.Created) {
			s.find(0, "the stream was made anew on %s, and no page tells why", s.state.Created.UTC().Format(time.RFC3339))
		}
	}
	s.beginning()
	s.witness()
}

// take collects the entries of all pages, and for each the smallest retention since then, also
// from pages without entries.
func (s *scan) take() {
	least := make([]bus.Retention, len(s.pages))
	for i := len(s.pages) - 1; i >= 0; i-- {
		if least[i] = s.pages[i].Keeps; i+1 < len(s.pages) {
			least[i] = lesser(least[i], least[i+1])
		}
	}
	if n := len(s.pages); n > 0 && least[0] != s.pages[0].Keeps {
		at := slices.IndexFunc(s.pages, func(p *Page) bool { return lesser(s.pages[0].Keeps, p.Keeps) != s.pages[0].Keeps })
		s.remarks = append(s.remarks, Finding{Stream: s.Stream, What: fmt.Sprintf(
			"less is kept than was at first, since %s: %s", s.pages[at].Time.UTC().Format(time.RFC3339), kept(least[0]))})
	}
	for i, p := range s.pages {
		s.entries = append(s.entries, p.Entries...)
		for range p.Entries {
			s.keeps = append(s.keeps, least[i])
		}
	}
}

// beginning checks the first page of a tree: messages from before the first round of a notary
// are signed only as the notary found them.
func (s *scan) beginning() {
	if len(s.pages) == 0 {
		return
	}
	if p := s.pages[0]; p.Number > 1 {
		if p.Keeps == (bus.Retention{}) && s.state.Whole == 0 {
			s.find(0, "the front is cut off with the pages about it, up to message %d, though all is kept", p.First-1)
		}
		return
	}
	first := s.pages[0]
	oldest := first.Created
	if len(first.Entries) > 0 {
		oldest = time.Unix(first.Entries[0].Time, 0)
	}
	if first.Time.Sub(oldest) > patience {
		s.remarks = append(s.remarks, Finding{Stream: s.Stream, Sequence: first.First, To: first.Last, What: fmt.Sprintf(
			"vouched for since %s, and written before, from %s on", first.Time.UTC().Format(time.RFC3339), oldest.UTC().Format(time.RFC3339))})
	}
}

// witness checks the pages against a checkpoint that was seen earlier.
func (s *scan) witness() {
	seen, ok := s.Witness[s.Stream]
	switch {
	case !ok:
	case s.Head == nil || s.Head.Time.Before(seen.Time):
		s.find(seen.Last, "the record went back: on %s it was vouched for up to here", seen.Time.UTC().Format(time.RFC3339))
	default:
		for _, p := range s.pages {
			if p.Size == seen.Size && p.Created.Equal(seen.Created) && p.Number == seen.Number && p.Root != seen.Root {
				s.find(seen.Last, "the record is another one than on %s: up to here it was vouched for otherwise", seen.Time.UTC().Format(time.RFC3339))
			}
		}
	}
}

// join checks a page against the previous one. A page that begins a new tree makes the earlier
// pages say nothing about the current stream.
func (s *scan) join(p *Page, sequence uint64) {
	if len(s.pages) == 0 {
		if p.Before == 0 && p.Break != "" {
			s.broken(p)
		}
		return
	}
	before := s.pages[len(s.pages)-1]
	switch {
	case p.follows(before):
	case p.Before == 0 && p.Break != "":
		s.broken(p)
		s.pages = s.pages[:0]
	case p.Created.Equal(before.Created) && p.First > before.Last && p.First <= s.state.Whole:
		// The pages in between were left out of the stretch, with the messages that they cover.
	default:
		s.findings = append(s.findings, Finding{
			Stream: subject.NotaryStream, Sequence: sequence,
			What: fmt.Sprintf("the page about %s does not follow the one before it, which ends with message %d: pages are missing, or out of order", s.Stream, before.Last),
		})
	}
}

func (s *scan) broken(p *Page) {
	s.find(p.First, "the record was broken by %s: %s; what is behind it is vouched for anew, and what was before is not", p.Time.UTC().Format(time.RFC3339), p.Break)
}

// read goes through the stream and the entries side by side.
func (s *scan) read(ctx context.Context) error {
	next := uint64(1)
	err := s.from.Read(ctx, bus.Passage{Stream: s.Stream, To: s.Last}, func(batch []events.Message) error {
		for _, m := range batch {
			s.message(m)
			next = m.Sequence + 1
		}
		return nil
	})
	if errors.Is(err, events.ErrDamaged) {
		s.find(next, "the stream cannot be read from here on: %v", err)
		s.at = len(s.entries)
		return nil
	}
	if s.Messages == 0 {
		s.First = s.Last + 1
	}
	return err
}

func (s *scan) message(m events.Message) {
	if s.Messages++; s.Messages == 1 {
		s.First = m.Sequence // earlier messages are gone from the front, perhaps just now
	}
	size := sizeOf(m)
	s.front.bytes, s.front.largest = s.front.bytes+size, max(s.front.largest, size)
	for ; s.at < len(s.entries) && s.entries[s.at].Sequence < m.Sequence; s.at++ {
		s.absent = append(s.absent, s.at)
	}
	if s.at < len(s.entries) && s.entries[s.at].Sequence == m.Sequence {
		e := s.entries[s.at]
		s.at++
		if Leaf(m) != e.Leaf {
			s.find(m.Sequence, "the message is not the one that was signed")
			return
		}
		s.Proven++
	} else if !s.unproven(m) {
		return
	}
	s.checker.Message(m, s.find)
}

// unproven judges a message that is in no page; false when it should be in one.
func (s *scan) unproven(m events.Message) bool {
	if len(s.pages) == 0 {
		s.Unproven++
		return true
	}
	first, last := s.pages[0], s.pages[len(s.pages)-1]
	switch {
	case m.Sequence > last.Last:
		if s.Unproven++; s.From == 0 {
			s.From = m.Sequence
			s.late(m)
		}
		return true
	case m.Sequence < s.state.Whole:
		s.Unproven++ // its page was not exported
		return true
	case m.Sequence < first.First && first.Before > 0:
		s.find(m.Sequence, "the pages that vouched for the message are missing")
		return false
	default:
		s.find(m.Sequence, "the message was not there when the others around it were signed: it was inserted")
		return false
	}
}

// late reports that no notary has signed a message that should have been signed long ago.
func (s *scan) late(m events.Message) {
	if waited := s.now.Sub(m.Time); waited > patience && !s.Trust.Until {
		s.find(m.Sequence, "no notary has signed what was stored from here on, %v ago and later: the notary stands still, or its last pages were removed", waited.Round(time.Second))
	}
}

// patience is how long it may take until a stored message is signed.
const patience = 5 * time.Minute

// slack is the tolerance between the clocks that decide whether a message has expired.
const slack = 5 * time.Second

// concludeMissing judges what was not read, once it is known where the stream begins now: a bus that makes
// room while it is read has messages that its reader did not get in time.
func (s *scan) concludeMissing(ctx context.Context) error {
	now, begins := s.state, s.First
	if !s.File && len(s.absent)+s.checker.Holes() > 0 {
		switch state, err := s.from.StreamState(ctx, s.Stream); {
		case errors.Is(err, bus.ErrNoStream):
		case err != nil:
			return err
		default:
			now, begins = state, max(begins, state.First)
		}
	}
	for _, at := range s.absent {
		s.missing(at, begins)
	}
	s.checker.BeginsAt(begins)
	s.concludeFront(now)
	return nil
}

// missing judges an entry whose message was not read, of a stream that begins with a message.
func (s *scan) missing(at int, begins uint64) {
	e, keeps := s.entries[at], s.keeps[at]
	now := s.now.Add(slack).Unix()
	what := "the message that was signed is missing"
	switch {
	case e.Sequence < s.state.Whole, s.Trust.Until && e.Sequence > s.Last:
		return // left out on purpose
	case e.Expires > 0 && e.Expires <= now:
		s.Expired++
		if e.Sequence > begins {
			s.front.expired(e)
		}
		return
	case e.Sequence < begins:
		if s.front.missing(at, e, keeps, now) {
			s.Expired++
		}
		return
	case e.Sequence > s.Last:
		what = "the end of the stream is cut off: what was signed is there no more"
	}
	s.extend(at, what)
}

func (s *scan) conclude() {
	s.checker.Conclude(s.find)
	s.Gaps, s.Left = s.checker.Gaps, s.checker.Left
	slices.SortStableFunc(s.findings, func(a, b Finding) int { return int(int64(a.Sequence) - int64(b.Sequence)) })
}
