package record

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
	"github.com/millrace/millrace/pkg/events/subject"
)

// State is the objects of a kind at a moment.
type State struct {
	Kind kinds.Kind
	// Sequence is the last one of the log that counts, and Time when that message was stored.
	Sequence uint64
	Time     time.Time
	// Counted is the sequence of the message with the census that Entries were compared with; 0:
	// none.
	Counted uint64
	// Entries are the last deltas of the objects that existed, sorted by namespace and name.
	Entries []Entry
	// Whole is true when a census of that moment confirms that nothing is missing. Otherwise
	// Doubts say why.
	Whole  bool
	Doubts []string
}

const (
	// stride is how many messages of the log are read at once, going backwards; it grows by half
	// of itself each time.
	stride = 10_000
	// lanes is the number of parts of a stride that are read concurrently.
	lanes = 4
)

// At gives the objects of a kind at a moment, in one namespace or, with "", in all.
//
// Errors: *[BeforeRecord]; the log cannot be read.
func (r *Record) At(ctx context.Context, kind kinds.Kind, namespace string, at Moment) (*State, error) {
	sequence, err := r.position(ctx, kind.Name, at)
	if err != nil {
		return nil, err
	}
	s, err := r.Behind(ctx, kind, namespace, sequence)
	if err != nil {
		return nil, err
	}
	if !at.Time.IsZero() {
		s.Time = at.Time
	}
	return s, r.doubt(ctx, s)
}

// Behind gives the objects of a kind after a message of its log, in one namespace or, with "",
// in all. It does not look for gaps.
//
// Errors: the log cannot be read.
func (r *Record) Behind(ctx context.Context, kind kinds.Kind, namespace string, sequence uint64) (*State, error) {
	f := &backwards{record: r, kind: kind, said: map[events.Ref]Entry{}}
	if err := f.state(ctx, sequence); err != nil {
		return nil, err
	}
	s := &State{Kind: kind, Sequence: sequence, Counted: f.counts, Time: f.time, Whole: f.whole, Doubts: f.doubts}
	for ref, e := range f.said {
		if e.Op == events.Is && (namespace == "" || ref.Namespace == namespace) {
			s.Entries = append(s.Entries, e)
		}
	}
	slices.SortFunc(s.Entries, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Ref.Namespace, b.Ref.Namespace), strings.Compare(a.Ref.Name, b.Ref.Name))
	})
	return s, nil
}

// doubt adds the gaps that cover the moment of s.
func (r *Record) doubt(ctx context.Context, s *State) error {
	gaps, err := r.Gaps(ctx, s.Kind.Name, s.Time)
	if err != nil {
		return err
	}
	for _, g := range gaps {
		if g.Sequence > s.Sequence && !g.Since.After(s.Time) {
			s.Whole, s.Doubts = false, append(s.Doubts, g.String())
		}
	}
	return nil
}

// backwards folds a log from its end towards its beginning: for each object, the first delta met
// is the one that counts.
type backwards struct {
	record *Record
	kind   kinds.Kind
	said   map[events.Ref]Entry
	told   events.Census // census of the delta that the fold begins with
	counts uint64        // sequence of that delta
	time   time.Time
	whole  bool
	doubts []string
}

// state folds the state at a sequence: first backwards from the newest delta with a census, then
// the messages after that delta, such as those of an unfinished relist.
func (f *backwards) state(ctx context.Context, last uint64) error {
	state, err := f.record.bus.StreamState(ctx, subject.LogStream(f.kind.Name))
	if err != nil {
		return err
	}
	counted, err := f.counted(ctx, state, last)
	if err != nil {
		return err
	}
	if f.counts = counted; counted == 0 {
		f.doubts = append(f.doubts, "no count of the objects was taken before this moment, so it is unknown whether these are all")
		return f.stride(ctx, state.First, last)
	}
	if err := f.fold(ctx, state, counted); err != nil || counted == last {
		return err
	}
	return f.stride(ctx, counted+1, last)
}

