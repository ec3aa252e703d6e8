package record

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Gap is a period in which changes of a kind may be missing.
type Gap struct {
	Kind   kinds.Name `json:"kind"`
	Reason string     `json:"reason"`
	// Since is when the log was last known to be complete, zero when not known, and Until when
	// it was complete again.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until"`
	// From and To are the lost messages, when known.
	From     uint64 `json:"from,omitempty"`
	To       uint64 `json:"to,omitempty"`
	Sequence uint64 `json:"sequence"`
}

// String describes the gap in one line.
func (g Gap) String() string {
	since := "an unknown time"
	if !g.Since.IsZero() {
		since = g.Since.Format(time.RFC3339)
	}
	return fmt.Sprintf("changes of %s between %s and %s may be missing: %s", g.Kind, since, g.Until.Format(time.RFC3339), g.Reason)
}

// Gaps are the gaps of a kind that end at or after a moment, oldest first.
func (r *Record) Gaps(ctx context.Context, kind kinds.Name, after time.Time) ([]Gap, error) {
	mark, ok, err := found(r.bus.Last(ctx, subject.LogStream(kind), subject.Mark(kind)))
	if err != nil {
		return nil, err
	}
	if !ok || !mark.Before.Known && mark.Op != events.Gap {
		return r.searchGaps(ctx, kind, after)
	}
	var gaps []Gap
	for e := mark; ; {
		if e.Op == events.Gap {
			g := gapOf(e)
			if g.Until.Before(after) {
				break
			}
			gaps = append(gaps, g)
			if !e.Before.Known {
				return r.searchGaps(ctx, kind, after)
			}
		}
		if e.Before.Sequence == 0 {
			break
		}
		if e, ok, err = r.at(ctx, kind, e.Before.Sequence); err != nil {
			return nil, err
		}
		if !ok {
			break // no longer stored
		}
	}
	slices.Reverse(gaps)
	return gaps, nil
}

// searchGaps reads all marks and gaps; it is for logs whose marks do not point to the gaps.
func (r *Record) searchGaps(ctx context.Context, kind kinds.Name, after time.Time) (gaps []Gap, err error) {
	err = r.bus.Read(ctx, bus.Passage{Stream: subject.LogStream(kind), Subject: subject.Mark(kind)}, func(batch []events.Message) error {
		for _, m := range batch {
			e, err := entryOf(m)
			if err != nil {
				continue // a damaged mark has no data; a gap will report the damage
			}
			if g := gapOf(e); e.Op == events.Gap && !g.Until.Before(after) {
				gaps = append(gaps, g)
			}
		}
		return nil
	})
	return gaps, err
}

func gapOf(e Entry) Gap {
	var h events.Hole
	_ = json.Unmarshal(e.Body, &h) // gaps of older versions have no body
	return Gap{Kind: e.Kind, Reason: h.Reason, Since: h.Since, Until: e.Stored, From: h.From, To: h.To, Sequence: e.Sequence}
}
