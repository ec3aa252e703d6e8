package notary

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// A notary's own pages count for the next list as long as they are kept. A list by another
// notary counts for streams that this notary has not signed, and if it says that a stream has
// gone.
func TestWhichStreamsANotaryKnows(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		kept, ago time.Duration
		known     bool
	}{
		"lately":                    {time.Hour, time.Minute, true},
		"just within its time":      {time.Hour, time.Hour - 1, true},
		"when its time has come":    {time.Hour, time.Hour, false},
		"long ago, and all is kept": {0, 1000 * time.Hour, true},
		"long ago, without pages":   {-1, 1000 * time.Hour, true},
	} {
		n := &Notary{own: remembered{Seen: map[string]Checkpoint{"S": {Number: 4, Last: 9, Time: now.Add(-c.ago)}}}, kept: c.kept, now: now}
		if l, known := n.before(&lists{})["S"]; known != c.known || known && l != (Listed{Stream: "S", Page: 4, Last: 9}) {
			t.Errorf("what was signed %s is known: %t, want %t; as %+v", name, known, c.known, l)
		}
	}
	n := &Notary{own: remembered{Seen: map[string]Checkpoint{"gone": {Number: 4, Time: now}, "own": {Number: 4, Time: now}}}, now: now}
	known := n.before(&lists{last: &List{Streams: []Listed{{Stream: "gone", Page: 2, Gone: now}, {Stream: "others", Page: 3}, {Stream: "own", Page: 2}}}})
	if len(known) != 3 || known["gone"].Page != 2 || !known["gone"].Gone.Equal(now) || known["others"].Page != 3 || known["own"].Page != 4 {
		t.Errorf("with a list the known streams are %+v", known)
	}
}

// The next list has the existing streams, those that have gone, with the time, for as long as
// pages are kept, and a number after all known ones.
func TestTheNextList(t *testing.T) {
	now, made := time.Unix(1_000_000, 0), time.Unix(7, 0)
	last := &List{Number: 3, Streams: []Listed{
		{Stream: "back", Page: 1, Last: 2, Gone: now.Add(-time.Minute)}, {Stream: "expired", Gone: now.Add(-time.Hour - 1)}, {Stream: "gone", Gone: now.Add(-time.Hour)},
		{Stream: "lost", Page: 2}, {Stream: "new", Page: 4}, {Stream: "same", Page: 6},
	}}
	next := func(l *lists, own uint64, kept time.Duration) *List {
		n := &Notary{
			Options: Options{Log: slog.New(slog.DiscardHandler)}, own: remembered{List: listMemory{Number: own}}, kept: kept, now: now,
			heads: map[string]*head{"new": {page: &Page{Checkpoint: Checkpoint{Created: made, Number: 5, Last: 50}}}, "empty": {page: &Page{}}, "none": {}},
		}
		return n.nextList(l, []string{"back", "empty", "new", "none", "same"})
	}
	want := []Listed{
		{Stream: "back", Page: 1, Last: 2}, {Stream: "gone", Gone: now.Add(-time.Hour)}, {Stream: "lost", Page: 2, Gone: now}, {Stream: "new", Created: made, Page: 5, Last: 50}, {Stream: "same", Page: 6},
	}
	got := next(&lists{last: last, breaks: "why"}, 7, time.Hour)
	if got.Number != 8 || got.Before != last.Sum() || !got.Time.Equal(now) || got.Break != "why" || !slices.Equal(got.Streams, want) {
		t.Errorf("the next list is %+v, want the streams %+v", got, want)
	}
	if got := next(&lists{last: last}, 1, time.Hour); got.Number != 4 {
		t.Errorf("behind list 3 it has the number %d", got.Number)
	}
	if got := next(&lists{last: last}, 0, 0); len(got.Streams) != 6 {
		t.Errorf("where pages are kept for ever it has %+v", got.Streams)
	}
	if got := next(&lists{}, 7, time.Hour); got.Number != 8 || got.Before != [32]byte{} || len(got.Streams) != 1 {
		t.Errorf("the first one is %+v", got)
	}
}

