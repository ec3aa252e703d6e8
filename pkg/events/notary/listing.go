package notary

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// listEvery is the age after which a list is renewed although only the pages in it have changed.
const listEvery = 10 * time.Minute

// listTries limits how often a notary retries a list in one round, when other notaries are
// faster.
const listTries = 3

// listType is the content type of a list.
const listType = "application/vnd.millrace.streams"

// lists is the last list, and where it is stored.
type lists struct {
	last     *List // nil: no list
	sequence uint64
	// breaks says why the next list begins anew.
	breaks string
}

// list stores a list of the streams if there is none, or if the last one is outdated or old.
//
// Errors: ErrGone, among others.
func (n *Notary) list(ctx context.Context, streams []string) error {
	for range listTries {
		h, err := n.lastList(ctx)
		if err != nil {
			return err
		}
		next := n.nextList(h, streams)
		if len(next.Streams) == 0 || h.last != nil && h.breaks == "" && next.Time.Sub(h.last.Time) < listEvery && slices.EqualFunc(h.last.Streams, next.Streams, sameStream) {
			return nil
		}
		err = n.storeList(ctx, h, next)
		if !errors.Is(err, bus.ErrOvertaken) { // by another notary, whose list may be good enough
			return err
		}
		n.lists = nil
	}
	return nil // the other notaries write the lists
}

// sameStream reports whether two entries differ only in their last page.
func sameStream(a, b Listed) bool {
	return a.Stream == b.Stream && a.Created.Equal(b.Created) && a.Gone.Equal(b.Gone)
}

// lastList finds the last list, in memory or on the bus.
func (n *Notary) lastList(ctx context.Context) (*lists, error) {
	if n.lists != nil {
		return n.lists, nil
	}
	m, ok, err := n.bus.Last(ctx, subject.NotaryStream, subject.Notary(subject.NotaryStream))
	if err != nil {
		return nil, fmt.Errorf("look for the last list of the streams: %w", err)
	}
	h := &lists{sequence: m.Sequence}
	if ok {
		if h.last, err = openList(m, n.Known); err != nil {
			h.last, h.breaks = nil, "the last list cannot be trusted: "+err.Error()
			n.Log.Error("the last list of streams has no trusted signature; starting new trees", "message", m.Sequence, "error", err)
		}
	}
	known := n.own.List
	switch {
	case known.Number == 0 || h.breaks != "":
	case h.last == nil && (n.kept <= 0 || n.now.Sub(known.Time) < n.kept):
		if !n.BeginAnew {
			return nil, fmt.Errorf("%w: the list of the streams was number %d", ErrGone, known.Number)
		}
		n.beginAnew(time.Now())
	case h.last != nil && h.last.Number < known.Number:
		h.breaks = fmt.Sprintf("lists that were stored are there no more; the last one was number %d", known.Number)
	}
	if h.last == nil && h.breaks == "" {
		h.breaks = n.anew
	}
	n.lists = h
	if h.last != nil && h.breaks == "" {
		n.knowList(h.last)
	}
	return h, nil
}

// knowList records the last list that this notary knows.
func (n *Notary) knowList(l *List) {
	n.own.List, n.changed = listMemory{l.Number, l.Time}, true
}

// nextList is the list for the current streams.
func (n *Notary) nextList(h *lists, streams []string) *List {
	next := &List{Number: n.own.List.Number + 1, Time: n.now, Break: h.breaks}
	if h.last != nil {
		next.Number, next.Before = max(next.Number, h.last.Number+1), h.last.Sum()
	}
	known := n.before(h)
	for _, name := range streams {
		if head := n.heads[name]; head != nil && head.page != nil && head.page.Number > 0 {
			known[name] = Listed{Stream: name, Created: head.page.Created, Page: head.page.Number, Last: head.page.Last}
		} else if l, was := known[name]; was {
			l.Gone = time.Time{}
			known[name] = l
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		l := known[name]
		if l.Gone.IsZero() && !slices.Contains(streams, name) {
			l.Gone = n.now
			n.Log.Warn("a signed stream no longer exists", "stream", name, "page", l.Page, "last", l.Last)
		}
		if !l.Gone.IsZero() && n.kept > 0 && n.now.Sub(l.Gone) > n.kept {
			continue // its messages would have expired
		}
		next.Streams = append(next.Streams, l)
	}
	return next
}

// before are the streams of the last list, and those that this notary has signed since then, or
// before there were lists.
func (n *Notary) before(h *lists) map[string]Listed {
	known := map[string]Listed{}
	for name, c := range n.own.Seen {
		if n.kept <= 0 || n.now.Sub(c.Time) < n.kept {
			known[name] = Listed{Stream: name, Created: c.Created, Page: c.Number, Last: c.Last}
		}
	}
	if h.last != nil {
		for _, l := range h.last.Streams {
			if _, newer := known[l.Stream]; !newer || !l.Gone.IsZero() {
				known[l.Stream] = l
			}
		}
	}
	return known
}

// storeList signs and stores a list.
func (n *Notary) storeList(ctx context.Context, h *lists, l *List) error {
	stored, err := l.Sign(n.Signer)
	if err != nil {
		return err
	}
	sequence, err := n.bus.Store(ctx, events.Message{
		Subject: subject.Notary(subject.NotaryStream), Header: map[string][]string{events.HeaderContentType: {listType}}, Data: stored,
	}, h.sequence)
	if err != nil {
		return fmt.Errorf("store a list of the streams: %w", err)
	}
	n.lists = &lists{last: l, sequence: sequence}
	n.knowList(l)
	return nil
}
