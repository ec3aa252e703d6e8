// Package reflector keeps the log of one kind: it lists and watches the kind at the API server, as
// client-go's Reflector does, and records each change in the log. It resumes where the log ends; it
// relists, compares with the log, and records the difference, where the API server has forgotten the
// changes behind that, or where the log is damaged. Package watcher says what a log promises.
//
//	Run ── session ── ensure   the streams exist (ensure.go)
//	  │       ├────── resume   the position is in the log, and the log is whole (resume.go)
//	  │       ├────── relist   or all is listed and compared (relist.go)
//	  │       └────── watch    until something ends it (follow.go): events, keyframes, versions
//	  │                        that wait, proofs, reports of damage
//	  └────── kindlog.Scrub    reads the log, slowly
package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/services/watcher/causes"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/versions"
)

// errEnded: a watch lasts as long as the server likes.
var errEnded = errors.New("the API server ended the watch")

// Config of a Reflector.
type Config struct {
	Kind    kinds.Kind
	Bus     bus.Bus
	Metrics *Metrics
	// Epoch is the storage's epoch, for all kinds.
	Epoch *storageepoch.Tracker
	// Hide is what must not be recorded.
	Hide redact.Policy
	// Bound limits the versions of each object.
	Bound versions.Bound
	// Writes is what the writers report of their requests; nil: there are no traces.
	Writes *causes.Writes
	// Ensured: the kind's streams are known to exist.
	Ensured bool
	// Open opens the kind at the API server, Want is how the kind is wanted by now, and Served
	// reports whether the API server serves it in a version.
	Open   func(kinds.Kind) (*source.Kind, error)
	Want   func() kinds.Kind
	Served func(version string) bool
	// Resume waits until the kind, whose log has had this many messages, may read the end of its
	// log. The Reflector calls release when it has.
	Resume func(ctx context.Context, messages uint64) (release func())
	// Overtaken is called when another watcher has appended to the log.
	Overtaken func()
	// Changed is called for each change that the watch receives; may be nil.
	Changed func()
}

// Reflector keeps the log of one kind. One goroutine calls Run; the rest is safe for concurrent use.
type Reflector struct {
	kind       kinds.Kind
	bus        bus.Bus
	metrics    *Metrics
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
	resuming func(ctx context.Context, messages uint64) (release func())
	appender bus.Appender
	logState
	writes  *causes.Writes // nil without traces
	tracing causes.Tracing
	authors versions.Authors
	fights  versions.Fights
	bounds  versions.Bounds
	// wake rings when tracing has changes to release, or when there is room for a version that waits.
	wake    chan struct{}
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
	reported *report.Damage // a reader's report that the watch has not looked at yet
	findings []events.Hole  // the scrubber's findings that are not recorded yet

	// changed is called for each change that the watch receives; may be nil.
	changed     func()
	reports     chan struct{} // a token: reported or findings is new
	epochClaims chan struct{} // a token: another process says that the storage went back
	shownAsked  chan struct{} // a token: another watcher asks who watches the kind
}

// New makes a Reflector, which does nothing before Run.
func New(c Config) *Reflector {
	wake := make(chan struct{}, 1)
	return &Reflector{
		kind: c.Kind, bus: c.Bus, metrics: c.Metrics, redact: c.Hide, age: defaultLogAge, epoch: c.Epoch,
		open: c.Open, want: c.Want, served: c.Served, ensured: c.Ensured, resuming: c.Resume, overtaken: c.Overtaken, changed: c.Changed,
		writes: c.Writes, wake: wake, tracing: causes.NewTracing(c.Writes, c.Kind.Name, wake),
		bounds:  versions.Bounds{Bound: c.Bound.Or(versions.DefaultBound), LeftOut: c.Metrics.leaves(c.Kind.Name)},
		reports: make(chan struct{}, 1), epochClaims: make(chan struct{}, 1), shownAsked: make(chan struct{}, 1),
	}
}

// Status reports whether the kind has been listed since Run began, and the newest error; nil: it is watched.
func (k *Reflector) Status() (synced bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.synced, k.err
}

