package kindlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Depth bounds how far back from its end a log is searched.
const Depth = 16

// At returns the delta at a sequence of the log of a kind, if it is there.
//
// Errors: events.ErrDamaged, when it is not what was stored.
func At(ctx context.Context, b bus.Bus, kind kinds.Name, sequence uint64) (events.Delta, bool, error) {
	m, there, err := b.At(ctx, subject.LogStream(kind), sequence)
	if err != nil || !there {
		return events.Delta{}, false, err
	}
	d, err := Decode(m)
	return d, err == nil, err
}

// Decode reads the delta of a message of a log.
//
// Errors: events.ErrDamaged, when it is not what was stored.
func Decode(m events.Message) (events.Delta, error) {
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return events.Delta{}, err
	}
	return events.DecodeDelta(ref, m)
}

// Newest returns the newest delta of a log; the zero value where the log has none that can be
// read.
func Newest(ctx context.Context, b bus.Bus, kind kinds.Name) (events.Delta, error) {
	log, err := b.StreamState(ctx, subject.LogStream(kind))
	var d events.Delta
	if err == nil && log.Messages > 0 {
		d, _, err = At(ctx, b, kind, log.Last)
	}
	switch {
	case errors.Is(err, bus.ErrNoStream), errors.Is(err, events.ErrDamaged):
		return events.Delta{}, nil
	case err != nil:
		return events.Delta{}, fmt.Errorf("look at the log of %s: %w", kind, err)
	}
	d.Kind = kind
	return d, nil
}

// LastLink returns the link to the last message that is not a mark, near the end of a log in a
// state; the zero link where none is found.
func LastLink(ctx context.Context, b bus.Bus, kind kinds.Name, log bus.State) (after events.Link, err error) {
	for at := log.Last; at >= log.First && at > 0 && log.Last-at < Depth; at-- {
		m, there, err := b.At(ctx, subject.LogStream(kind), at)
		if err != nil {
			return after, fmt.Errorf("read the log of %s: %w", kind, err)
		}
		if !there || events.Verify(m) != nil {
			continue
		}
		d, err := Decode(m)
		if err != nil {
			continue
		}
		if after = d.After; d.Op != events.Mark {
			after = events.Link{Sequence: at, Sum: m.Get(events.HeaderSum)}
		}
		return after, nil
	}
	return after, nil
}
