package watcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
)

const (
	// markEvery bounds how often a quiet kind's position is stored.
	markEvery = time.Minute
	// flushEvery is how long an unstored delta may go unnoticed.
	flushEvery = 250 * time.Millisecond
	// keyframeEvery and keyframeBatch spread keyframes over time.
	keyframeEvery = 30 * time.Second
	keyframeBatch = 500
)

var errEnded = errors.New("the API server ended the watch")

// kindWatch keeps the log of one kind. Run belongs to one goroutine.
type kindWatch struct {
	kind    kinds.Kind
	bus     bus.Bus
	source  *source.Kind
	metrics *metrics
	age     time.Duration // how long the log keeps a delta

	appender bus.Appender
	cursor   translate.Cursor
	expired  bool // the position is of no use: relist
	limit    int  // bodies of this size did not fit the bus; 0: none yet
	marked   time.Time
	dirty    time.Time // when the oldest delta not known to be stored was received

	mu     sync.Mutex
	synced bool
	err    error
}

func (k *kindWatch) status() (synced bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.synced, k.err
}

func (k *kindWatch) note(synced bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.synced, k.err = k.synced || synced, err
}

// run watches until the context ends, whatever happens.
func (k *kindWatch) run(ctx context.Context) {
	wait := newBackoff()
	log := klog.FromContext(ctx).WithValues("kind", k.kind.Name)
	for ctx.Err() == nil {
		began := time.Now()
		err := k.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > 10*time.Second {
			wait.Reset()
		}
		switch {
		case errors.Is(err, errEnded), errors.Is(err, bus.ErrTooLarge):
			log.V(2).Info("Resuming", "because", err)
		case source.Expired(err):
			k.expired = true
			log.Info("Relisting", "because", err)
		default:
			k.note(false, err)
			log.Error(err, "Cannot watch")
		}
		delay := wait.NextBackOff()
		if seconds, told := apierrors.SuggestsClientDelay(err); told {
			delay = max(delay, time.Duration(seconds)*time.Second)
		}
		pause(ctx, delay)
	}
}

func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(5*time.Second),
		backoff.WithMultiplier(2), backoff.WithMaxElapsedTime(0))
}

// session opens the log, finds out where it stands, and goes on from there.
func (k *kindWatch) session(ctx context.Context) error {
	if err := k.bus.EnsureKind(ctx, k.kind); err != nil {
		return err
	}
	appender, err := k.bus.Append(ctx, k.kind.Name)
	if err != nil {
		return err
	}
	k.appender, k.dirty = appender, time.Time{}
	defer appender.Close()
	resumable, err := k.resume(ctx)
	if err == nil && (!resumable || k.expired) {
		err = k.relist(ctx)
	}
	if err != nil {
		return err
	}
	k.expired = false
	return k.watch(ctx)
}

// resume reads the position in the newest message of the log, and makes sure
// that the state stream, which may have been made anew, is whole.
func (k *kindWatch) resume(ctx context.Context) (ok bool, err error) {
	last := k.appender.Last()
	if last == 0 {
		return false, nil
	}
	newest, there, err := stored(ctx, k.bus, subject.LogStream(k.kind.Name), last)
	if err != nil || !there {
		return false, err
	}
	state, err := k.bus.StreamState(ctx, subject.StateStream(k.kind.Name))
	if err != nil || state.Messages == 0 {
		return false, err
	}
	k.cursor, ok = translate.Resume(newest)
	return ok, nil
}

func (k *kindWatch) stamp(sync bool) translate.Stamp {
	return translate.Stamp{At: time.Now(), Epoch: k.cursor.Epoch, Sync: sync}
}

// relist compares everything that is there with everything that is known.
func (k *kindWatch) relist(ctx context.Context) error {
	first := k.appender.Last() == 0 && k.cursor.Version == ""
	state, err := readState(ctx, k.bus, k.kind.Name, k.appender.Last())
	if err != nil {
		return err
	}
	k.metrics.relists.WithLabelValues(string(k.kind.Name)).Inc()
	var r *translate.Relist
	begin := func(version string) {
		if r == nil {
			r = state.Compare(version)
			k.cursor = translate.Cursor{Epoch: r.Epoch()}
		}
	}
	version, err := k.source.List(ctx, func(version string, obj runtime.Object) error {
		begin(version)
		return k.find(ctx, r, obj)
	})
	if err != nil {
		return err
	}
	begin(version)
	for _, sequence := range r.Missing() {
		if err := k.bury(ctx, sequence); err != nil {
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
	return k.mark(ctx)
}

func (k *kindWatch) find(ctx context.Context, r *translate.Relist, obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("read a listed object: %w", err)
	}
	ref := events.Ref{Kind: k.kind.Name, Namespace: m.GetNamespace(), Name: m.GetName()}
	finding := r.See(ref, m.GetUID(), m.GetResourceVersion())
	if finding.Replaced != 0 {
		if err := k.bury(ctx, finding.Replaced); err != nil {
			return err
		}
	}
	if !finding.Changed {
		return nil
	}
	return k.say(ctx, events.Is, obj, k.stamp(true))
}

// bury says that an object that the state stream holds is there no more.
func (k *kindWatch) bury(ctx context.Context, sequence uint64) error {
	d, there, err := stored(ctx, k.bus, subject.StateStream(k.kind.Name), sequence)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("read message %d of the state of %s: %w", sequence, k.kind.Name, bus.ErrOvertaken)
	}
	return k.append(ctx, translate.Tombstone(d, k.stamp(true)))
}

