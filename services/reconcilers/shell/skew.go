package shell

import "time"

// Epoch skew. When the API server is restored to an earlier time, every kind begins the same
// new epoch, but the watchers list each kind again at its own speed: for a moment the memory
// holds the replica sets of the backup beside the pods of the history that the restore ended.
// No decision on that view is right in either epoch, and some delete pods that the restored
// cluster needs. No precondition stops them, because the pods are unchanged. So the engine
// stores no turn until all kinds that the controller reads are in the newest epoch of any kind,
// and listed completely.

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

// epochSkew reports whether a kind that the controller reads has not reached the newest epoch of
// any kind, or has not been listed completely in it.
func (s snapshot) epochSkew() (newest uint64, apart bool) {
	for _, k := range s.memory.kinds {
		newest = max(newest, k.epoch)
	}
	if newest == 0 {
		return 0, false
	}
	for at, k := range s.memory.kinds {
		if min(k.epoch, k.marked) < newest && s.reader.reads(at) {
			return newest, true
		}
	}
	return newest, false
}

// skewed reports whether decisions have to wait because kinds are in several epochs.
func (d *Engine) skewed(s snapshot) bool {
	newest, apart := s.epochSkew()
	if !apart {
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
