package kindlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Epochs knows the epoch of each kind, which it reads from the newest delta of the kind's log.
// It refreshes the kinds in use in the background for a while, so that turns need not wait
// for a lookup.
type Epochs struct {
	bus bus.Bus

	// looking merges concurrent lookups of one kind: many turns that rest on all kinds look up
	// each of them at once.
	looking singleflight.Group

	epoch *storageepoch.Tracker // of the storage

	mu    sync.Mutex
	known map[kinds.Name]*kindEpoch
}

// kindEpoch is the last known epoch of one kind.
type kindEpoch struct {
	epoch    uint64
	ok       bool // the kind has an epoch
	at, used time.Time
	read     edge // the end of the stream when the epoch was read
}

// edge is the end of a stream. While it stays the same there is nothing new to read.
type edge struct {
	created time.Time
	last    uint64
}

const (
	// refreshEvery is how often the epochs in use are looked up again, and unused is how long after
	// its last use a kind is still refreshed.
	refreshEvery = time.Second
	unused       = 10 * refreshEvery
	// maxLookups is how many kinds are looked up at a time.
	maxLookups = 16
)

// NewEpochs returns the epochs of the kinds on a bus; nothing is read yet.
func NewEpochs(b bus.Bus) *Epochs {
	return &Epochs{bus: b, epoch: storageepoch.New(), known: map[kinds.Name]*kindEpoch{}}
}

// OfKinds returns the epochs of some kinds, at most two reviews old. A kind that is not watched, or has
// nothing stored, has none.
//
// Errors: the bus cannot be asked.
func (e *Epochs) OfKinds(ctx context.Context, some []kinds.Name) (events.Epochs, error) {
	found := events.Epochs{}
	var unknown []kinds.Name
	for _, kind := range some {
		if now, known := e.recent(kind); !known {
			unknown = append(unknown, kind)
		} else if now.ok {
			found[kind] = now.epoch
		}
	}
	return found, e.lookUpAll(ctx, unknown, func(kind kinds.Name, now kindEpoch) {
		if now.ok {
			found[kind] = now.epoch
		}
	})
}

// lookUpAll looks up kinds, maxLookups at a time, and calls tell for each, one call at a time. A turn
// may rest on all kinds and should not wait for sequential lookups.
func (e *Epochs) lookUpAll(ctx context.Context, some []kinds.Name, tell func(kinds.Name, kindEpoch)) error {
	looking, ctx := errgroup.WithContext(ctx)
	looking.SetLimit(maxLookups)
	var telling sync.Mutex
	for _, kind := range some {
		looking.Go(func() error {
			now, err := e.lookUp(ctx, kind)
			if err != nil {
				return err
			}
			telling.Lock()
			defer telling.Unlock()
			tell(kind, now)
			return nil
		})
	}
	return looking.Wait()
}

// Storage is the newest known epoch of the API server's storage. The watchers announce a new one
// when the storage has gone back, before they have listed any kind again.
func (e *Epochs) Storage() uint64 {
	epoch, _ := e.epoch.Now()
	return epoch
}

// check returns the newest epoch in the logs of all kinds; the logs are fenced.
func (e *Epochs) check(ctx context.Context) (uint64, error) {
	all, err := e.bus.Kinds(ctx)
	if err != nil {
		return 0, err
	}
	names := make([]kinds.Name, 0, len(all))
	e.mu.Lock()
	for _, k := range all {
		if names = append(names, k.Name); e.known[k.Name] == nil {
			e.known[k.Name] = &kindEpoch{}
		}
	}
	e.mu.Unlock()
	err = e.lookUpAll(ctx, names, func(kinds.Name, kindEpoch) {})
	return e.Storage(), err
}

