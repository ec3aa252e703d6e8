package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ErrNotThere: the record has no data about the object, controller or moment in question.
var ErrNotThere = errors.New("not on record")

// Record reads the past. It is safe for concurrent use, and caches nothing between questions.
type Record struct{ bus bus.Archive }

// New returns a record of what the bus stores.
func New(b bus.Archive) *Record { return &Record{bus: b} }

// Entry is a delta of a log, with its position.
type Entry struct {
	events.Delta
	Sequence uint64
	// Stored is when the bus stored the delta, by the bus's clock.
	Stored time.Time
}

// errEnough ends a read early.
var errEnough = errors.New("enough")

func entryOf(m events.Message) (Entry, error) {
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return Entry{}, err
	}
	d, err := events.DecodeDelta(ref, m)
	return Entry{d, m.Sequence, m.Time}, err
}

// at is the delta at a sequence of a log; ok is false when it is no longer stored.
func (r *Record) at(ctx context.Context, kind kinds.Name, sequence uint64) (e Entry, ok bool, err error) {
	return found(r.bus.At(ctx, subject.LogStream(kind), sequence))
}

// newest is the last delta of an object.
func (r *Record) newest(ctx context.Context, ref events.Ref) (e Entry, ok bool, err error) {
	return found(r.bus.Last(ctx, subject.LogStream(ref.Kind), subject.Delta(ref)))
}

func (r *Record) next(ctx context.Context, ref events.Ref, from uint64) (e Entry, ok bool, err error) {
	return found(r.bus.Next(ctx, subject.LogStream(ref.Kind), subject.Delta(ref), from))
}

func found(m events.Message, ok bool, err error) (Entry, bool, error) {
	if err != nil || !ok {
		return Entry{}, false, err
	}
	e, err := entryOf(m)
	return e, err == nil, err
}

// before is the previous delta of the same name. If the object was re-created under its name,
// that delta has another uid.
func (r *Record) before(ctx context.Context, e Entry) (Entry, bool, error) {
	if e.Before.Known && e.Before.Sequence > 0 {
		b, ok, err := r.at(ctx, e.Kind, e.Before.Sequence)
		if err != nil || !ok || b.Ref == e.Ref {
			return b, ok, err // if the delta is no longer stored, no earlier one is
		}
	}
	return r.search(ctx, e.Ref, e.Sequence)
}

// search finds the last delta of an object below a sequence when no delta points to it: in
// growing steps, because the bus can only search forwards.
func (r *Record) search(ctx context.Context, ref events.Ref, below uint64) (Entry, bool, error) {
	first, ok, err := r.next(ctx, ref, 1)
	if err != nil || !ok || first.Sequence >= below {
		return Entry{}, false, err
	}
	for reach := uint64(1024); ; reach *= 4 {
		from := first.Sequence
		if below-first.Sequence > reach {
			from = below - reach
		}
		e, ok, err := r.next(ctx, ref, from)
		if err != nil {
			return Entry{}, false, err
		}
		for ok && e.Sequence < below {
			following, more, err := r.next(ctx, ref, e.Sequence+1)
			if err != nil {
				return Entry{}, false, err
			}
			if !more || following.Sequence >= below {
				return e, true, nil
			}
			e = following
		}
		if from == first.Sequence {
			return first, true, nil
		}
	}
}

// asOf is the newest delta of an object at or before a sequence of its log.
func (r *Record) asOf(ctx context.Context, ref events.Ref, sequence uint64) (Entry, bool, error) {
	last, ok, err := r.newest(ctx, ref)
	if err != nil || !ok || last.Sequence <= sequence {
		return last, ok, err
	}
	following, ok, err := r.next(ctx, ref, sequence+1)
	if err != nil || !ok {
		return Entry{}, false, err
	}
	return r.before(ctx, following)
}

// Kinds are the kinds on record; see [bus.Archive].
func (r *Record) Kinds(ctx context.Context) ([]kinds.Kind, error) { return r.bus.Kinds(ctx) }

// all is a passage of a whole stream.
var all = bus.Passage{}

func logOf(kind kinds.Kind) string { return subject.LogStream(kind.Name) }

// missing is the error for an object without a stored delta.
func missing(ref events.Ref) error {
	return fmt.Errorf("%v is %w: no delta of it is kept", ref, ErrNotThere)
}
