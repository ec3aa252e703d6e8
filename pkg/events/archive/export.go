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

// Selection selects the part of a record to export.
type Selection struct {
	// Since and Until bound the time; zero: from the beginning, and to the end.
	Since, Until time.Time
	// Kinds selects logs; Controllers selects the turns, outcomes and shadows of controllers.
	// nil: all.
	Kinds       []kinds.Name
	Controllers []string
	// Program is the version of the exporting program.
	Program string
}

// Export writes a record, or a part of it, into a file. It cuts every stream at its end when the
// export begins. It returns the streams with the counts of their written messages.
//
// Errors: the selection is empty; the record cannot be read, or the file not written.
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

// partial names the selections that left out whole streams, in this and in earlier exports.
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
	// written is the exported part of each stream.
	written map[string]*stretch
}

// stretch is the part of a stream from whole to last, and the base: the older messages that were
// current at whole.
type stretch struct {
	base        []uint64
	whole, last uint64
}

// touches reports whether the stretch has messages in a range.
func (s *stretch) touches(first, last uint64) bool {
	at, _ := slices.BinarySearch(s.base, first)
	return last >= s.whole && first <= s.last || at < len(s.base) && s.base[at] <= last
}

// plan finds the selected streams, and their states.
func (e *export) plan(ctx context.Context) ([]Stream, error) {
	// Look at the end of the pages first: they do not cover anything that is stored or created
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
	if e.Until.IsZero() && len(controllers) > 0 { // wakes are only known as of now
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

// wanted are the selected streams.
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

// look reads the state of a stream, and its consumers.
func (e *export) look(ctx context.Context, s *Stream) (err error) {
	if s.State, err = e.from.StreamState(ctx, s.Name); err != nil {
		return fmt.Errorf("look at %s: %w", s.Name, err)
	}
	if s.Name == subject.NotaryStream {
		return nil // the page that covers the end of a stretch may have been signed after Until
	}
	if !e.Until.IsZero() {
		return e.end(ctx, s)
	}
	s.Consumers, err = e.from.Consumers(ctx, s.Name)
	return err
}

// end cuts a stream at Until.
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

// firstSince is the first message of a stream that was stored at or after a time; 0 when there
// is none.
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

// stream writes a stream: the messages that were current when the stretch begins, then the
// stretch.
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

// pages writes the notaries' pages that cover any exported message, and the lists of all streams
// since the stretch began.
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

// oldestList is the sequence of the first list of streams to export: the one that was current
// when the stretch begins.
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

// base are the messages before a sequence that are still current there, in order.
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

// there are the last messages of the objects that exist after a message, and the messages that
// prove them complete: the one with the last census, and those after it.
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
	// near is the largest distance between two messages that are read in one go.
	near = 50
	// few is how many messages are fetched one by one.
	few = 20
)

// pick writes single messages of a stream. It leaves out a message that has expired since it was
// selected; the kind's census shows that.
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