// Unwatched returns why the kind cannot be watched, once that has lasted for report.StallAfter.
func (k *Reflector) Unwatched(now time.Time) (u report.Unwatched, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil || now.Sub(k.failing) < report.StallAfter {
		return u, false
	}
	return report.Unwatched{Kind: k.kind.Name, Reason: k.err.Error(), Since: k.failing}, true
}

// note keeps the newest error, and reports whether it has changed.
func (k *Reflector) note(err error) (news bool) {
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

// Run watches the kind until the context ends, and retries after every error.
func (k *Reflector) Run(ctx context.Context) {
	defer k.metrics.degraded.DeleteLabelValues(string(k.kind.Name))
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	kind := k.kind.Name
	beside.Go(func() { kindlog.Scrub(ctx, k.bus, kind, k.noteFindings) })
	defer func() { cancel(); beside.Wait() }()
	var p RetryPause
	log := klog.FromContext(ctx).WithValues("kind", k.kind.Name)
	for ctx.Err() == nil {
		began := time.Now()
		err := k.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > settledAfter {
			p = RetryPause{}
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
			// The watcher logs this once for all kinds.
			k.note(err)
			log.V(2).Info("Cannot watch", "because", err)
		case k.note(err):
			log.Error(err, "Cannot watch")
		}
		if errors.Is(err, bus.ErrNoStream) || errors.Is(err, bus.ErrSettings) || source.Absent(err) {
			k.ensured, k.kind = false, k.want()
		}
		sleep.For(ctx, p.Next(err))
	}
}

// session opens the log, finds the position, and watches from there.
func (k *Reflector) session(ctx context.Context) error {
	if err := k.ensure(ctx); err != nil {
		return err
	}
	appender, err := k.bus.Append(ctx, k.kind.Name)
	if err != nil {
		return err
	}
	k.appender, k.dirty = appender, time.Time{}
	defer appender.Close()
	k.authors.Resume(appender.Last())
	defer k.tracing.EndLast(ctx, k.bus, appender)
	release := k.resuming(ctx, appender.Last())
	resumable, err := k.resume(ctx)
	release()
	if err != nil {
		return err
	}
	var w watch.Interface
	resumed := resumable && !k.expired
	if resumed {
		k.epoch.Begin(k.cursor.Epoch)
		k.bounds.DropAll(true)
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

// CheckEpoch makes the watch ask the API server whether its storage went back: another process says so.
func (k *Reflector) CheckEpoch() { signal(k.epochClaims) }

// ShowWatched makes the watch append a mark, which shows other watchers that it watches the kind.
func (k *Reflector) ShowWatched() { signal(k.shownAsked) }

func (k *Reflector) stamp(sync bool) translate.Stamp {
	return translate.Stamp{At: time.Now(), Epoch: k.cursor.Epoch, Sync: sync, Hole: k.nextGap, Hide: k.redact}
}

const (
	firstPause = 50 * time.Millisecond
	// nearPause bounds the pause while no server answers, jitter (half of it) not
	// counted: a server that is back must not wait for us.
	nearPause = 600 * time.Millisecond
	// farPause bounds the pause while the server answers, but refuses or fails.
	farPause = 10 * time.Second
	// settledAfter is how long a session must last for the back-off to start again from firstPause.
	settledAfter = 10 * time.Second
)

// RetryPause is the back-off before the next attempt. The zero value is ready.
type RetryPause struct{ near, far *backoff.ExponentialBackOff }

// Next returns the pause after an error; after nil it is the shortest.
func (p *RetryPause) Next(err error) time.Duration {
	refused := source.Answered(err) && !source.Expired(err) || errors.Is(err, bus.ErrSettings)
	if !refused {
		p.near = cmp.Or(p.near, newBackoff(nearPause))
		return p.near.NextBackOff()
	}
	p.far = cmp.Or(p.far, newBackoff(farPause))
	wait := p.far.NextBackOff()
	if seconds, told := apierrors.SuggestsClientDelay(err); told {
		wait = max(wait, time.Duration(seconds)*time.Second)
	}
	return wait
}

func newBackoff(longest time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause), backoff.WithMaxInterval(longest),
		backoff.WithMultiplier(2), backoff.WithMaxElapsedTime(0))
}
