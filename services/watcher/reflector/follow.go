package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/versions"
)

const (
	// markEvery bounds how often the watcher stores a quiet kind's position. The API server can
	// resume a watch from an older position than that; and an append to an idle stream makes NATS
	// read the newest block of the log from disk, of up to 8 MB.
	markEvery = 5 * time.Minute
	// flushAfter bounds how long a failure to store a delta may go unnoticed.
	flushAfter = 25 * time.Millisecond
	// showEvery bounds how often the watch shows that it watches the kind.
	showEvery = 2 * time.Second
)

// watch follows the API server from the cursor until something ends it. Beside a resumed watch it
// proves that the API server's history is still the same; the watch ends when the proof fails.
func (k *Reflector) watch(ctx context.Context, w watch.Interface, resumed bool) error {
	defer w.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, over := k.epoch.Now()
	proved := k.startProof(ctx, resumed, nil)
	k.note(nil)
	flush, keyframes := time.NewTimer(flushAfter), time.NewTimer(k.minKeyframeWait())
	defer flush.Stop()
	defer keyframes.Stop()
	look := newCheckTimer()
	defer look.timer.Stop()
	for {
		if k.inOldEpoch() {
			return errOldEpoch
		}
		var err error
		clean := k.dirty.IsZero()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-w.ResultChan():
			if !open {
				return errors.Join(k.tracing.Release(ctx, true, k.handleEvent), k.flush(ctx), errEnded)
			}
			err = k.tracing.Receive(ctx, event, k.handleEvent)
		case <-over:
		case <-k.wake:
			err = errors.Join(k.tracing.Release(ctx, false, k.handleEvent), k.recordWaiting(ctx, false))
		case err = <-proved:
		case <-k.epochClaims:
			k.startProof(ctx, true, proved)
		case <-k.shownAsked:
			err = k.showWatched(ctx)
		case <-flush.C:
			err = k.flush(ctx)
		case <-keyframes.C:
			err = k.recordKeyframes(ctx, keyframes)
		case <-k.reports:
			look.wake()
		case <-look.timer.C:
			if err := k.checkStreams(ctx); err != nil {
				return err
			}
			look.again(k.atRest())
			if k.aboutToExpire() || k.tooFarBack() {
				keyframes.Reset(0)
			}
		}
		if err != nil {
			return err
		}
		if clean && !k.dirty.IsZero() {
			flush.Reset(flushAfter)
			look.wake()
		}
	}
}

func (k *Reflector) handleEvent(ctx context.Context, event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	k.extendSight()
	m, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("read a watch event: %w", err)
	}
	version := m.GetResourceVersion()
	if k.cursor.Covers(version) {
		return nil
	}
	op := events.Is
	switch event.Type {
	case watch.Bookmark:
		k.cursor.Version = version
		if time.Since(k.marked) < markEvery {
			return nil
		}
		return k.mark(ctx)
	case watch.Deleted:
		op = events.Gone
	default: // Added, Modified
	}
	stamp := k.stamp(false)
	stamp.Writers = k.authors.Of(m.GetUID(), event.Type == watch.Added)
	stamp.First = event.Type == watch.Added
	if err := k.appendObject(ctx, op, event.Object, stamp); err != nil {
		return err
	}
	k.cursor.Version = version
	if k.changed != nil {
		k.changed()
	}
	return nil
}

// recordKeyframes records the keyframes that are due, and sets the timer to the next check.
func (k *Reflector) recordKeyframes(ctx context.Context, timer *time.Timer) error {
	again, err := k.keyframes(ctx)
	if err == nil {
		timer.Reset(again)
	}
	return err
}

// startProof proves the history beside the watch, where there is a reason to. A channel that exists
// already means that the reason is a mere claim; then only errRewound ends the watch, and a missing
// answer does not.
func (k *Reflector) startProof(ctx context.Context, reason bool, proved chan error) chan error {
	claimed := proved != nil
	if !claimed {
		proved = make(chan error, 1)
	}
	if !reason {
		return proved
	}
	prove := k.proof()
	go func() {
		err := prove(ctx)
		if claimed && !errors.Is(err, errRewound) {
			return
		}
		select {
		case proved <- err:
		case <-ctx.Done():
		}
	}()
	return proved
}

// extendSight extends the sight of a kind of heartbeats: the watch has just heard of it.
func (k *Reflector) extendSight() {
	if kinds.IsHeartbeat(k.kind.Name) {
		k.sight = k.sight.Heard(time.Now())
	}
}

