package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Selection says what of a record goes into a file.
type Selection struct {
	// Since and Until bound it; zero: from its begin, and to its end.
	Since, Until time.Time
	// Kinds whose deltas, and controllers whose turns and outcomes are wanted, or what
	// they said in shadow; nil: all that there are.
	Kinds       []kinds.Name
	Controllers []string
	// Program is the version of who writes.
	Program string
}

// Export writes a record, or a part of it, into a file. Every stream is cut where
// it stands when the export begins. What it gives are the streams with what has
// been written of them.
//
// Errors: there is nothing of what was selected; the record cannot be read, or the
// file not written.
func Export(ctx context.Context, from bus.Archive, out io.Writer, s Selection) ([]Stream, error) {
	e := &export{from: from, Selection: s, written: map[string]*stretch{}}
	plan, err := e.plan(ctx)
	if err != nil {
		return nil, err
	}
	about := About{Program: s.Program, Since: s.Since, Until: s.Until, Partial: s.partial(from)}
	for _, p := range plan {
		about.Streams = append(about.Streams, p.Name)
		about.Exported = later(about.Exported, p.State.Now)
	}
	if e.out, err = NewWriter(out, about); err != nil {
		return nil, err
	}
	for _, p := range plan {
		write := e.stream
		if p.Name == subject.NotaryStream {
			write = e.pages
		}
		if err := write(ctx, p); err != nil {
			return nil, fmt.Errorf("export %s: %w", p.Name, err)
		}
	}
	return e.out.Streams(), e.out.Close()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// partial says by what whole streams were left out, here and before; empty: none were.
func (s Selection) partial(from bus.Archive) (by []string) {
	if f, is := from.(*File); is {
		by = slices.Clone(f.about.Partial)
	}
	if s.Kinds != nil {
		names := make([]string, len(s.Kinds))
		for i, k := range s.Kinds {
			names[i] = string(k)
		}
		by = append(by, "kinds="+strings.Join(names, ","))
	}
	if s.Controllers != nil {
		by = append(by, "controllers="+strings.Join(s.Controllers, ","))
	}
	return by
}

type export struct {
	Selection
	from bus.Archive
	out  *Writer
	// written is what has been written of each stream.
	written map[string]*stretch
}

// stretch is the part of a stream from whole to last, and the base before it.
type stretch struct {
	base        []uint64
	whole, last uint64
}

// touches tells whether messages in a range are in the stretch.
func (s *stretch) touches(first, last uint64) bool {
	at, _ := slices.BinarySearch(s.base, first)
	return last >= s.whole && first <= s.last || at < len(s.base) && s.base[at] <= last
}

// plan finds the streams that are wanted, and where they stand.
func (e *export) plan(ctx context.Context) ([]Stream, error) {
	// Where the pages end is looked at first: they vouch for nothing that is stored or made
	// later.
	signed := Stream{Name: subject.NotaryStream}
	err := e.look(ctx, &signed)
	notarized := err == nil
	if err != nil && !errors.Is(err, bus.ErrNoStream) {
		return nil, err
	}
	have, err := e.from.Kinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which kinds there are: %w", err)
	}
	controllers, err := e.from.Controllers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which controllers there are: %w", err)
	}
	shadows, err := e.from.Shadows(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which shadows there are: %w", err)
	}
	plan := e.wanted(have, controllers, shadows)
	if len(plan) == 0 {
		return nil, fmt.Errorf("nothing to export: there are the kinds %v, the controllers %v, and in shadow %v", namesOf(have), controllers, shadows)
	}
	if e.Until.IsZero() && len(controllers) > 0 { // what is set to happen is known of now alone
		plan = append(plan, Stream{Name: subject.WakeStream})
	}
	for i := range plan {
		if err := e.look(ctx, &plan[i]); err != nil {
			return nil, err
		}
	}
	if notarized {
		plan = append(plan, signed)
	}
	return plan, nil
}

// wanted are those streams of all that were selected.
func (e *export) wanted(have []kinds.Kind, controllers, shadows []string) (plan []Stream) {
	for _, k := range have {
		if e.Kinds == nil || slices.Contains(e.Kinds, k.Name) {
			plan = append(plan, Stream{Name: subject.LogStream(k.Name), Kind: &k})
		}
	}
	is := func(c string) bool { return e.Controllers == nil || slices.Contains(e.Controllers, c) }
	for _, c := range controllers {
		if is(c) {
			plan = append(plan, Stream{Name: subject.TurnStream(c)}, Stream{Name: subject.OutcomeStream(c)})
		}
	}
	for _, c := range shadows {
		if is(c) {
			plan = append(plan, Stream{Name: subject.ShadowStream(c)})
		}
	}
	return plan
}

func namesOf(have []kinds.Kind) (names []kinds.Name) {
	for _, k := range have {
		names = append(names, k.Name)
	}
	return names
}

// look finds out where a stream stands, and who works on it.
func (e *export) look(ctx context.Context, s *Stream) (err error) {
	if s.State, err = e.from.StreamState(ctx, s.Name); err != nil {
		return fmt.Errorf("look at %s: %w", s.Name, err)
	}
	if s.Name == subject.NotaryStream {
		return nil // what vouches for the end of a stretch may have been signed later
	}
	if !e.Until.IsZero() {
		return e.end(ctx, s)
	}
	if s.Consumers, err = e.from.Consumers(ctx, s.Name); err != nil || s.Kind == nil {
		return err
	}
	s.StateConsumers, err = e.from.Consumers(ctx, subject.StateStream(s.Kind.Name))
	if errors.Is(err, bus.ErrNoStream) {
		return nil
	}
	return err
}

