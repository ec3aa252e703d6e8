package writer

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/plan"
)

// previousObjects looks for the objects that had a name in the state stream of its kind, which
// keeps deleted ones for as long as the record goes back, and tells how far that has
// been told, and whether all of it was since a message of the log.
func previousObjects(b bus.Bus) func(context.Context, events.Ref, uint64) (plan.Known, error) {
	return func(ctx context.Context, ref events.Ref, seen uint64) (known plan.Known, err error) {
		// How far, first: what is looked up afterwards has come at least as far.
		m, ok, err := newest(ctx, b, ref.Kind)
		if err == nil && ok {
			known.Told = told(m)
		}
		if err == nil {
			known.Hidden, err = hidden(ctx, b, ref.Kind, seen)
			known.Hidden = known.Hidden || m.Sequence < seen // it is not the log that was read
		}
		if err == nil && !known.Hidden {
			known.Since, err = versionAt(ctx, b, ref.Kind, seen)
		}
		if err == nil {
			_, known.Created, err = b.Last(ctx, subject.StateStream(ref.Kind), subject.Delta(ref))
		}
		switch {
		case errors.Is(err, bus.ErrNoStream):
			return plan.Known{Unwatched: true}, nil
		case err != nil:
			return plan.Known{}, fmt.Errorf("look for %v in the record: %w", ref, err)
		}
		return known, nil
	}
}

// hidden tells whether something may have happened behind a message of a kind's log that
// the record was never told of: there is a gap behind it, or no mark says where the last
// one is.
func hidden(ctx context.Context, b bus.Bus, kind kinds.Name, seen uint64) (bool, error) {
	m, ok, err := b.Last(ctx, subject.StateStream(kind), subject.Mark(kind))
	if err != nil || !ok {
		return true, err
	}
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return true, nil
	}
	switch mark, err := events.DecodeDelta(ref, m); {
	case err != nil:
		return true, nil // a damaged one says nothing
	case mark.Op == events.Gap:
		return m.Sequence > seen, nil
	default:
		return !mark.Before.Known || mark.Before.Sequence > seen, nil
	}
}

// nearby is how many messages before the one that is looked for may have expired.
const nearby = 4

// versionAt is a version that a kind had at a message of its log, or shortly before; empty
// where neither is there.
func versionAt(ctx context.Context, b bus.Bus, kind kinds.Name, sequence uint64) (string, error) {
	for at := sequence; at > 0 && sequence-at < nearby; at-- {
		m, ok, err := b.At(ctx, subject.LogStream(kind), at)
		switch {
		case err != nil:
			return "", err
		case ok:
			return told(m), nil
		}
	}
	return "", nil
}

// told is up to which version everything has been told when a delta has been; empty
// while a list is being told, in whatever order, and where it cannot be read.
func told(m events.Message) string {
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return ""
	}
	d, err := events.DecodeDelta(ref, m)
	if err != nil || d.Sync {
		return ""
	}
	return d.ResourceVersion
}
