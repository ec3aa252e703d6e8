package record

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Span is a period, including both ends; a zero end is open.
type Span struct{ From, To time.Time }

// Chronicle lists what happened in a period.
type Chronicle struct {
	// Items are the happenings, newest first.
	Items []Happening `json:"items"`
	// Whole is true when Items are all happenings of the period on record. Otherwise they are
	// all since Since, and earlier ones may exist.
	Whole bool      `json:"whole"`
	Since time.Time `json:"since,omitzero"`
}

const (
	// pace is how many messages of a stream a chronicle reads at once, going backwards; it
	// doubles each time.
	pace = 1000
	// reach is how many messages of one stream a chronicle reads before it stops, at the end of
	// a stride.
	reach = 100_000
)

// Chronicle gives the newest happenings of a period, at most limit of them. It reads a bounded
// number of messages, and says how far back they reach.
//
// Errors: [ErrNotThere], when no stream matches the filter; a stream cannot be read.
func (r *Record) Chronicle(ctx context.Context, f Filter, span Span, limit int) (*Chronicle, error) {
	streams, err := r.streams(ctx, f)
	if err != nil {
		return nil, err
	}
	parts := make([]Chronicle, len(streams))
	err = parallel.Each(ctx, len(streams), func(ctx context.Context, i int) (err error) {
		parts[i], err = r.chronicleOf(ctx, streams[i], f, span, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	c := &Chronicle{Items: []Happening{}, Whole: true}
	for _, part := range parts {
		c.Items = append(c.Items, part.Items...)
		if !part.Whole {
			c.cut(part.Since)
		}
	}
	slices.SortStableFunc(c.Items, newestFirst)
	if len(c.Items) > limit {
		c.cut(c.Items[limit-1].Time)
		c.Items = c.Items[:limit]
	}
	c.Items = slices.DeleteFunc(c.Items, func(h Happening) bool { return !c.Whole && h.Time.Before(c.Since) })
	return c, nil
}

var rank = map[string]int{"gap": 0, "delta": 0, "turn": 1, "outcome": 2}

// newestFirst orders happenings by time, newest first. At the same moment, an outcome is newer
// than its turn, and a turn is newer than the deltas that it was decided on.
func newestFirst(a, b Happening) int {
	return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(rank[b.Noun], rank[a.Noun]), cmp.Compare(a.Stream, b.Stream), cmp.Compare(b.Sequence, a.Sequence))
}

// cut records that the chronicle is not complete before a moment.
func (c *Chronicle) cut(since time.Time) {
	c.Whole = false
	if since.After(c.Since) {
		c.Since = since
	}
}

// chronicleOf reads one stream backwards, in growing strides.
func (r *Record) chronicleOf(ctx context.Context, stream string, f Filter, span Span, limit int) (c Chronicle, err error) {
	low, high, err := r.within(ctx, stream, span)
	if err != nil {
		return c, err
	}
	read := uint64(0)
	for size := uint64(pace); ; size *= 2 {
		if high < low || high == 0 {
			c.Whole = true
			return c, nil
		}
		if len(c.Items) >= limit || read >= reach {
			return c, nil
		}
		from := low
		if high-low >= size {
			from = high - size + 1
		}
		items, since, err := r.passage(ctx, stream, f, from, high)
		if err != nil {
			return c, err
		}
		c.Items = append(c.Items, items...)
		if !since.IsZero() {
			c.Since = since
		}
		read += high - from + 1
		high = from - 1
	}
}

// within are the first and the last sequence of a stream that were stored in a period; none when
// low is greater than high.
func (r *Record) within(ctx context.Context, stream string, span Span) (low, high uint64, err error) {
	state, err := r.bus.StreamState(ctx, stream)
	if err != nil || state.Messages == 0 {
		return 1, 0, err
	}
	low, high = state.First, state.Last
	if !span.From.IsZero() {
		first, _, err := r.first(ctx, stream, bus.Passage{Since: span.From})
		if err != nil || first == 0 {
			return 1, 0, err
		}
		low = first
	}
	if !span.To.IsZero() && span.To.Before(state.Now) {
		after, _, err := r.first(ctx, stream, bus.Passage{Since: span.To.Add(1)})
		if err != nil {
			return 1, 0, err
		}
		if after > 0 {
			high = after - 1
		}
	}
	return low, high, nil
}

// passage is the happenings in a part of a stream, newest first, and when its earliest message
// was stored.
func (r *Record) passage(ctx context.Context, stream string, f Filter, from, to uint64) (items []Happening, since time.Time, err error) {
	kind, isLog := subject.KindOfStream(stream)
	err = r.bus.Read(ctx, bus.Passage{Stream: stream, From: from, To: to, HeadersOnly: isLog}, func(batch []events.Message) error {
		for _, m := range batch {
			if since.IsZero() {
				since = m.Time
			}
			h, ok := happening(m, f)
			if ok && h.Gap != nil { // only its body says what is missing
				e, there, err := r.at(ctx, kind, m.Sequence)
				if err != nil {
					return err
				}
				if there {
					g := gapOf(e)
					h.Gap, h.What = &g, g.String()
				}
			}
			if ok {
				items = append(items, h)
			}
		}
		return nil
	})
	slices.Reverse(items)
	return items, since, err
}

// decided limits how many messages of one key and lane are read.
const decided = 500

// Decided gives the turns whose key is the object, and their outcomes, since a moment, newest
// first: everything that controllers decided about it, whichever objects they wrote.
func (r *Record) Decided(ctx context.Context, ref events.Ref, since time.Time) ([]Happening, error) {
	controllers, err := r.bus.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	type place struct{ stream, subject string }
	var places []place
	for _, c := range controllers {
		for _, key := range []events.Key{{Namespace: ref.Namespace, Name: ref.Name}, {Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}} {
			for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus, events.LanePark} {
				places = append(places, place{subject.TurnStream(c), subject.Turn(c, lane, key)}, place{subject.OutcomeStream(c), subject.Outcome(c, lane, key)})
			}
		}
	}
	parts := make([][]Happening, len(places))
	if err := parallel.Each(ctx, len(places), func(ctx context.Context, i int) (err error) {
		parts[i], err = r.along(ctx, places[i].stream, places[i].subject, since)
		return err
	}); err != nil {
		return nil, err
	}
	all := about(slices.Concat(parts...), ref)
	slices.SortStableFunc(all, newestFirst)
	return all, nil
}

// along is the happenings under one subject since a moment.
func (r *Record) along(ctx context.Context, stream, at string, since time.Time) (items []Happening, err error) {
	last, ok, err := r.bus.Last(ctx, stream, at)
	if err != nil || !ok || last.Time.Before(since) {
		return nil, err
	}
	from, _, err := r.first(ctx, stream, bus.Passage{Since: since})
	if err != nil || from == 0 {
		return nil, err
	}
	for range decided {
		m, ok, err := r.bus.Next(ctx, stream, at, from)
		if err != nil || !ok {
			return items, err
		}
		if h, ok := happening(m, Filter{}); ok {
			items = append(items, h)
		}
		from = m.Sequence + 1
	}
	return items, nil
}

// about removes the turns, with their outcomes, about objects of other kinds with the same name.
func about(all []Happening, ref events.Ref) []Happening {
	type turn struct {
		controller string
		sequence   uint64
	}
	others := map[turn]bool{}
	for _, h := range all {
		if h.Noun == "turn" && h.Object.Kind != "" && h.Object.Kind != ref.Kind {
			others[turn{h.Who, h.Sequence}] = true
		}
	}
	return slices.DeleteFunc(all, func(h Happening) bool {
		return others[turn{h.Who, h.Sequence}] && h.Noun == "turn" || others[turn{h.Who, h.Turn}] && h.Noun == "outcome"
	})
}