// Stored pages count as missing until they may have expired, unless something else explains
// their absence.
func TestWhenPagesAreMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			seen      bool
			kept, ago time.Duration
			head      head
			want      bool
		}{
			"nothing was signed":       {false, time.Hour, 0, head{}, false},
			"it was signed lately":     {true, time.Hour, time.Hour - 1, head{}, true},
			"its time has come":        {true, time.Hour, time.Hour, head{}, false},
			"all is kept":              {true, 0, 1000 * time.Hour, head{}, true},
			"there is a page":          {true, time.Hour, 0, head{page: &Page{}}, false},
			"there is one, as a break": {true, time.Hour, 0, head{breaks: "the last page cannot be trusted"}, false},
		} {
			n := &Notary{kept: c.kept}
			if c.seen {
				n.own.Seen = map[string]Checkpoint{"S": {Time: time.Now().Add(-c.ago)}}
			}
			if got := n.missing("S", &c.head); got != c.want {
				t.Errorf("%s: pages are missed: %t", name, got)
			}
		}
	})
}

// said are the findings, one per line.
func said(findings []Finding) string {
	var all []string
	for _, f := range findings {
		all = append(all, f.String())
	}
	return strings.Join(all, "; ")
}

// If the last list has more of a stream than the record, that is a finding, unless it may be on
// purpose, or the pages may have expired since.
func TestAListIsHeldAgainstTheRecord(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	signed := now.Add(-time.Hour)
	for name, c := range map[string]struct {
		trust    Trust
		whole    uint64
		ago      time.Duration
		gone     time.Time
		standing *Standing // nil: the stream does not exist
		found    string
		left     int
	}{
		"as it is":                       {ago: time.Hour, standing: &Standing{Head: &Checkpoint{Number: 3}, Until: signed.Add(-1)}},
		"a page less":                    {ago: time.Hour, standing: &Standing{Head: &Checkpoint{Number: 2}, Until: signed.Add(-1)}, found: "there were 3, up to message 30"},
		"fewer, which were signed since": {ago: time.Hour, standing: &Standing{Head: &Checkpoint{Number: 1}, Until: signed}},
		"no page":                        {ago: time.Hour, standing: &Standing{Until: signed}, found: "the last pages about it are missing"},
		"cut off at its end":             {ago: time.Hour, trust: Trust{Until: true}, standing: &Standing{}},
		"before the stretch":             {ago: time.Hour, whole: 31, standing: &Standing{}},
		"at the begin of the stretch":    {ago: time.Hour, whole: 30, standing: &Standing{}, found: "the last pages about it are missing"},
		"a day ago":                      {ago: 23 * time.Hour, standing: &Standing{}, found: "the last pages about it are missing"},
		"pages that may have expired":    {ago: 23*time.Hour + 1, standing: &Standing{}},
		"left out":                       {ago: time.Hour, found: "the stream is left out: it was signed up to message 30"},
		"gone":                           {ago: time.Hour, gone: now, found: "has been missing since"},
		"left out on purpose":            {ago: time.Hour, trust: Trust{Partial: true}, left: 1},
		"there, of a part":               {ago: time.Hour, trust: Trust{Partial: true}, standing: &Standing{}, found: "the last pages about it are missing"},
	} {
		c.trust.Now = now
		v, r := &verifier{Trust: c.trust, whole: map[string]uint64{"S": c.whole}}, &Report{Streams: []Standing{{Stream: "other"}}}
		if c.standing != nil {
			c.standing.Stream = "S"
			r.Streams = append(r.Streams, *c.standing)
		}
		v.compare(&List{Time: now.Add(-c.ago), Streams: []Listed{{Stream: "S", Page: 3, Last: 30, Gone: c.gone}}}, r)
		if got := said(r.Findings); !strings.Contains(got, c.found) || (got == "") != (c.found == "") || len(r.LeftOut) != c.left {
			t.Errorf("%s: found is %q, want %q, and left out %v", name, got, c.found, r.LeftOut)
		}
	}
}

