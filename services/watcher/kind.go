package watcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
)

// errEnded: a watch lasts as long as the server likes.
var errEnded = errors.New("the API server ended the watch")

// kindWatch keeps the log of one kind. One goroutine calls run.
type kindWatch struct {
	kind       kinds.Kind
	bus        bus.Bus
	metrics    *metrics
	redact     redact.Policy
	age        time.Duration // how long the log keeps a delta
	room       uint64        // how many messages the log's size limit allows; 0 means no bound
	overfull   bool          // room is too small for the objects that exist
	ageLowered bool          // age has become less, and the watch has not acted on that yet
	// open opens the kind at the API server, want is how the kind is wanted by now, and served
	// reports whether the API server serves it in a version.
	open   func(kinds.Kind) (*source.Kind, error)
	want   func() kinds.Kind
	served func(version string) bool

	source   *source.Kind
	ensured  bool // the log existed, as wanted, at the last check
	resuming *resumeQueue
	appender bus.Appender
	logState
	tracing
	writers writers
	fights  fights
	bounds  bounds
	waking  time.Time // when the watch next checks the versions that wait for room
	cursor  translate.Cursor
	latest  events.Delta          // the newest recorded object: proof of history
	expired bool                  // the position cannot be resumed from: relist
	epoch   *storageepoch.Tracker // the storage's epoch; deltas belong to it, or to a later one
	// limits are the sizes of bodies that did not fit the bus, by Size (whole and brief); 0: none
	// yet.
	limits  [translate.Bare]int
	marked  time.Time
	shownAt time.Time // when the watch last showed that it watches the kind
	// overtaken is called when another watcher has appended to the log.
	overtaken func()
	dirty     time.Time // when the oldest delta not known to be stored was received

	mu       sync.Mutex
	synced   bool
	err      error
	failing  time.Time      // since when err has not been nil
	reported *events.Damage // a reader's report that the watch has not looked at yet
	findings []events.Hole  // the scrubber's findings that are not recorded yet

	// changed is called for each change that the watch receives; may be nil.
	changed     func()
	reports     chan struct{} // a token: reported or findings is new
	epochClaims chan struct{} // a token: another process says that the storage went back
	shownAsked  chan struct{} // a token: another watcher asks who watches the kind
}

func (k *kindWatch) status() (synced bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.synced, k.err
}

// unwatched returns why the kind cannot be watched, once that has lasted for events.StallAfter.
func (k *kindWatch) unwatched(now time.Time) (u events.Unwatched, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil || now.Sub(k.failing) < events.StallAfter {
		return u, false
	}
	return events.Unwatched{Kind: k.kind.Name, Reason: k.err.Error(), Since: k.failing}, true
}

// note keeps the newest error, and reports whether it has changed.
func (k *kindWatch) note(err error) (news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	news = fmt.Sprint(err) != fmt.Sprint(k.err)
	if k.err == nil {
		k.failing = time.Now()
	}
	k.synced, k.err = k.synced || err == nil, err
	value := 0.0
	if err != nil {
		value = 1
	}
	k.metrics.degraded.WithLabelValues(string(k.kind.Name)).Set(value)
	return news
}

// run watches the kind until the context ends, and retries after every error.
func (k *kindWatch) run(ctx context.Context) {
	defer k.metrics.degraded.DeleteLabelValues(string(k.kind.Name))
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	kind := k.kind.Name
	beside.Go(func() { k.scrub(ctx, kind) })
	defer func() { cancel(); beside.Wait() }()
	var p retryPause
	log := klog.FromContext(ctx).WithValues("kind", k.kind.Name)
	for ctx.Err() == nil {
		began := time.Now()
		err := k.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > settledAfter {
			p = retryPause{}
		}
		if errors.Is(err, bus.ErrOvertaken) {
			k.overtaken()
		}
		switch {
		case errors.Is(err, errEnded), errors.Is(err, bus.ErrTooLarge), errors.Is(err, bus.ErrOvertaken):
			log.V(2).Info("Resuming", "because", err)
		case errors.Is(err, events.ErrDamaged):
			k.markDamaged(log, events.Hole{Reason: err.Error()})
		case source.Expired(err):
			k.expired = true
			k.nextGap = events.Hole{Reason: "the API server has forgotten the changes behind the position"}
			log.V(2).Info("Relisting", "because", err)
		case errors.Is(err, errRewound):
			k.expired = true
			k.epoch.Begin(events.NextEpoch(k.cursor.Epoch))
			k.nextGap = events.Hole{Reason: err.Error()}
			log.Info("Relisting in a new epoch", "because", err)
		case source.Unreachable(err):
			// Service.note logs this once for all kinds.
			k.note(err)
			log.V(2).Info("Cannot watch", "because", err)
		case k.note(err):
			log.Error(err, "Cannot watch")
		}
		if errors.Is(err, bus.ErrNoStream) || errors.Is(err, bus.ErrSettings) || source.Absent(err) {
			k.ensured, k.kind = false, k.want()
		}
		pause(ctx, p.next(err))
	}
}

// session opens the log, finds the position, and watches from there.
func (k *kindWatch) session(ctx context.Context) error {
	if err := k.ensure(ctx); err != nil {
		return err
	}
	appender, err := k.bus.Append(ctx, k.kind.Name)
	if err != nil {
		return err
	}
	k.appender, k.dirty = appender, time.Time{}
	defer appender.Close()
	k.writers.resume(appender.Last())
	defer k.endLastSpans(ctx)
	release := k.resuming.acquire(ctx, appender.Last())
	resumable, err := k.resume(ctx)
	release()
	if err != nil {
		return err
	}
	var w watch.Interface
	resumed := resumable && !k.expired
	if resumed {
		k.epoch.Begin(k.cursor.Epoch)
		k.bounds.dropAll(true)
		w, err = k.source.Watch(ctx, k.cursor.Version)
	} else {
		w, err = k.relist(ctx)
	}
	if err == nil {
		k.expired = false
		err = k.watch(ctx, w, resumed)
		if ctx.Err() != nil || errors.Is(err, errEnded) {
			err = errors.Join(err, k.catchUp(ctx))
		}
	}
	if resumed && source.Unreachable(err) && time.Since(k.marked) > markEvery {
		// Readers that start need a mark, also while the API server is away.
		_, failed := k.keyframes(ctx)
		err = errors.Join(err, failed)
	}
	if source.Ahead(err) {
		// Either this API server lags behind another one, or the storage has gone back.
		return errors.Join(err, k.prove(ctx))
	}
	return err
}

func (k *kindWatch) stamp(sync bool) translate.Stamp {
	return translate.Stamp{At: time.Now(), Epoch: k.cursor.Epoch, Sync: sync, Hole: k.nextGap, Hide: k.redact}
}
