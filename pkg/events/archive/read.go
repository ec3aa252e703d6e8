package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

var _ bus.Archive = (*File)(nil)

// stream finds a stream by its name.
func (f *File) stream(name string) (*stream, error) {
	if s := f.streams[name]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("stream %s in %s: %w", name, f.name, bus.ErrNoStream)
}

// Kinds are the kinds whose logs are in the file, sorted by name.
func (f *File) Kinds(context.Context) ([]kinds.Kind, error) {
	var found []kinds.Kind
	for _, s := range f.streams {
		if s.Kind != nil {
			found = append(found, *s.Kind)
		}
	}
	slices.SortFunc(found, func(a, b kinds.Kind) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return found, nil
}

// Controllers are the controllers whose turns are in the file, sorted.
func (f *File) Controllers(context.Context) ([]string, error) {
	return f.named(subject.TurnStream("")), nil
}

// Shadows are the controllers whose shadows are in the file, sorted.
func (f *File) Shadows(context.Context) ([]string, error) {
	return f.named(subject.ShadowStream("")), nil
}

func (f *File) named(prefix string) (found []string) {
	for name := range f.streams {
		if controller, ours := strings.CutPrefix(name, prefix); ours {
			found = append(found, controller)
		}
	}
	slices.Sort(found)
	return found
}

// StreamState is the state of a stream at the export. Now is when the file ends.
func (f *File) StreamState(_ context.Context, name string) (bus.State, error) {
	s, err := f.stream(name)
	if err != nil {
		return bus.State{}, err
	}
	return s.State, nil
}

// Consumers are the consumers of a stream at the export, sorted by name; none in a file that was
// exported up to an earlier moment (Until).
func (f *File) Consumers(_ context.Context, name string) ([]bus.Consumer, error) {
	s, err := f.stream(name)
	if err != nil {
		return nil, err
	}
	return s.Stream.Consumers, nil
}

// Last is the newest message of a subject.
func (f *File) Last(_ context.Context, name, on string) (m events.Message, ok bool, err error) {
	s, err := f.stream(name)
	if err != nil {
		return m, false, err
	}
	subjects, err := f.postings(s)
	last, blocks := subjects.find(on)
	if err != nil || last == 0 {
		return m, false, err
	}
	m, ok, err = f.at(s, blocks[len(blocks)-1], last)
	if err == nil && (!ok || m.Subject != on) {
		return events.Message{}, false, f.damaged(s, fmt.Sprintf("message %d", last), fmt.Errorf("%w: it is not the last one of %s", errText, on))
	}
	return m, ok, err
}

// At is the message at a sequence.
func (f *File) At(_ context.Context, name string, sequence uint64) (m events.Message, ok bool, err error) {
	s, err := f.stream(name)
	if err != nil {
		return m, false, err
	}
	n := s.blockOf(sequence)
	if n == len(s.Blocks) || s.Blocks[n].First > sequence {
		return m, false, nil
	}
	return f.at(s, n, sequence)
}

// blockOf is the first block that ends at or after a sequence.
func (s *stream) blockOf(sequence uint64) int {
	return sort.Search(len(s.Blocks), func(i int) bool { return s.Blocks[i].Last >= sequence })
}

// at is a message of block n.
func (f *File) at(s *stream, n int, sequence uint64) (m events.Message, ok bool, err error) {
	u, err := f.load(s, n)
	if err != nil {
		return m, false, err
	}
	i := u.find(sequence)
	if i == len(u.places) || u.places[i].sequence != sequence {
		return m, false, nil
	}
	if m, err = u.places[i].message(s.Name, u.text, false); err != nil {
		return m, false, f.damaged(s, fmt.Sprintf("message %d", sequence), err)
	}
	return m, true, nil
}

var errEnough = errors.New("enough")

// Next is the first message of a subject at or after a sequence.
func (f *File) Next(ctx context.Context, name, on string, from uint64) (m events.Message, ok bool, err error) {
	err = f.Read(ctx, bus.Passage{Stream: name, Subject: on, From: max(from, 1)}, func(batch []events.Message) error {
		m, ok = batch[0], true
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return m, ok, err
}

// Read passes a passage of a stream to the handler, in order, one block at a time.
func (f *File) Read(ctx context.Context, p bus.Passage, handle func(batch []events.Message) error) error {
	s, err := f.stream(p.Stream)
	if err != nil {
		return err
	}
	want, blocks, err := f.wanted(s, p)
	if err != nil {
		return err
	}
	load := f.load
	if p.Subject == "" {
		load = f.read // a reader of the whole stream does not come back to a block soon: no caching
	}
	for _, n := range blocks {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read %s: %w", p.Stream, err)
		}
		u, err := load(s, n)
		if err != nil {
			return err
		}
		var batch []events.Message
		for _, at := range u.places[u.find(p.From):] {
			if p.To != 0 && at.sequence > p.To {
				break
			}
			if p.From == 0 && at.nanoseconds < nanoseconds(p.Since) || !want(at) {
				continue
			}
			p.From = at.sequence // all later messages count, whatever their times
			m, err := at.message(s.Name, u.text, p.HeadersOnly)
			if err != nil {
				return f.damaged(s, fmt.Sprintf("message %d", at.sequence), err)
			}
			batch = append(batch, m)
		}
		if len(batch) == 0 {
			continue
		}
		if err := handle(batch); err != nil {
			return err
		}
	}
	return nil
}

// nanoseconds since 1970; 0 for the zero time and for times before 1970.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() || t.Unix() < 0 {
		return 0
	}
	return t.UnixNano()
}

// wanted finds the blocks of a passage, and the filter for their messages.
func (f *File) wanted(s *stream, p bus.Passage) (want func(place) bool, blocks []int, err error) {
	first, end := s.blockOf(p.From), len(s.Blocks)
	if p.From == 0 {
		since := nanoseconds(p.Since)
		first = sort.Search(end, func(i int) bool { return s.Blocks[i].Latest >= since })
	}
	if p.To != 0 {
		end = sort.Search(end, func(i int) bool { return s.Blocks[i].First > p.To })
	}
	if p.Subject == "" {
		for n := first; n < end; n++ {
			blocks = append(blocks, n)
		}
		return func(place) bool { return true }, blocks, nil
	}
	subjects, err := f.postings(s)
	if err != nil {
		return nil, nil, err
	}
	in := make([]bool, len(s.Blocks))
	subjects.each(p.Subject, func(_ uint64, found []int) {
		for _, n := range found {
			in[n] = true
		}
	})
	for n := first; n < end; n++ {
		if in[n] {
			blocks = append(blocks, n)
		}
	}
	return func(at place) bool { return subject.Matches(p.Subject, at.subject) && subjects.last(at.subject) != 0 }, blocks, nil
}

// Follow reads the file's messages of a stream, and then waits for the end of the context,
// because a file gets no more messages.
func (f *File) Follow(ctx context.Context, name string, from uint64, handle func(batch []events.Message) error) error {
	state, err := f.StreamState(ctx, name)
	if err != nil {
		return err
	}
	if from > state.Last+1 {
		return fmt.Errorf("follow %s in %s: %w: it ends with %d", name, f.name, bus.ErrOvertaken, state.Last)
	}
	if err := f.Read(ctx, bus.Passage{Stream: name, From: max(from, 1)}, handle); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-f.done:
		return fmt.Errorf("follow %s in %s: %w", name, f.name, bus.ErrClosed)
	}
}

// Work is not supported by a file.
func (f *File) Work(context.Context, bus.Work, func(bus.Delivery)) error {
	return fmt.Errorf("work on %s: %w: a file is only read", f.name, errors.ErrUnsupported)
}