// A witness of lists and pages detects a record that is older, or another one.
func TestWhatAWitnessHasSeen(t *testing.T) {
	at := time.Unix(1000, 0)
	list := func(number uint64, at time.Time) *List { return &List{Number: number, Time: at} }
	seen := Checkpoint{Number: 2, Root: list(2, at).Sum(), Time: at}
	for name, c := range map[string]struct {
		all   []*List
		found string
	}{
		"the same":         {[]*List{list(2, at)}, ""},
		"it went on":       {[]*List{list(2, at), list(3, at.Add(1))}, ""},
		"the list is gone": {[]*List{list(3, at.Add(1))}, ""},
		"older":            {[]*List{list(1, at.Add(-1))}, "went back: on 1970-01-01T00:16:40Z there was list 2"},
		"none":             {nil, "went back"},
		"another":          {[]*List{list(2, at.Add(1))}, "list 2 of the streams is another one"},
	} {
		l, r := &listing{sums: map[uint64]tlog.Hash{}}, &Report{}
		for _, next := range c.all {
			l.last, l.sums[next.Number] = next, next.Sum()
		}
		l.witness(seen, r)
		if got := said(r.Findings); !strings.Contains(got, c.found) || (got == "") != (c.found == "") {
			t.Errorf("lists, %s: found is %q, want %q", name, got, c.found)
		}
	}
	page := func(change func(c *Checkpoint)) *Page {
		p := &Page{Checkpoint: Checkpoint{Created: time.Unix(7, 0), Number: 2, Size: 5, Root: [32]byte{1}, Time: at, Last: 9}}
		change(&p.Checkpoint)
		return p
	}
	for name, c := range map[string]struct {
		pages []*Page
		found string
	}{
		"the same":               {[]*Page{page(func(*Checkpoint) {})}, ""},
		"another tree":           {[]*Page{page(func(c *Checkpoint) { c.Root[0]++ })}, "the record is another one than on"},
		"another stream's":       {[]*Page{page(func(c *Checkpoint) { c.Root[0]++; c.Created = time.Unix(8, 0) })}, ""},
		"of another size":        {[]*Page{page(func(c *Checkpoint) { c.Root[0]++; c.Size++ })}, ""},
		"of another number":      {[]*Page{page(func(c *Checkpoint) { c.Root[0]++; c.Number++ })}, ""},
		"it went on":             {[]*Page{page(func(*Checkpoint) {}), page(func(c *Checkpoint) { c.Number++; c.Root[0]++; c.Time = at.Add(1) })}, ""},
		"older":                  {[]*Page{page(func(c *Checkpoint) { c.Time = at.Add(-1) })}, "the record went back"},
		"none":                   {nil, "the record went back"},
		"nothing was seen of it": {nil, ""},
	} {
		s := &scan{verifier: &verifier{Trust: Trust{Witness: map[string]Checkpoint{"S": page(func(*Checkpoint) {}).Checkpoint}}}, Standing: Standing{Stream: "S"}, pages: c.pages}
		if name == "nothing was seen of it" {
			s.Stream = "other"
		}
		if n := len(c.pages); n > 0 {
			s.Head = &c.pages[n-1].Checkpoint
		}
		s.witness()
		if got := said(s.findings); !strings.Contains(got, c.found) || (got == "") != (c.found == "") || c.found != "" && s.findings[0].Sequence != 9 {
			t.Errorf("pages, %s: found is %q, want %q", name, got, c.found)
		}
	}
}

