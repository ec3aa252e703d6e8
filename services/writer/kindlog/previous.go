package kindlog

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

// PreviousObjects returns a function that looks up whether an object ever had a name, in the log
// of its kind. The function also returns up to which version the record is complete, and whether it
// may have a gap since the message seen of the log. A kind without a log is [plan.Known.Unwatched].
func PreviousObjects(b bus.Bus) func(context.Context, events.Ref, uint64) (plan.Known, error) {
	return func(ctx context.Context, ref events.Ref, seen uint64) (known plan.Known, err error) {
		// This comes first: the later lookups then see at least as much of the record.
		m, ok, err := newest(ctx, b, ref.Kind)
		if err == nil && ok {
			known.Told = completeUpTo(m)
		}
		if err == nil {
			known.Hidden, err = mayLackChanges(ctx, b, ref.Kind, seen)
			known.Hidden = known.Hidden || m.Sequence < seen // another log than the one that the decision read
		}
		if err == nil && !known.Hidden {
			known.Since, err = versionAt(ctx, b, ref.Kind, seen)
		}
		if err == nil {
			_, known.Created, err = b.Last(ctx, subject.LogStream(ref.Kind), subject.Delta(ref))
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

// mayLackChanges reports whether the record may lack changes after a message of a kind's log: there is a gap
// after that message, or no mark says where the last gap is.
func mayLackChanges(ctx context.Context, b bus.Bus, kind kinds.Name, seen uint64) (bool, error) {
	m, ok, err := b.Last(ctx, subject.LogStream(kind), subject.Mark(kind))
	if err != nil || !ok {
		return true, err
	}
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return true, nil
	}
	switch mark, err := events.DecodeDelta(ref, m); {
	case err != nil:
		return true, nil // a damaged mark proves nothing
	case mark.Op == events.Gap:
		return m.Sequence > seen, nil
	default:
		return !mark.Before.Known || mark.Before.Sequence > seen, nil
	}
}

// versionSearch bounds how many messages back versionAt looks if the message itself has expired.
const versionSearch = 4

// versionAt returns a version that a kind had at a message of its log or shortly before, and "" if
// these messages have expired.
func versionAt(ctx context.Context, b bus.Bus, kind kinds.Name, sequence uint64) (string, error) {
	for at := sequence; at > 0 && sequence-at < versionSearch; at-- {
		m, ok, err := b.At(ctx, subject.LogStream(kind), at)
		switch {
		case err != nil:
			return "", err
		case ok:
			return completeUpTo(m), nil
		}
	}
	return "", nil
}

// completeUpTo returns the version up to which the record is complete with this delta. It returns "" for a
// delta of a list, which comes in any order, and for one that cannot be read.
func completeUpTo(m events.Message) string {
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