// end cuts a stream at the end of what is wanted.
func (e *export) end(ctx context.Context, s *Stream) error {
	after, err := e.firstSince(ctx, s.Name, e.Until.Add(1))
	if err != nil {
		return err
	}
	if after > 0 {
		s.State.Last = after - 1
	}
	if e.Until.Before(s.State.Now) {
		s.State.Now = e.Until
	}
	return nil
}

// firstSince is the first message of a stream that was stored at a time or later;
// 0 when there is none.
func (e *export) firstSince(ctx context.Context, stream string, at time.Time) (sequence uint64, err error) {
	err = e.from.Read(ctx, bus.Passage{Stream: stream, Since: at, HeadersOnly: true}, func(batch []events.Message) error {
		sequence = batch[0].Sequence
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return sequence, err
}

// stream writes a stream: what counted when the stretch begins, and the stretch.
func (e *export) stream(ctx context.Context, s Stream) error {
	var base []uint64
	from := uint64(1)
	if e.Since.After(s.State.Begins) && s.State.Messages > 0 && s.Name != subject.WakeStream {
		begin, err := e.firstSince(ctx, s.Name, e.Since)
		if err != nil {
			return err
		}
		if from = begin; begin == 0 || begin > s.State.Last {
			from = s.State.Last + 1
		}
		if base, err = e.base(ctx, s, from); err != nil {
			return err
		}
		s.State.Whole, s.State.Begins = from, e.Since
	}
	e.written[s.Name] = &stretch{base, s.State.Whole, s.State.Last}
	if err := e.out.Begin(s); err != nil {
		return err
	}
	if err := e.pick(ctx, s.Name, base); err != nil {
		return err
	}
	if from > s.State.Last {
		return nil
	}
	return e.from.Read(ctx, bus.Passage{Stream: s.Name, From: from, To: s.State.Last}, func(batch []events.Message) error {
		for _, m := range batch {
			if err := e.out.Add(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// pages writes those pages of notaries that vouch for something that was written, and the
// lists of all streams since the stretch began.
func (e *export) pages(ctx context.Context, s Stream) error {
	if err := e.out.Begin(s); err != nil {
		return err
	}
	oldest, err := e.oldestList(ctx, s)
	if err != nil {
		return err
	}
	return e.from.Read(ctx, bus.Passage{Stream: s.Name, To: s.State.Last}, func(batch []events.Message) error {
		for _, m := range batch {
			about, _ := subject.ParseNotary(m.Subject)
			first, last, ok := events.CoveredBy(m)
			if about == subject.NotaryStream {
				if m.Sequence < oldest {
					continue
				}
			} else if in := e.written[about]; in == nil || ok && first <= last && !in.touches(first, last) {
				continue
			}
			if err := e.out.Add(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// oldestList is the first list of the streams that is wanted: that which counted when the
// stretch begins.
func (e *export) oldestList(ctx context.Context, s Stream) (sequence uint64, err error) {
	if e.Since.IsZero() {
		return 0, nil
	}
	err = e.from.Read(ctx, bus.Passage{Stream: s.Name, Subject: subject.Notary(subject.NotaryStream), To: s.State.Last, HeadersOnly: true}, func(batch []events.Message) error {
		for _, m := range batch {
			if sequence == 0 || !m.Time.After(e.Since) {
				sequence = m.Sequence
			}
		}
		return nil
	})
	return sequence, err
}

// base are the messages before a sequence that count from there on, in order.
func (e *export) base(ctx context.Context, s Stream, below uint64) ([]uint64, error) {
	if s.Kind != nil {
		return e.there(ctx, *s.Kind, below-1)
	}
	last := map[string]uint64{}
	if below > 1 {
		err := e.from.Read(ctx, bus.Passage{Stream: s.Name, From: 1, To: below - 1, HeadersOnly: true}, func(batch []events.Message) error {
			for _, m := range batch {
				last[m.Subject] = m.Sequence
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Values(last)), nil
}

// there are the last messages of the objects that are there behind a message, and
// what is needed to see that these are all: the message that counts them, and what
// comes behind it.
func (e *export) there(ctx context.Context, kind kinds.Kind, last uint64) ([]uint64, error) {
	state, err := record.New(e.from).Behind(ctx, kind, "", last)
	if err != nil {
		return nil, err
	}
	var base []uint64
	for _, entry := range state.Entries {
		base = append(base, entry.Sequence)
	}
	for n := state.Counted; n > 0 && n <= last; n++ {
		base = append(base, n)
	}
	slices.Sort(base)
	return slices.Compact(base), nil
}

const (
	// near is how many messages may lie between two that are read in one go.
	near = 50
	// few are fetched one by one.
	few = 20
)

// pick writes single messages of a stream. One that has expired meanwhile is left
// out; a census of the kind tells.
func (e *export) pick(ctx context.Context, stream string, wanted []uint64) error {
	for len(wanted) > 0 {
		n := 1
		for n < len(wanted) && wanted[n]-wanted[n-1] <= near {
			n++
		}
		run := wanted[:n]
		wanted = wanted[n:]
		if err := e.run(ctx, stream, run); err != nil {
			return err
		}
	}
	return nil
}

func (e *export) run(ctx context.Context, stream string, wanted []uint64) error {
	if len(wanted) > few {
		return e.from.Read(ctx, bus.Passage{Stream: stream, From: wanted[0], To: wanted[len(wanted)-1]}, func(batch []events.Message) error {
			for _, m := range batch {
				if _, is := slices.BinarySearch(wanted, m.Sequence); !is {
					continue
				}
				if err := e.out.Add(m); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, sequence := range wanted {
		m, ok, err := e.from.At(ctx, stream, sequence)
		if err == nil && ok {
			err = e.out.Add(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
