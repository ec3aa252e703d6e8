package shell

import "time"

// A view whose kinds are of several epochs. When the API server is restored to an earlier time,
// every kind begins the same new epoch, but each is told again at its own speed: for a
// moment there are the replica sets of the backup beside the pods of the history that
// it ended. No decision on that is right in either of them, and one of them deletes
// pods that were not given up. What it wants meets no precondition that it breaks, for the
// pods are what they were. So no turn is stored until all kinds that the controller
// reads are in the newest epoch of any kind, and told to its end.

// MaxEpochSkew is how long that may take, from the first word of the new epoch. A kind that
// the API server does not serve is ended in the new epoch by its watcher; one that lags
// behind longer is one that no watcher may list, and is waited for without result.
const MaxEpochSkew = 30 * time.Second

// epochSkew is an epoch that some kinds have reached, and since when it has been
// waited for the others.
type epochSkew struct {
	epoch uint64
	since time.Time
}

// epochSkew tells whether a kind that the controller reads has not reached the newest
// epoch of any kind, or not been told of to its end there.
func (s scene) epochSkew() (newest uint64, apart bool) {
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

// skewed tells whether decisions have to wait since kinds are of several epochs.
func (d *Engine) skewed(s scene) bool {
	newest, apart := s.epochSkew()
	if !apart {
		return false
	}
	d.newEpoch(newest)
	return d.now.Sub(d.skew.since) < MaxEpochSkew
}

// newEpoch notes that there is an epoch. The wait for it begins with its first word, and not
// when a key first has to wait; later epochs alone begin it anew.
func (d *Engine) newEpoch(epoch uint64) {
	if epoch > d.skew.epoch {
		d.skew = epochSkew{epoch, d.now}
		d.timers.set(d.now.Add(MaxEpochSkew), d.revisitInconsistent)
	}
}