// watch follows the API server from the cursor until something ends it.
func (k *kindWatch) watch(ctx context.Context) error {
	w, err := k.source.Watch(ctx, k.cursor.Version)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	k.note(true, nil)
	flush, keyframes := time.NewTicker(flushEvery), time.NewTicker(keyframeEvery)
	defer flush.Stop()
	defer keyframes.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-w.ResultChan():
			if !open {
				return errors.Join(k.flush(ctx), errEnded)
			}
			if err := k.hear(ctx, event); err != nil {
				return err
			}
		case <-flush.C:
			if err := k.flush(ctx); err != nil {
				return err
			}
		case <-keyframes.C:
			if err := k.keyframes(ctx); err != nil {
				return err
			}
		}
	}
}

func (k *kindWatch) hear(ctx context.Context, event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
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
	if err := k.say(ctx, op, event.Object, k.stamp(false)); err != nil {
		return err
	}
	k.cursor.Version = version
	return nil
}

func (k *kindWatch) mark(ctx context.Context) error {
	k.marked = time.Now()
	if err := k.append(ctx, translate.Mark(k.kind.Name, k.cursor.Version, k.stamp(false))); err != nil {
		return err
	}
	return k.flush(ctx)
}

// say appends an object, in metadata form if bodies of its size do not fit.
func (k *kindWatch) say(ctx context.Context, op events.Op, obj runtime.Object, s translate.Stamp) error {
	d, err := translate.Object(k.kind, op, obj, s)
	if err != nil {
		return err
	}
	if k.limit > 0 && len(d.Body) >= k.limit && d.Form != kinds.Metadata {
		by := d.By
		s.Brief = true
		if d, err = translate.Object(k.kind, op, obj, s); err != nil {
			return err
		}
		d.By = by // the object has lost it
	}
	return k.append(ctx, d)
}

func (k *kindWatch) append(ctx context.Context, d events.Delta) error {
	m := events.EncodeDelta(d)
	m.Subject = subject.Mark(k.kind.Name)
	if d.Ref.Name != "" {
		m.Subject = subject.Delta(d.Ref)
	}
	if k.dirty.IsZero() {
		k.dirty = d.At
	}
	if err := k.appender.Append(ctx, m); err != nil {
		if errors.Is(err, bus.ErrTooLarge) && d.Form == kinds.Full {
			// The session begins anew, and meets the object again.
			k.limit = len(d.Body)
		}
		return err
	}
	k.metrics.deltas.WithLabelValues(string(k.kind.Name), string(d.Op)).Inc()
	return nil
}

func (k *kindWatch) flush(ctx context.Context) error {
	if k.dirty.IsZero() {
		return nil
	}
	if err := k.appender.Flush(ctx); err != nil {
		return err
	}
	k.metrics.lag.WithLabelValues(string(k.kind.Name)).Set(time.Since(k.dirty).Seconds())
	k.dirty = time.Time{}
	return nil
}

// keyframes says the oldest objects again before the log forgets them. The
// state stream is in the order of age.
func (k *kindWatch) keyframes(ctx context.Context) error {
	if err := k.flush(ctx); err != nil {
		return err
	}
	at, err := k.bus.StreamState(ctx, subject.StateStream(k.kind.Name))
	if err != nil {
		return fmt.Errorf("look at the state of %s: %w", k.kind.Name, err)
	}
	if at.Last < k.appender.Last() {
		return nil // it lags, and what it holds may be out of date: next time
	}
	old := time.Now().Add(-k.age / 2)
	var again []events.Delta
	err = replay(ctx, k.bus, k.kind.Name, at, func(d events.Delta, m events.Message) error {
		if m.Time.After(old) || len(again) == keyframeBatch {
			return errEnough
		}
		if d.Op == events.Is {
			again = append(again, d)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if len(again) == 0 {
		return nil
	}
	for _, d := range again {
		if err := k.append(ctx, translate.Again(d, k.stamp(true))); err != nil {
			return err
		}
	}
	return k.mark(ctx)
}
