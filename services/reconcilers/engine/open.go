package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
)

// Shut says that a kind is not folded far enough to decide on. The engine decides nothing until
// [Engine.Open] has been called for it.
func (d *Engine) Shut(kind kinds.Name) {
	if len(d.shut) == 0 {
		d.shutSince = d.now
	}
	d.shut[kind] = true
	delete(d.listingEpoch, kind)
}

// Open says that a kind is folded far enough. A kind that was not shut may be opened.
//
// When the last shut kind opens, the engine asks once about every key of the memory, because it
// does not know what happened before it started. When a kind that is found or forgotten later
// is opened, the engine asks about the keys of that kind.
func (d *Engine) Open(kind kinds.Name) {
	_, shut := d.shut[kind]
	if delete(d.shut, kind); shut && len(d.shut) == 0 {
		d.freedAt = d.now
	}
	told := d.listingEpoch[kind] // while the new epoch was listed, changes asked for turns
	delete(d.listingEpoch, kind)
	delete(d.forgotten, kind)
	d.epochs[kind], _ = d.cache.Epoch(kind)
	for _, e := range d.awaiting[kind] {
		d.setEpochs(&e.write)
		d.setEpochs(&e.status)
	}
	d.recheck(kind)
	d.Folded(kind)
	if shut && !told && d.askedAll {
		d.askAbout(kind) // objects older than the followed log come as no change
	}
	if shut && len(d.shut) == 0 && !d.askedAll {
		d.askedAll = true
		d.AskAll()
	}
}

// HasOpened reports whether the engine is open, or has been open once.
func (d *Engine) HasOpened() bool { return d.askedAll || len(d.shut) == 0 }

// shutForEpoch shuts the engine while a kind is being listed in a new epoch: the API server was
// restored to an earlier time, and an object of the old epoch that has not been reported again
// may not exist in the new one.
func (d *Engine) shutForEpoch(kind kinds.Name) {
	if !d.reads(kind) {
		return
	}
	epoch, told := d.cache.Epoch(kind)
	if d.HasOpened() {
		d.newEpoch(epoch)
	}
	switch {
	case d.listingEpoch[kind] && told:
		d.Open(kind)
	case !d.shut[kind] && !told && epoch > d.epochs[kind]:
		d.Shut(kind)
		d.listingEpoch[kind] = true
	case !d.shut[kind]:
		d.epochs[kind] = epoch
	}
}

// unfound stands for the kinds that no discovery has found yet.
const unfound kinds.Name = "*"

// AwaitDiscovery shuts the engine of a controller that reads every kind until a discovery has
// ended ([Engine.Discovered]). It does nothing to other engines.
func (d *Engine) AwaitDiscovery() {
	if d.every {
		d.Shut(unfound)
	}
}

// AwaitsDiscovery reports whether the engine waits for a discovery of the kinds that have streams: it reads
// every kind and has not been opened, or keys wait for effects on kinds that it does not know.
func (d *Engine) AwaitsDiscovery() bool {
	if d.shut[unfound] {
		return true
	}
	for kind, keys := range d.awaiting {
		if len(keys) > 0 && !d.named[kind] {
			return true
		}
	}
	return false
}

// Discover says that a discovery of the kinds that have streams begins.
func (d *Engine) Discover() { d.discoveries++ }

// Discovered says that the last discovery has ended, and that the engine has been shut for
// every kind that it found and that was not followed before. Effects on a kind that is unknown
// even then cannot come back, so the engine stops waiting for them.
func (d *Engine) Discovered() {
	d.discovered = d.discoveries
	for _, kind := range slices.Sorted(maps.Keys(d.awaiting)) {
		if !d.named[kind] {
			d.recheck(kind)
		}
	}
	d.Open(unfound)
}

// Forgot says that a kind's stream was recreated, and is being folded from its start. keys are
// the keys that the forgotten objects mapped to ([cache.Cache.Forget]).
func (d *Engine) Forgot(kind kinds.Name, keys []events.Key) {
	d.Shut(kind)
	d.forgotten[kind] = true
	for _, e := range d.sorted() {
		settled := e.write.settled() && e.status.settled()
		// The memory has forgotten the effects that had come back: the fence has to wait for
		// them anew, recalling its lanes from the streams.
		e.write.outcome, e.status.outcome = 0, 0
		if e.invalidate(); !settled {
			// Its awaited effects may never be reported again: their objects may be deleted by
			// now.
			e.mustRecall = true
			d.enqueue(e, workqueue.WhenIdle)
		}
	}
	d.Ask(keys...)
}

// Epoch skew ([cache.Snapshot.EpochSkew]). Some decisions on a view of two epochs delete pods that
// the restored cluster needs, and no precondition stops them, because the pods are unchanged. So
// the engine stores no turn until all kinds that the controller reads are in the newest epoch of
// any kind, and listed completely.

// MaxEpochSkew is how long that may take, from the first message of the new epoch. If the API
// server does not serve a kind, its watcher ends the kind in the new epoch. A kind that lags
// longer is one that no watcher may list, and waiting for it would not help.
const MaxEpochSkew = 30 * time.Second

// epochSkew is an epoch that some kinds have reached, and since when the engine has waited for
// the others.
type epochSkew struct {
	epoch uint64
	since time.Time
}

// skewed reports whether decisions have to wait because kinds are in several epochs.
func (d *Engine) skewed(s cache.Snapshot) bool {
	newest, skewed := s.EpochSkew()
	if !skewed {
		return false
	}
	d.newEpoch(newest)
	return d.now.Sub(d.skew.since) < MaxEpochSkew
}

// newEpoch records an epoch. The wait for it begins with its first message, not when a key
// first has to wait; only a later epoch begins it anew.
func (d *Engine) newEpoch(epoch uint64) {
	if epoch > d.skew.epoch {
		d.skew = epochSkew{epoch, d.now}
		d.timers.Set(d.now.Add(MaxEpochSkew), d.requeueInconsistent)
	}
}

// requeueInconsistent looks again at the keys that wait for a consistent snapshot, if there is
// one now.
func (d *Engine) requeueInconsistent() {
	if len(d.inconsistent) == 0 {
		return
	}
	inconsistent := false
	d.cache.View(d.name, nil, func(s cache.Snapshot) { inconsistent = s.Inconsistent() || d.skewed(s) })
	if inconsistent {
		return
	}
	waiting := d.inconsistent
	d.inconsistent, d.freedAt = nil, d.now
	for _, e := range waiting {
		d.requeue(e)
	}
}
