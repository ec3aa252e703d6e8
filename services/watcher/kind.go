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

// kindWatch keeps the log of one kind. Run belongs to one goroutine.
type kindWatch struct {
	kind    kinds.Kind
	bus     bus.Bus
	metrics *metrics
	hide    redact.Policy
	age     time.Duration // how long the log keeps a delta
	room    uint64        // how many messages it holds by its size; 0 means no bound
	narrow  bool          // that is too little for what is there
	shorter bool          // age is less than it was, and what that means has not been looked at yet
	// open, want and served tell how to read the kind, how it is wanted by now,
	// and whether it is served in a version.
	open   func(kinds.Kind) (*source.Kind, error)
	want   func() kinds.Kind
	served func(version string) bool

	source   *source.Kind
	ensured  bool // the streams were there, as wanted, when last looked at
	appender bus.Appender
	state    time.Time // when the state stream was made
	ledger
	tracing
	writers writers
	fights  fights
	bounds  bounds
	waking  time.Time // when it is looked next at what waits for room
	cursor  translate.Cursor
	latest  events.Delta          // the newest object that was said: proof of history
	expired bool                  // the position is of no use: relist
	epoch   *storageepoch.Tracker // of the storage; what is told belongs to it, or to a later one
	// limits are the sizes of bodies that did not fit the bus, whole and brief;
	// 0: none yet.
	limits [translate.Bare]int
	marked time.Time
	showed time.Time // when it was last shown that the kind is watched
	// overtaken is told that another watcher has appended to the log.
	overtaken func()
	dirty     time.Time // when the oldest delta not known to be stored was received
	// searched: what lies before the window has been read, or will be.
	searched bool

	mu       sync.Mutex
	synced   bool
	err      error
	failing  time.Time      // since when there has been one
	before   uint64         // what lies before it is to be read through; 0: nothing
	reported *events.Damage // by a reader, and not looked at yet
	findings []events.Hole  // of the scrubber, and not recorded yet

	// changed is told of each change that a watch brings; may be nil.
	changed func()
	news    chan struct{} // holds a token when something has been reported, found or told
	doubts  chan struct{} // and when another process says that the storage went back
	asks    chan struct{} // and when it is asked who watches the kind
	bygone  chan struct{} // and when what lies before the window is to be read through
}

func (k *kindWatch) status() (synced bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.synced, k.err
}

// unwatched is why the kind cannot be watched, where that has lasted.
func (k *kindWatch) unwatched(now time.Time) (u events.Unwatched, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil || now.Sub(k.failing) < events.Standstill {
		return u, false
	}
	return events.Unwatched{Kind: k.kind.Name, Reason: k.err.Error(), Since: k.failing}, true
}

// note keeps how it goes, and tells whether that is news.
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

// run watches until the context ends, whatever happens.
func (k *kindWatch) run(ctx context.Context) {
	defer k.metrics.degraded.DeleteLabelValues(string(k.kind.Name))
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	kind := k.kind.Name
	beside.Go(func() { k.scrub(ctx, kind) })
	beside.Go(func() { k.searchPast(ctx, kind) })
	defer func() { cancel(); beside.Wait() }()
	var p patience
	log := klog.FromContext(ctx).WithValues("kind", k.kind.Name)
	for ctx.Err() == nil {
		began := time.Now()
		err := k.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > settledAfter {
			p = patience{}
		}
		if errors.Is(err, bus.ErrOvertaken) {
			k.overtaken()
		}
		k.searched = k.searched && errors.Is(err, errEnded)
		switch {
		case errors.Is(err, errEnded), errors.Is(err, bus.ErrTooLarge), errors.Is(err, bus.ErrOvertaken):
			log.V(2).Info("Resuming", "because", err)
		case errors.Is(err, events.ErrDamaged):
			k.distrust(log, events.Hole{Reason: err.Error()})
		case source.Expired(err):
			k.expired = true
			k.hole = events.Hole{Reason: "the API server has forgotten the changes behind the position"}
			log.V(2).Info("Relisting", "because", err)
		case errors.Is(err, errRewound):
			k.expired = true
			k.epoch.Begin(events.NextEpoch(k.cursor.Epoch))
			k.hole = events.Hole{Reason: err.Error()}
			log.Info("Relisting in a new epoch", "because", err)
		case source.Unreachable(err):
			// What keeps the API server's health says so, once for all kinds.
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

// session opens the log, finds out where it stands, and goes on from there.
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
	defer k.vouch(ctx)
	resumable, err := k.resume(ctx)
	if err != nil {
		return err
	}
	var w watch.Interface
	resumed := resumable && !k.expired
	if resumed {
		k.epoch.Begin(k.cursor.Epoch)
		k.suspectPast()
		k.bounds.abandon(true)
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
	if source.Ahead(err) {
		// Either another server lags, or the storage has gone back.
		return errors.Join(err, k.prove(ctx))
	}
	return err
}

func (k *kindWatch) stamp(sync bool) translate.Stamp {
	return translate.Stamp{At: time.Now(), Epoch: k.cursor.Epoch, Sync: sync, Hole: k.hole, Hide: k.hide}
}
