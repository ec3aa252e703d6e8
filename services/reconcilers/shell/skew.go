package shell

import (
	"time"

	"github.com/millrace/millrace/services/reconcilers/cache"
)

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
		d.timers.set(d.now.Add(MaxEpochSkew), d.requeueInconsistent)
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
