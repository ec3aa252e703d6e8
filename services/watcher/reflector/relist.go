package reflector

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
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/translate"
)

// relist compares a list of all objects with the recorded ones, records the differences, and
// returns the watch that continues from the list.
func (k *Reflector) relist(ctx context.Context) (watch.Interface, error) {
	first := k.appender.Last() == 0 && k.cursor.Version == "" && k.nextGap.Reason == ""
	span := k.writes.Relist(k.kind.Name)
	defer span.End()
	if err := k.flush(ctx); err != nil {
		return nil, err
	}
	c, _, err := kindlog.Read(ctx, k.bus, k.kind.Name)
	if err != nil {
		return nil, err
	}
	if c.Unreadable {
		k.markDamaged(klog.FromContext(ctx).WithValues("kind", k.kind.Name), events.Hole{Reason: unreadable})
	}
	k.countFrom(c)
	k.counted = false                 // the census is wrong until the relist has recorded everything
	past, err := k.knownPosition(ctx) // a part of the log may be unreadable
	if err != nil {
		return nil, err
	}
	c.State.Fold(events.Delta{Kind: k.kind.Name, Op: events.Mark, ResourceVersion: past.Version, Epoch: past.Epoch}, 0)
	k.metrics.relists.WithLabelValues(string(k.kind.Name)).Inc()
	// The epoch must be known before the first finding is recorded.
	position, _, err := k.source.Position(ctx, "", "")
	if err != nil {
		return nil, err
	}
	epoch, _ := k.epoch.Now()
	r := c.State.Compare(position, epoch)
	if c.Unreadable || k.recordAll {
		r.Again()
	}
	k.epoch.Begin(r.Epoch())
	k.cursor, k.latest = translate.Cursor{Epoch: r.Epoch()}, noDelta
	k.authors.Forget()
	k.bounds.DropAll(false)
	version, w, err := k.source.Open(ctx, func(obj runtime.Object, gone bool) error { return k.recordListed(ctx, r, obj, gone) })
	if err != nil {
		return nil, err
	}
	if err := k.finishRelist(ctx, r, c.Broken, version, first); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// finishRelist ends a relist: it records the objects that the list did not find as gone, and the
// position.
func (k *Reflector) finishRelist(ctx context.Context, r *translate.Relist, broken map[events.Ref]events.Delta, version string, first bool) error {
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
func (k *Reflector) recordEnds(ctx context.Context, r *translate.Relist, broken map[events.Ref]events.Delta) error {
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
func (k *Reflector) recordListed(ctx context.Context, r *translate.Relist, obj runtime.Object, gone bool) error {
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
		k.authors.Note(k.kind.Name, events.Is, m.GetUID(), translate.WritersOf(m.GetManagedFields()))
		return nil
	case finding.Replaced != 0:
		if err := k.recordDeleted(ctx, finding.Replaced); err != nil {
			return err
		}
	}
	return k.appendObject(ctx, events.Is, obj, k.stamp(true))
}

// recordDeleted records the end of an object that the log says exists.
func (k *Reflector) recordDeleted(ctx context.Context, sequence uint64) error {
	d, there, err := kindlog.At(ctx, k.bus, k.kind.Name, sequence)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("read message %d of the log of %s: %w", sequence, k.kind.Name, bus.ErrOvertaken)
	}
	return k.append(ctx, translate.Tombstone(translate.Hidden(k.kind, d, k.redact), k.stamp(true)))
}

// Retire records the end of every object of a kind that is not served, and a mark that says so, in
// the epoch of the storage, which it returns; position asks for the newest version of the storage.
// When the kind is served again, a session relists it. Of the configuration it uses Kind, Bus,
// Metrics, Epoch and Hide.
func Retire(ctx context.Context, c Config, position func(context.Context) (string, error)) (epoch uint64, err error) {
	appender, err := c.Bus.Append(ctx, c.Kind.Name)
	if err != nil {
		return 0, err
	}
	defer appender.Close()
	k := &Reflector{kind: c.Kind, bus: c.Bus, metrics: c.Metrics, redact: c.Hide, appender: appender, epoch: c.Epoch}
	log, err := c.Bus.StreamState(ctx, subject.LogStream(c.Kind.Name))
	if err != nil {
		return 0, fmt.Errorf("look at the log of %s: %w", c.Kind.Name, err)
	}
	if err := k.link(ctx, log); err != nil {
		return 0, err
	}
	has, _, err := kindlog.Read(ctx, c.Bus, c.Kind.Name)
	if err != nil {
		return 0, err
	}
	k.countFrom(has)
	version, err := position(ctx)
	if err != nil {
		return 0, err
	}
	epoch, _ = c.Epoch.Now()
	r := has.State.Compare(version, epoch)
	c.Epoch.Begin(r.Epoch())
	k.cursor = translate.Cursor{Version: version, Epoch: r.Epoch()}
	if err := k.recordEnds(ctx, r, has.Broken); err != nil {
		return 0, err
	}
	d := translate.Unserved(c.Kind.Name, version, k.stamp(false))
	d.Since = k.recordedSince()
	if err := k.append(ctx, d); err != nil {
		return 0, err
	}
	return r.Epoch(), k.flush(ctx)
}
