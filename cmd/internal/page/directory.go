package page

import (
	"context"
	"strings"
	"sync"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// directory knows the names of all existing objects, and of those that were deleted since
// it was opened or not long before. It reads the state once, and from then on only the new
// messages, at each call.
type directory struct {
	archive bus.Archive

	mu    sync.Mutex
	kinds map[kinds.Name]*kindNames
}

// kindNames has the names of one kind.
type kindNames struct {
	mu   sync.Mutex
	read uint64 // up to this sequence of the log
	// there is true for an object that exists, and false for a deleted one.
	there map[events.Ref]bool
	gone  int
}

// forgotten is how many more names of deleted objects than of existing ones a kindNames
// keeps. Above that it begins again.
const forgotten = 20_000

func newDirectory(archive bus.Archive) *directory {
	return &directory{archive: archive, kinds: map[kinds.Name]*kindNames{}}
}

// each calls handle for each name of a kind, as of now. The handler must not block, because
// each holds the lock of the kind.
func (d *directory) each(ctx context.Context, kind kinds.Name, handle func(ref events.Ref, there bool)) error {
	d.mu.Lock()
	s := d.kinds[kind]
	if s == nil {
		s = &kindNames{}
		d.kinds[kind] = s
	}
	d.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(ctx, d.archive, kind); err != nil {
		return err
	}
	for ref, there := range s.there {
		handle(ref, there)
	}
	return nil
}

func (s *kindNames) refresh(ctx context.Context, archive bus.Archive, kind kinds.Name) error {
	stream := subject.LogStream(kind)
	state, err := archive.StreamState(ctx, stream)
	if err != nil {
		return err
	}
	if s.there == nil || state.Last < s.read || s.gone > len(s.there)-s.gone+forgotten { // a recreated stream begins at 1 again
		since, err := bus.RecordedSince(ctx, archive, kind)
		if err != nil {
			return err
		}
		s.there, s.read, s.gone = map[events.Ref]bool{}, since-1, 0
	}
	if state.Last == s.read {
		return nil
	}
	err = archive.Read(ctx, bus.Passage{Stream: stream, From: s.read + 1, To: state.Last, HeadersOnly: true}, func(batch []events.Message) error {
		for _, m := range batch {
			s.take(m)
		}
		return nil
	})
	if err != nil {
		s.there = nil // it has only a part of the new messages
		return err
	}
	s.read = state.Last
	return nil
}

func (s *kindNames) take(m events.Message) {
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil || ref.Name == "" {
		return // a mark, or a foreign subject
	}
	was, known := s.there[ref]
	is := m.Get(events.HeaderOp) == string(events.Is)
	switch {
	case !is && (was || !known):
		s.gone++
	case is && known && !was:
		s.gone--
	}
	s.there[ref] = is
}

// match is how well a name matches the user's input.
type match int

const (
	none match = iota
	within
	begins
	exact
)

func fit(name, typed string) match {
	switch at := strings.Index(name, typed); {
	case name == typed:
		return exact
	case at == 0:
		return begins
	case at > 0:
		return within
	default:
		return none
	}
}