// A message in no page is unproven, left out on purpose, or a forgery.
func TestWhatIsInNoPage(t *testing.T) {
	for name, c := range map[string]struct {
		sequence, whole uint64
		before          int64
		found           string
	}{
		"behind the last page":              {13, 0, 0, ""},
		"the last message of a page":        {12, 0, 0, "it was inserted"},
		"before the first page":             {4, 0, 6, "the pages that vouched for the message are missing"},
		"before the first page of all":      {4, 0, 0, "it was inserted"},
		"the first message of a page":       {5, 0, 6, "it was inserted"},
		"of before the stretch":             {4, 5, 6, ""},
		"the first message of the stretch":  {4, 4, 6, "the pages that vouched"},
		"in a page that begins the stretch": {7, 7, 0, "it was inserted"},
	} {
		s := &scan{verifier: &verifier{}, Standing: Standing{Stream: "S"}, state: bus.State{Whole: c.whole}, pages: []*Page{
			{Checkpoint: Checkpoint{First: 5, Last: 9}, Before: c.before}, {Checkpoint: Checkpoint{First: 10, Last: 12}, Before: c.before + 5},
		}}
		ok := s.unproven(events.Message{Sequence: c.sequence})
		if got := said(s.findings); ok != (c.found == "") || !strings.Contains(got, c.found) || ok && (got != "" || s.Unproven != 1) || !ok && s.Unproven != 0 {
			t.Errorf("%s: the message may be there: %t, found is %q, want %q", name, ok, got, c.found)
		}
		if want := map[bool]uint64{true: 13}[c.sequence == 13]; s.From != want {
			t.Errorf("%s: no page vouches from %d on, want %d", name, s.From, want)
		}
		if c.sequence == 13 {
			if s.unproven(events.Message{Sequence: 14}); s.From != 13 || s.Unproven != 2 {
				t.Errorf("no page vouches from %d on, for %d messages; want 13 and 2", s.From, s.Unproven)
			}
		}
	}
	s := &scan{verifier: &verifier{}}
	if !s.unproven(events.Message{Sequence: 7}) || s.Unproven != 1 || s.From != 0 {
		t.Errorf("without pages %d messages are not proven, from %d on; want 1, from 0", s.Unproven, s.From)
	}
}

// A signed message that does not exist was left out on purpose, has expired, or is a finding.
func TestWhatIsMissingOfAPage(t *testing.T) {
	const now = 1000 // and five seconds of clock skew
	for name, c := range map[string]struct {
		entry   Entry
		keeps   bus.Retention
		whole   uint64
		until   bool
		found   string
		expired int
		within  bool
	}{
		"within":                            {entry: Entry{Sequence: 9}, found: "S 9: the message that was signed is missing"},
		"before the stretch":                {entry: Entry{Sequence: 9}, whole: 10},
		"at the begin of the stretch":       {entry: Entry{Sequence: 9}, whole: 9, found: "is missing"},
		"behind the end":                    {entry: Entry{Sequence: 21}, found: "the end of the stream is cut off"},
		"behind an end that was cut":        {entry: Entry{Sequence: 21}, until: true},
		"the end of what was cut":           {entry: Entry{Sequence: 20}, until: true, found: "the message that was signed is missing"},
		"whose time has come":               {entry: Entry{Sequence: 9, Expires: now + 5}, expired: 1, within: true},
		"whose time has come, at the front": {entry: Entry{Sequence: 5, Expires: now + 5}, expired: 1},
		"whose time has not come":           {entry: Entry{Sequence: 9, Expires: now + 6}, found: "is missing"},
		"at the front, by its age":          {entry: Entry{Sequence: 4, Time: now - 55}, keeps: bus.Retention{Age: time.Minute}, expired: 1},
		"at the front, before its time":     {entry: Entry{Sequence: 4, Time: now - 54}, keeps: bus.Retention{Age: time.Minute}},
		"the first that is there":           {entry: Entry{Sequence: 5, Time: now - 55}, keeps: bus.Retention{Age: time.Minute}, found: "is missing"},
	} {
		s := &scan{
			verifier: &verifier{Trust: Trust{Until: c.until}}, Standing: Standing{Stream: "S", First: 5, Last: 20}, state: bus.State{Whole: c.whole}, now: time.Unix(now, 0),
			entries: []Entry{c.entry}, keeps: []bus.Retention{c.keeps},
		}
		s.missing(0, s.First)
		if got := said(s.findings); !strings.Contains(got, c.found) || (got == "") != (c.found == "") || s.Expired != c.expired || (s.front.within > 0) != c.within {
			t.Errorf("%s: found is %q, want %q, and %d have expired, %d bytes within", name, got, c.found, s.Expired, s.front.within)
		}
	}
}

