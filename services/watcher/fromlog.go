package watcher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// addFromLog adds what only the log knows to what a state stream holds. A state that was recreated,
// or has lost messages, does not know the objects that were deleted meanwhile. Without their ends
// they would be in the record for ever.
func (k *kindWatch) addFromLog(ctx context.Context, h stateContents) error {
	stream, last := subject.LogStream(k.kind.Name), k.appender.Last()
	if last == 0 {
		return nil
	}
	newest, there, err := stored(ctx, k.bus, stream, last)
	switch {
	case err != nil && !errors.Is(err, events.ErrDamaged):
		return err
	case err == nil && there && newest.Census.Known && h.matches(newest.Census):
		return nil
	}
	at, err := k.bus.StreamState(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at the log of %s: %w", k.kind.Name, err)
	}
	from, err := k.recordedSince(ctx)
	if err != nil {
		return err
	}
	err = replay(ctx, k.bus, stream, max(from, at.First), at, func(m events.Message) error {
		d, err := decode(m)
		switch {
		case errors.Is(err, events.ErrDamaged):
			return nil // a gap tells of it
		case err != nil:
			return err
		}
		if !slices.ContainsFunc(h.broken, func(b events.Delta) bool { return b.Ref == d.Ref }) {
			h.state.Recall(d, m.Sequence) // the relist records damaged objects again, or their ends
		}
		return nil
	})
	if errors.Is(err, events.ErrDamaged) {
		klog.FromContext(ctx).Error(err, "The log cannot be read to its end; objects that it alone knows of may stay in the record as if they were there", "kind", k.kind.Name)
		return nil
	}
	return err
}

// recordedSince returns the message of the log since which every existing object has been recorded, as
// its newest mark says; 0 where no mark does.
func (k *kindWatch) recordedSince(ctx context.Context) (uint64, error) {
	m, there, err := k.bus.Last(ctx, subject.LogStream(k.kind.Name), subject.Mark(k.kind.Name))
	if err != nil || !there {
		return 0, err
	}
	mark, err := decode(m)
	if err != nil {
		return 0, nil // a damaged mark says nothing
	}
	return mark.Since, nil
}