// counted finds the newest delta with a census, and stores that census; 0 when there is none.
func (f *backwards) counted(ctx context.Context, state bus.State, last uint64) (at uint64, err error) {
	for high, size := last, uint64(100); high >= state.First && high > 0 && at == 0; size *= 4 {
		low := state.First
		if high-low >= size {
			low = high - size + 1
		}
		err := f.record.bus.Read(ctx, bus.Passage{Stream: subject.LogStream(f.kind.Name), From: low, To: high, HeadersOnly: true}, func(batch []events.Message) error {
			for _, m := range batch {
				if e, err := entryOf(m); err == nil && e.Census.Known {
					at, f.told = e.Sequence, e.Census
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		high = low - 1
	}
	return at, nil
}

// fold reads strides until the census matches, or the log begins.
func (f *backwards) fold(ctx context.Context, state bus.State, last uint64) error {
	size := uint64(stride)
	for high := last; ; size += size / 2 {
		low := state.First
		if high >= low && high-low >= size {
			low = high - size + 1
		}
		if high < low {
			f.conclude()
			return nil
		}
		if err := f.stride(ctx, low, high); err != nil {
			return err
		}
		if f.whole = f.agrees(); f.whole {
			return nil
		}
		if low == state.First {
			f.conclude()
			return nil
		}
		high = low - 1
	}
}

// stride reads a part of the log, in several concurrent lanes, and folds it.
func (f *backwards) stride(ctx context.Context, low, high uint64) error {
	parts := make([]map[events.Ref]Entry, lanes)
	size := (high - low + lanes) / lanes
	var mu sync.Mutex
	err := parallel.Each(ctx, lanes, func(ctx context.Context, i int) error {
		from := low + uint64(i)*size
		to := min(from+size-1, high)
		parts[i] = map[events.Ref]Entry{}
		if from > to {
			return nil
		}
		return f.record.bus.Read(ctx, bus.Passage{Stream: subject.LogStream(f.kind.Name), From: from, To: to}, func(batch []events.Message) error {
			for _, m := range batch {
				e, err := entryOf(m)
				if err != nil {
					mu.Lock()
					f.doubts = append(f.doubts, fmt.Sprintf("message %d cannot be read: %v", m.Sequence, err))
					mu.Unlock()
					continue
				}
				parts[i][e.Ref] = e
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	for i := range parts {
		for ref, e := range parts[lanes-1-i] {
			f.take(ref, e)
		}
	}
	return nil
}

// take folds a delta, unless a later one of its object has been folded. Marks and gaps have a
// reference without a name.
func (f *backwards) take(ref events.Ref, e Entry) {
	if e.Stored.After(f.time) {
		f.time = e.Stored
	}
	if ref.Name == "" {
		return
	}
	if met, there := f.said[ref]; !there || met.Sequence < e.Sequence {
		f.said[ref] = e
	}
}

// agrees reports whether the objects folded so far match the census.
func (f *backwards) agrees() bool {
	var tally events.Tally
	for _, e := range f.said {
		tally.Fold(e.Delta)
	}
	return tally.Census() == f.told
}

// conclude adds a doubt: the log no longer has every object of the moment.
func (f *backwards) conclude() {
	is := 0
	for _, e := range f.said {
		if e.Op == events.Is {
			is++
		}
	}
	f.doubts = append(f.doubts, fmt.Sprintf("the record has %d objects of this moment, where there were %d: the others had been said last before the record begins", is, f.told.Objects))
}

// One gives the newest delta of an object at a moment, with the doubts about it.
//
// Errors: [ErrNotThere], *[BeforeRecord].
func (r *Record) One(ctx context.Context, kind kinds.Kind, ref events.Ref, at Moment) (*State, error) {
	sequence, err := r.position(ctx, kind.Name, at)
	if err != nil {
		return nil, err
	}
	e, ok, err := r.asOf(ctx, ref, sequence)
	switch {
	case err != nil:
		return nil, err
	case !ok && at == Moment{}:
		return nil, missing(ref)
	case !ok:
		return nil, fmt.Errorf("%v: %w at %v", ref, ErrNotThere, at)
	case e.Op == events.Gone && at == Moment{}:
		return nil, fmt.Errorf("%v is gone since %s: %w", ref, e.At.Format(time.RFC3339), ErrNotThere)
	case e.Op == events.Gone:
		return nil, fmt.Errorf("%v was gone at %v, since %s: %w", ref, at, e.At.Format(time.RFC3339), ErrNotThere)
	}
	s := &State{Kind: kind, Sequence: sequence, Time: e.Stored, Entries: []Entry{e}, Whole: true}
	if !at.Time.IsZero() {
		s.Time = at.Time
	}
	return s, r.doubt(ctx, s)
}