// Await waits while this writer checks a claim that the storage is in a later epoch than the turn
// rests on. It waits for one check only, so that many claims do not delay a turn for longer.
//
// Errors: the context ended.
func (e *Epochs) Await(ctx context.Context, rests uint64) error {
	if claimed, decided := e.epoch.Pending(); claimed > rests {
		select {
		case <-decided:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Share announces the storage's epoch to the other processes as id, and checks what they announce,
// until the context ends. During a check turns of an earlier epoch wait; the writer refuses them
// if a log shows the later epoch. claims counts what was announced, by the verdict of the check.
func (e *Epochs) Share(ctx context.Context, id string, log *slog.Logger, claims *prometheus.CounterVec) {
	e.epoch.Share(ctx, storageepoch.Config{
		Bus: e.bus, ID: id,
		Check:   func(ctx context.Context, _ bool) (uint64, error) { return e.check(ctx) },
		Trouble: func(err error) { log.Warn("cannot exchange the storage epoch", "err", err) },
		Judged: func(c storageepoch.Claim, v storageepoch.Verdict) {
			claims.WithLabelValues(string(v)).Inc()
			if v != storageepoch.Confirmed {
				log.Error("ignored a claim that the API server's storage was restored: no log shows it",
					"epoch", c.Epoch, "by", c.By, "verdict", v)
			}
		},
	})
}

func (e *Epochs) recent(kind kinds.Name) (now kindEpoch, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.known[kind]
	if !ok {
		at = &kindEpoch{}
		e.known[kind] = at
	}
	at.used = time.Now()
	return *at, at.used.Sub(at.at) < 2*refreshEvery
}

// Run refreshes the kinds in use until the context ends.
func (e *Epochs) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(refreshEvery):
		}
		var used []kinds.Name
		e.mu.Lock()
		for kind, at := range e.known {
			if time.Since(at.used) < unused {
				used = append(used, kind)
			}
		}
		e.mu.Unlock()
		_ = e.lookUpAll(ctx, used, func(kinds.Name, kindEpoch) {}) // without the bus, callers look up themselves
	}
}

// lookUp looks up the epoch of a kind, and shares a lookup of it that is in flight.
func (e *Epochs) lookUp(ctx context.Context, kind kinds.Name) (kindEpoch, error) {
	now, err, _ := e.looking.Do(string(kind), func() (any, error) { return e.readEpoch(context.WithoutCancel(ctx), kind) })
	if err != nil {
		return kindEpoch{}, fmt.Errorf("look up the epoch of %s: %w", kind, err)
	}
	return now.(kindEpoch), nil
}

// readEpoch reads the newest message of a kind's log, or its last mark if that message has
// expired. It reads nothing if the stream still ends where it did at the last reading.
func (e *Epochs) readEpoch(ctx context.Context, kind kinds.Name) (kindEpoch, error) {
	began := time.Now()
	state, err := e.bus.StreamState(ctx, subject.LogStream(kind))
	end := edge{state.Created, state.Last}
	if err == nil {
		if now, same := e.unchanged(kind, end, began); same {
			return now, nil
		}
	}
	var m events.Message
	var ok bool
	if err == nil {
		m, ok, err = endOf(ctx, e.bus, kind, state)
	}
	if err != nil && !errors.Is(err, events.ErrDamaged) && !errors.Is(err, bus.ErrNoStream) {
		return kindEpoch{}, err
	}
	var d events.Delta
	if err == nil && ok {
		var ref events.Ref
		if ref, err = subject.ParseDelta(m.Subject); err == nil {
			d, err = events.DecodeDelta(ref, m)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.known[kind]
	if at.at = began; err == nil && ok {
		at.epoch, at.ok, at.read = max(at.epoch, d.Epoch), true, end // an epoch never goes back
		e.epoch.Begin(at.epoch)
	}
	return *at, nil
}

// unchanged returns the known epoch of a kind if its log still ends where it was read.
func (e *Epochs) unchanged(kind kinds.Name, end edge, now time.Time) (kindEpoch, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.known[kind]
	if !at.ok || at.read.last != end.last || !at.read.created.Equal(end.created) {
		return kindEpoch{}, false
	}
	at.at = now
	return *at, true
}

// newest returns the newest message of a kind's log, or its last mark if that message has
// expired.
func newest(ctx context.Context, b bus.Bus, kind kinds.Name) (m events.Message, ok bool, err error) {
	state, err := b.StreamState(ctx, subject.LogStream(kind))
	if err != nil {
		return m, false, err
	}
	return endOf(ctx, b, kind, state)
}

// endOf is [newest] for a given state of the stream.
func endOf(ctx context.Context, b bus.Bus, kind kinds.Name, state bus.State) (m events.Message, ok bool, err error) {
	stream := subject.LogStream(kind)
	if state.Messages > 0 {
		m, ok, err = b.At(ctx, stream, state.Last)
	}
	if err == nil && !ok {
		m, ok, err = b.Last(ctx, stream, subject.Mark(kind))
	}
	return m, ok, err
}