func (k *Reflector) mark(ctx context.Context) error {
	if err := k.recordWaiting(ctx, true); err != nil {
		return err
	}
	k.marked = time.Now()
	d := translate.Mark(k.kind.Name, k.cursor.Version, k.stamp(false))
	d.Since = k.recordedSince()
	if err := k.append(ctx, d); err != nil {
		return err
	}
	return k.flush(ctx)
}

// showWatched appends a mark, which proves that this watcher watches the kind.
func (k *Reflector) showWatched(ctx context.Context) error {
	if time.Since(k.shownAt) < showEvery {
		return nil
	}
	k.shownAt = time.Now()
	return k.mark(ctx)
}

// appendObject appends an object, in the largest size that fits.
func (k *Reflector) appendObject(ctx context.Context, op events.Op, obj runtime.Object, s translate.Stamp) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("read the metadata of an object of %s: %w", k.kind.Name, err)
	}
	wrote := translate.WritersOf(m.GetManagedFields())
	d, err := translate.Object(k.kind, op, obj, s)
	by, proven, beside := d.By, d.Proven, d.Beside // the first call removes the managedFields from obj
	for err == nil && s.Size < translate.Bare && k.limits[s.Size] > 0 && len(d.Body) >= k.limits[s.Size] {
		s.Size++
		d, err = translate.Object(k.kind, op, obj, s)
		d.By, d.Proven, d.Beside = by, proven, beside
	}
	if err != nil {
		return err
	}
	switch {
	case op == events.Gone:
		k.bounds.DropAtEnd(d.UID)
	case !s.Sync && k.holdBack(d, wrote, s.First):
		return nil
	}
	d.Left = k.bounds.Left(d.UID)
	span := k.tracing.Begin(&d, m)
	err = k.append(ctx, d)
	k.tracing.Keep(span, d.UID, k.after, err)
	if err == nil {
		k.bounds.NoteRecorded(d)
		k.authors.Note(k.kind.Name, op, d.UID, wrote)
	}
	switch {
	case errors.Is(err, bus.ErrTooLarge) && s.Size < translate.Bare:
		// The next session meets the object again, and makes it smaller.
		k.limits[s.Size] = len(d.Body)
	case err == nil && op == events.Is && !s.Sync:
		k.latest = proofOf(d)
		k.logFight(ctx, d, obj)
	}
	return err
}

func (k *Reflector) append(ctx context.Context, d events.Delta) error {
	k.completeDelta(&d)
	d.Waits = uint64(k.bounds.Waits())
	if k.dirty.IsZero() {
		k.dirty = d.At
	}
	m := events.Seal(subject.Message(d))
	if err := k.appender.Append(ctx, m); err != nil {
		return err
	}
	k.noteAppended(d.Op, m, k.appender.Last())
	k.authors.LastAppended = k.appender.Last()
	k.metrics.deltas.WithLabelValues(string(k.kind.Name), string(d.Op)).Inc()
	return nil
}

func (k *Reflector) flush(ctx context.Context) error {
	if k.dirty.IsZero() {
		return nil
	}
	if err := k.appender.Flush(ctx); err != nil {
		return err
	}
	k.stored = k.appender.Last()
	k.tracing.Flushed()
	took := time.Since(k.dirty).Seconds()
	k.metrics.lag.WithLabelValues(string(k.kind.Name)).Set(took)
	k.metrics.stored.WithLabelValues(string(k.kind.Name)).Observe(took)
	k.dirty = time.Time{}
	return nil
}

// decodeRecorded decodes the object of a delta as the record has it; nil when it cannot be read.
func (k *Reflector) decodeRecorded(d events.Delta) runtime.Object {
	kind := k.kind
	kind.Form = d.Form
	m, err := kinds.Decode(kind, d.ContentType, d.Body)
	if err != nil {
		return nil
	}
	obj, _ := m.(runtime.Object)
	return obj
}

// logFight logs a fight that a change completes. It logs no values, which may be secret.
func (k *Reflector) logFight(ctx context.Context, d events.Delta, obj runtime.Object) {
	if d.Op != events.Is || d.Sync {
		return
	}
	spec := func() []byte {
		if _, raw := obj.(*kinds.Raw); raw {
			obj = k.decodeRecorded(d)
		}
		return versions.SpecOf(obj)
	}
	if f, found := k.fights.Observe(d, spec); found {
		k.metrics.fights.WithLabelValues(string(k.kind.Name)).Inc()
		klog.FromContext(ctx).Info("Managers write an object back and forth: let only one of them set these fields",
			"object", d.Ref.String(), "managers", f.Managers, "fields", f.Fields, "times", fmt.Sprintf("%d since %s", f.Times, f.Since.UTC().Format(time.RFC3339)))
	}
}
