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

// recollect adds to what a state stream holds what the log knows besides. A state that
// was made anew, or has lost something, does not know of objects that have gone
// meanwhile; their ends would not be said, and they would be in the record for ever.
func (k *kindWatch) recollect(ctx context.Context, h holding) error {
	stream, last := subject.LogStream(k.kind.Name), k.appender.Last()
	if last == 0 {
		return nil
	}
	newest, there, err := stored(ctx, k.bus, stream, last)
	switch {
	case err != nil && !errors.Is(err, events.ErrDamaged):
		return err
	case err == nil && there && newest.Census.Known && h.agrees(newest.Census):
		return nil
	}
	at, err := k.bus.StreamState(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at the log of %s: %w", k.kind.Name, err)
	}
	from, err := k.saidSince(ctx)
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
			h.state.Recall(d, m.Sequence) // what is damaged is said again, or ended, as such
		}
		return nil
	})
	if errors.Is(err, events.ErrDamaged) {
		klog.FromContext(ctx).Error(err, "The log cannot be read to its end; objects that it alone knows of may stay in the record as if they were there", "kind", k.kind.Name)
		return nil
	}
	return err
}

// saidSince is the message of the log since which everything that is there has been said, as
// far as its newest mark tells; 0 where it does not.
func (k *kindWatch) saidSince(ctx context.Context) (uint64, error) {
	m, there, err := k.bus.Last(ctx, subject.LogStream(k.kind.Name), subject.Mark(k.kind.Name))
	if err != nil || !there {
		return 0, err
	}
	mark, err := decode(m)
	if err != nil {
		return 0, nil // a damaged one tells nothing
	}
	return mark.Since, nil
}
