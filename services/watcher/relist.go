package watcher

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

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
	if err := k.flush(ctx); err != nil {
		return nil, err
	}
	c, _, err := readLog(ctx, k.bus, k.kind.Name)
	if err != nil {
		return nil, err
	}
	if c.unreadable {
		k.markDamaged(klog.FromContext(ctx).WithValues("kind", k.kind.Name), events.Hole{Reason: unreadable})
	}
	k.countFrom(c)
	k.counted = false                 // the census is wrong until the relist has recorded everything
	past, err := k.knownPosition(ctx) // a part of the log may be unreadable
	if err != nil {
		return nil, err
	}
	c.state.Fold(events.Delta{Kind: k.kind.Name, Op: events.Mark, ResourceVersion: past.Version, Epoch: past.Epoch}, 0)
	k.metrics.relists.WithLabelValues(string(k.kind.Name)).Inc()
	// The epoch must be known before the first finding is recorded.
	position, _, err := k.source.Position(ctx, "", "")
	if err != nil {
		return nil, err
	}
	epoch, _ := k.epoch.Now()
	r := c.state.Compare(position, epoch)
	if c.unreadable || k.recordAll {
		r.Again()
	}
	k.epoch.Begin(r.Epoch())
	k.cursor, k.latest = translate.Cursor{Epoch: r.Epoch()}, noDelta
	k.writers.forget()
	k.bounds.dropAll(false)
	version, w, err := k.source.Open(ctx, func(obj runtime.Object, gone bool) error { return k.recordListed(ctx, r, obj, gone) })
	if err != nil {
		return nil, err
	}
	if err := k.finishRelist(ctx, r, c.broken, version, first); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// finishRelist ends a relist: it records the objects that the list did not find as gone, and the
// position.
func (k *kindWatch) finishRelist(ctx context.Context, r *translate.Relist, broken map[events.Ref]events.Delta, version string, first bool) error {
	if err := k.recordEnds(ctx, r, broken); err != nil {
		return err
	}
	k.cursor.Version = version
	if !first {
		k.metrics.gaps.WithLabelValues(string(k.kind.Name)).Inc()
		if err := k.append(ctx, translate.Gap(k.kind.Name, version, k.stamp(false))); err != nil {
			return err
		}
	}
	k.counted, k.unlinked = true, false
	k.extendSight()
	if err := k.mark(ctx); err != nil {
		return err
	}
	k.nextGap, k.damaged, k.recordAll, k.repairedAt = events.Hole{}, false, false, k.appender.Last()
	return nil
}

// recordEnds records the objects that the list did not find as gone.
func (k *kindWatch) recordEnds(ctx context.Context, r *translate.Relist, broken map[events.Ref]events.Delta) error {
	for _, sequence := range r.Missing() {
		if err := k.recordDeleted(ctx, sequence); err != nil {
			return err
		}
	}
	for _, d := range broken {
		if r.Seen(d.Ref) {
			continue // the list has it, and it has been recorded again
		}
		if err := k.append(ctx, translate.Tombstone(translate.Hidden(k.kind, d, k.redact), k.stamp(true))); err != nil {
			return err
		}
	}
	return nil
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

// recordDeleted records the end of an object that the log says exists.
func (k *kindWatch) recordDeleted(ctx context.Context, sequence uint64) error {
	d, there, err := stored(ctx, k.bus, subject.LogStream(k.kind.Name), sequence)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("read message %d of the log of %s: %w", sequence, k.kind.Name, bus.ErrOvertaken)
	}
	return k.append(ctx, translate.Tombstone(translate.Hidden(k.kind, d, k.redact), k.stamp(true)))
}
