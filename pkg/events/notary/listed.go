package notary

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// listing is the result of reading the lists of streams in a record.
type listing struct {
	last     *List // nil: no list
	sums     map[uint64]tlog.Hash
	findings []Finding
}

func (l *listing) find(sequence uint64, format string, args ...any) {
	l.findings = append(l.findings, Finding{Stream: subject.NotaryStream, Sequence: sequence, What: fmt.Sprintf(format, args...)})
}

// listing reads the lists, and checks that each follows its predecessor.
func (v *verifier) listing(ctx context.Context) (*listing, error) {
	l := &listing{sums: map[uint64]tlog.Hash{}}
	if v.Known == nil {
		return l, nil
	}
	stored, err := v.stored(ctx, subject.NotaryStream)
	for _, m := range stored {
		l.add(m, v)
	}
	return l, err
}

func (l *listing) add(m events.Message, v *verifier) {
	next, err := openList(m, v.Known)
	if err != nil {
		l.find(m.Sequence, "the list of the streams cannot be trusted: %v", err)
		return
	}
	switch {
	case next.Break != "":
		l.find(m.Sequence, "the lists of the streams begin anew on %s: %s", next.Time.UTC().Format(time.RFC3339), next.Break)
	case l.last != nil && !next.follows(l.last):
		l.find(m.Sequence, "list %d of the streams does not follow list %d: lists are missing, or out of order", next.Number, l.last.Number)
	}
	l.last, l.sums[next.Number] = next, next.Sum()
}

// head is the list as a checkpoint, for a witness.
func (l *List) head() Checkpoint {
	return Checkpoint{Stream: subject.NotaryStream, Number: l.Number, Root: l.Sum(), Time: l.Time}
}

// listed checks the record against the last list: whether every signed stream is there.
func (v *verifier) listed(ctx context.Context, l *listing, r *Report) error {
	if v.Known == nil {
		return nil
	}
	if v.mentioned > l.number() { // a notary may have stored another list meanwhile
		again, err := v.listing(ctx)
		if err != nil {
			return err
		}
		if again.number() >= v.mentioned {
			v.mentioned = 0
		}
	}
	r.List = l.last
	r.Findings = append(r.Findings, l.findings...)
	about := func(what string) Finding { return Finding{Stream: subject.NotaryStream, What: what} }
	switch what := fmt.Sprintf("list %d of the streams is missing, which was there when pages of this record were signed: whole streams may have been left out", v.mentioned); {
	case v.mentioned > l.number() && v.Partial && l.last == nil:
		r.Remarks = append(r.Remarks, about(what))
	case v.mentioned > l.number():
		r.Findings = append(r.Findings, about(what))
	case l.last == nil && v.vouched:
		r.Remarks = append(r.Remarks, about("there is no list of the streams, as notaries of older versions write none: nothing shows whether whole streams were left out"))
	}
	if seen, ok := v.Witness[subject.NotaryStream]; ok {
		l.witness(seen, r)
	}
	if l.last != nil {
		v.compare(l.last, r)
	}
	return nil
}

// number is the number of the last list; 0: there is none.
func (l *listing) number() uint64 {
	if l.last == nil {
		return 0
	}
	return l.last.Number
}

// witness checks the lists against a checkpoint that was seen earlier.
func (l *listing) witness(seen Checkpoint, r *Report) {
	root, there := l.sums[seen.Number]
	switch {
	case l.last == nil || l.last.Time.Before(seen.Time):
		r.Findings = append(r.Findings, Finding{Stream: subject.NotaryStream, What: fmt.Sprintf("the lists of the streams went back: on %s there was list %d", seen.Time.UTC().Format(time.RFC3339), seen.Number)})
	case there && root != seen.Root:
		r.Findings = append(r.Findings, Finding{Stream: subject.NotaryStream, What: fmt.Sprintf("list %d of the streams is another one than on %s", seen.Number, seen.Time.UTC().Format(time.RFC3339))})
	}
}

// compare reports the streams of a list that are missing, and those whose last pages are
// missing.
func (v *verifier) compare(last *List, r *Report) {
	for _, l := range last.Streams {
		at := slices.IndexFunc(r.Streams, func(s Standing) bool { return s.Stream == l.Stream })
		switch {
		case at < 0 && v.Partial:
			r.LeftOut = append(r.LeftOut, l.Stream)
		case at < 0 && !l.Gone.IsZero():
			v.miss(l, r, "the stream is not there: it was signed up to message %d, and has been missing since %s", l.Last, l.Gone.UTC().Format(time.RFC3339))
		case at < 0:
			v.miss(l, r, "the stream is left out: it was signed up to message %d, and was there on %s", l.Last, last.Time.UTC().Format(time.RFC3339))
		case v.Until || l.Last < v.whole[l.Stream] || v.Now.Sub(last.Time) > margin-quiet:
			// The last page may have been left out on purpose, or have expired.
		case r.Streams[at].Head == nil || r.Streams[at].Head.Number < l.Page && r.Streams[at].Until.Before(last.Time):
			v.miss(l, r, "the last pages about it are missing: on %s there were %d, up to message %d", last.Time.UTC().Format(time.RFC3339), l.Page, l.Last)
		}
	}
}

func (v *verifier) miss(l Listed, r *Report, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Stream: l.Stream, What: fmt.Sprintf(format, args...)})
}

// lost are the missing streams that have pages but are in no list.
func (v *verifier) lost(ctx context.Context, l *listing, streams []Standing) (found []Finding, err error) {
	told := map[string]bool{subject.NotaryStream: true}
	for _, s := range streams {
		told[s.Stream] = true
	}
	if l.last != nil && !v.Partial {
		for _, s := range l.last.Streams {
			told[s.Stream] = true
		}
	}
	err = v.from.Read(ctx, bus.Passage{Stream: subject.NotaryStream, HeadersOnly: true}, func(batch []events.Message) error {
		for _, m := range batch {
			about, ok := subject.ParseNotary(m.Subject)
			if !ok || told[about] {
				continue
			}
			told[about] = true
			found = append(found, Finding{Stream: about, What: "there are pages about it, and the stream is not there"})
		}
		return nil
	})
	return found, v.pagesRead(err)
}
