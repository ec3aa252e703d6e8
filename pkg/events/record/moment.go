package record

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Moment is a time, or a resourceVersion of the API server; the zero Moment is now.
type Moment struct {
	Time    time.Time
	Version string
}

// forms are the accepted formats with a date. A time of day without a date is today's, or
// yesterday's if today's is in the future.
var forms = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"}

// ParseMoment parses a moment: "10m", "2d" and "1w12h" are that long ago, "15:04:05" is a time
// of day in now's zone, "2026-01-02 15:04" and RFC 3339 are times, and a number is a
// resourceVersion. "" and "now" are now.
func ParseMoment(text string, now time.Time) (Moment, error) {
	if text == "" || text == "now" {
		return Moment{}, nil
	}
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		return Moment{Version: text}, nil
	}
	if ago, ok := parseAgo(strings.TrimPrefix(text, "-")); ok {
		return Moment{Time: now.Add(-ago)}, nil
	}
	for _, form := range []string{"15:04:05", "15:04"} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			day := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if day.After(now) {
				day = day.AddDate(0, 0, -1)
			}
			return Moment{Time: day}, nil
		}
	}
	for _, form := range forms {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return Moment{Time: t}, nil
		}
	}
	return Moment{}, fmt.Errorf("%q is no moment: write how long ago (10m, 2d, 1w), a time (15:04:05, 2026-01-02T15:04:05Z), or a resourceVersion (81723)", text)
}

// parseAgo parses weeks and days of 24 hours, followed by a duration of [time.ParseDuration].
func parseAgo(text string) (time.Duration, bool) {
	var sum time.Duration
	rest := text
	for _, unit := range []struct {
		letter string
		is     time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, behind, found := strings.Cut(rest, unit.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, false
		}
		sum, rest = sum+time.Duration(n)*unit.is, behind
	}
	if rest == "" && text != "" {
		return sum, true
	}
	d, err := time.ParseDuration(rest)
	return sum + d, err == nil
}

// String writes the moment for people.
func (m Moment) String() string {
	switch {
	case m.Version != "":
		return "version " + m.Version
	case m.Time.IsZero():
		return "now"
	default:
		return m.Time.Format(time.RFC3339)
	}
}

// BeforeRecord is the error for a moment before the beginning of the record.
type BeforeRecord struct {
	Kind   kinds.Name
	Asked  Moment
	Begins time.Time
}

func (e *BeforeRecord) Error() string {
	return fmt.Sprintf("%v is before the record of %s begins, at %s: what was before is kept no more (--retention and --stream-max-age of the services say for how long), or was not exported",
		e.Asked, e.Kind, e.Begins.Format(time.RFC3339))
}

// position is the last sequence of a kind's log at a moment.
//
// Errors: *[BeforeRecord]; the moment is in the future.
func (r *Record) position(ctx context.Context, kind kinds.Name, m Moment) (uint64, error) {
	stream := subject.LogStream(kind)
	state, err := r.bus.StreamState(ctx, stream)
	switch {
	case err != nil:
		return 0, err
	case m == Moment{}:
		return state.Last, nil
	case state.Messages == 0:
		return 0, fmt.Errorf("%s: the log is empty: %w", kind, ErrNotThere)
	}
	first, begins, err := r.beginOf(ctx, stream, state)
	if err != nil {
		return 0, err
	}
	if m.Version != "" {
		return r.versionPosition(ctx, kind, m, first, state.Last, begins)
	}
	switch {
	case m.Time.After(state.Now):
		return 0, fmt.Errorf("%v is to come: by the bus's clock it is %s", m, state.Now.Format(time.RFC3339))
	case m.Time.Before(begins):
		return 0, &BeforeRecord{kind, m, begins}
	}
	after, _, err := r.first(ctx, stream, bus.Passage{Since: m.Time.Add(1)})
	if err != nil || after == 0 {
		return state.Last, err
	}
	return after - 1, nil
}

// beginOf is the sequence and the time from which on a stream is complete. An exported stretch
// also has older messages, but not all of that time.
func (r *Record) beginOf(ctx context.Context, stream string, state bus.State) (uint64, time.Time, error) {
	if state.Whole > 0 {
		return state.Whole, state.Begins, nil
	}
	return r.first(ctx, stream, all)
}

// first is the first message of a passage of a stream, and when it was stored; 0 when there is
// none.
func (r *Record) first(ctx context.Context, stream string, p bus.Passage) (sequence uint64, stored time.Time, err error) {
	p.Stream, p.HeadersOnly = stream, true
	err = r.bus.Read(ctx, p, func(batch []events.Message) error {
		sequence, stored = batch[0].Sequence, batch[0].Time
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return sequence, stored, err
}

// versionPosition finds the last delta with this resourceVersion or an earlier one. Versions
// grow along a log, except in repeated deltas and in the results of a relist, which it skips; in
// epochs before the current one the same versions mean something else.
func (r *Record) versionPosition(ctx context.Context, kind kinds.Name, m Moment, first, last uint64, begins time.Time) (uint64, error) {
	newest, _, err := r.at(ctx, kind, last)
	if err != nil {
		return 0, err
	}
	low, high := first, last+1 // the first later version is in [low, high)
	for low < high {
		middle := low + (high-low)/2
		e, ok, err := r.versioned(ctx, kind, middle, high-1)
		switch {
		case err != nil:
			return 0, err
		case !ok || e.Epoch >= newest.Epoch && kinds.CompareVersions(e.ResourceVersion, m.Version) > 0:
			high = middle
		default:
			low = e.Sequence + 1
		}
	}
	if low == first {
		return 0, &BeforeRecord{kind, m, begins}
	}
	return low - 1, nil
}

// versioned is the first delta between two sequences whose version shows its place in the order
// of versions.
func (r *Record) versioned(ctx context.Context, kind kinds.Name, from, to uint64) (found Entry, ok bool, err error) {
	err = r.bus.Read(ctx, bus.Passage{Stream: subject.LogStream(kind), From: from, To: to, HeadersOnly: true}, func(batch []events.Message) error {
		for _, m := range batch {
			e, err := entryOf(m)
			if err == nil && !e.Sync && e.Op != events.Gap && e.ResourceVersion != "" {
				found, ok = e, true
				return errEnough
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return found, ok, err
}