// Each entry gets the smallest retention since its page; if the retention was reduced, a remark
// says since when.
func TestWhatHasBeenKeptSince(t *testing.T) {
	for name, c := range map[string]struct {
		keeps, want []int64
		remark      string
	}{
		"the same": {[]int64{5, 5}, []int64{5, 5, 5}, ""}, "more": {[]int64{5, 8, 9}, []int64{5, 8, 8, 9, 9, 9}, ""},
		"less": {[]int64{8, 8, 5}, []int64{5, 5, 5, 5, 5, 5}, "less is kept than was at first, since 1970-01-01T00:00:02Z"}, "less, and more again": {[]int64{8, 5, 9}, []int64{5, 5, 5, 9, 9, 9}, "since 1970-01-01T00:00:01Z"},
		"nothing": {nil, nil, ""}, "all, and then less": {[]int64{0, 5}, []int64{5, 5, 5}, "since 1970-01-01T00:00:01Z"},
	} {
		s := &scan{Standing: Standing{Stream: "S"}}
		for i, bytes := range c.keeps {
			s.pages = append(s.pages, &Page{Checkpoint: Checkpoint{Keeps: bus.Retention{Bytes: bytes}, Time: time.Unix(int64(i), 0)}, Entries: make([]Entry, i+1)})
		}
		s.take()
		var got []int64
		for _, r := range s.keeps {
			got = append(got, r.Bytes)
		}
		if remarks := said(s.remarks); !slices.Equal(got, c.want) || len(s.entries) != len(c.want) || !strings.Contains(remarks, c.remark) || (remarks == "") != (c.remark == "") {
			t.Errorf("%s: of %d entries is kept %v, want %v; remarked is %q", name, len(s.entries), got, c.want, remarks)
		}
	}
}

// The findings of a stream are sorted, and Heads gives its checkpoint to a witness.
func TestWhatComesOfAStream(t *testing.T) {
	s := &scan{Standing: Standing{Stream: "S"}, findings: []Finding{{Sequence: 7}, {Sequence: 2, What: "a"}, {}, {Sequence: 2, What: "b"}, {Sequence: 3}}}
	s.checker.Gaps, s.checker.Left = 4, 5
	s.conclude()
	var order []string
	for _, f := range s.findings {
		order = append(order, fmt.Sprint(f.Sequence, f.What))
	}
	if !slices.Equal(order, []string{"0", "2a", "2b", "3", "7"}) || s.Gaps != 4 || s.Left != 5 {
		t.Errorf("the findings are in the order %v, with %d gaps and %d left out", order, s.Gaps, s.Left)
	}
	r := &Report{Streams: []Standing{{Stream: "a", Head: &Checkpoint{Number: 3}}, {Stream: "b"}}}
	if heads := r.Heads(); len(heads) != 1 || heads["a"].Number != 3 {
		t.Errorf("the heads are %+v", heads)
	}
	r.List = &List{Number: 9}
	if heads := r.Heads(); len(heads) != 2 || heads["NOTARY"].Number != 9 {
		t.Errorf("with a list the heads are %+v", heads)
	}
}
