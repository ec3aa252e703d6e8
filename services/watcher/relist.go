package watcher

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

// relist compares a list of all objects with the recorded ones, records the differences, and
// returns the watch that continues from the list.
func (k *kindWatch) relist(ctx context.Context) (watch.Interface, error) {
	first := k.appender.Last() == 0 && k.cursor.Version == "" && k.nextGap.Reason == ""
	span := k.writes.relist(k.kind.Name)
	defer span.End()
	h, err := k.readContents(ctx, 1)
	if err != nil {
		return nil, err
	}
	if err := k.addFromLog(ctx, h); err != nil {
		return nil, err
	}
	k.countFrom(h)
	k.counted = false                 // the census is wrong until the relist has recorded everything
	past, err := k.knownPosition(ctx) // a state that was recreated does not know it
	if err != nil {
		return nil, err
	}
	h.state.Fold(events.Delta{Kind: k.kind.Name, Op: events.Mark, ResourceVersion: past.Version, Epoch: past.Epoch}, 0)
	k.metrics.relists.WithLabelValues(string(k.kind.Name)).Inc()
	// The epoch must be known before the first finding is recorded.
	position, _, err := k.source.Position(ctx, "", "")
	if err != nil {
		return nil, err
	}
	epoch, _ := k.epoch.Now()
	r := h.state.Compare(position, epoch)
	k.epoch.Begin(r.Epoch())
	k.cursor, k.latest = translate.Cursor{Epoch: r.Epoch()}, noDelta
	k.writers.forget()
	k.bounds.dropAll(false)
	version, w, err := k.source.Open(ctx, func(obj runtime.Object, gone bool) error { return k.recordListed(ctx, r, obj, gone) })
	if err != nil {
		return nil, err
	}
	if err := k.finishRelist(ctx, r, h.broken, version, first); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// finishRelist ends a relist: it records the objects that the list did not find as gone, and the
// position.
func (k *kindWatch) finishRelist(ctx context.Context, r *translate.Relist, broken []events.Delta, version string, first bool) error {
	for _, sequence := range r.Missing() {
		if err := k.recordDeleted(ctx, sequence); err != nil {
			return err
		}
	}
	for _, d := range broken {
		if r.Seen(d.Ref) {
			continue // find has recorded it again
		}
		if err := k.append(ctx, translate.Tombstone(translate.Hidden(k.kind, d, k.redact), k.stamp(true))); err != nil {
			return err
		}
	}
	k.cursor.Version = version
	if !first {
		k.metrics.gaps.WithLabelValues(string(k.kind.Name)).Inc()
		if err := k.append(ctx, translate.Gap(k.kind.Name, version, k.stamp(false))); err != nil {
			return err
		}
	}
	k.counted = true
	k.extendSight()
	if err := k.mark(ctx); err != nil {
		return err
	}
	if k.damaged {
		if err := k.awaitMirror(ctx); err != nil {
			return err
		}
	}
	k.nextGap, k.damaged, k.repairedAt = events.Hole{}, false, k.appender.Last()
	return nil
}

// awaitMirror makes sure that the state stream reaches the end of the log: a mirror that meets a
// damaged message while it replaces it stands still. A mirror that moves is only slow.
//
// Errors: events.ErrDamaged, when the mirror stands still; the next session recreates the state.
func (k *kindWatch) awaitMirror(ctx context.Context) error {
	at, looks := uint64(0), 0
	for ; looks < mirrorChecks; pause(ctx, mirrorPoll) {
		state, err := k.bus.StreamState(ctx, subject.StateStream(k.kind.Name))
		if err != nil {
			return fmt.Errorf("look at the state of %s: %w", k.kind.Name, err)
		}
		if state.Last >= k.appender.Last() {
			return nil
		}
		if looks++; state.Last != at {
			at, looks = state.Last, 0
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	k.recreateState = true
	return fmt.Errorf("%w: the state of %s does not follow its log any more", events.ErrDamaged, k.kind.Name)
}

// recordListed records a listed object unless the bus knows it in this version.
func (k *kindWatch) recordListed(ctx context.Context, r *translate.Relist, obj runtime.Object, gone bool) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("read a listed object: %w", err)
	}
	ref := events.Ref{Kind: k.kind.Name, Namespace: m.GetNamespace(), Name: m.GetName()}
	if gone {
		if r.Lose(ref, m.GetUID()) {
			return k.appendObject(ctx, events.Gone, obj, k.stamp(true))
		}
		return nil
	}
	finding := r.See(ref, m.GetUID(), m.GetResourceVersion())
	switch {
	case finding.Rewound:
		return fmt.Errorf("%w: %v is at %s, and was later", errRewound, ref, m.GetResourceVersion())
	case !finding.Changed:
		k.writers.note(k.kind.Name, events.Is, m.GetUID(), translate.WritersOf(m.GetManagedFields()))
		return nil
	case finding.Replaced != 0:
		if err := k.recordDeleted(ctx, finding.Replaced); err != nil {
			return err
		}
	}
	return k.appendObject(ctx, events.Is, obj, k.stamp(true))
}

// recordDeleted records the end of an object that the state stream, or the log alone, says exists.
func (k *kindWatch) recordDeleted(ctx context.Context, sequence uint64) error {
	d, there, err := stored(ctx, k.bus, subject.StateStream(k.kind.Name), sequence)
	if err == nil && !there {
		d, there, err = stored(ctx, k.bus, subject.LogStream(k.kind.Name), sequence)
	}
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("read message %d of the state of %s: %w", sequence, k.kind.Name, bus.ErrOvertaken)
	}
	return k.append(ctx, translate.Tombstone(translate.Hidden(k.kind, d, k.redact), k.stamp(true)))
}
