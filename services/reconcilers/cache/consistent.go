package cache

import "github.com/millrace/millrace/pkg/events/kinds"

// Inconsistent views. Every delta has the census at its sequence. If the cache's own census
// differs, the log has lost a message, and the follower is about to forget the kind and to read it
// again. Until then no turn is stored that has seen the kind, status included: the log could never
// tell which view the turn rested on.
//
// Epoch skew. When the API server is restored to an earlier time, every kind begins the same new
// epoch, but the watchers list each kind again at its own speed: for a moment the cache holds the
// replica sets of the backup beside the pods of the history that the restore ended. No decision on
// that view is right in either epoch.

// compareCensus compares a kind with the census of the delta that was folded last.
func (k *kindCache) compareCensus() { k.inconsistent = k.told.Known && k.told != k.tally.Census() }

// Inconsistent reports whether a kind that the controller reads is inconsistent.
func (s Snapshot) Inconsistent() bool {
	for at, k := range s.cache.kinds {
		if k.inconsistent && s.reader.reads(at) {
			return true
		}
	}
	return false
}

// InconsistentKinds are the kinds for which [Snapshot.Inconsistent] is true, in no order.
func (s Snapshot) InconsistentKinds() (all []kinds.Name) {
	for at, k := range s.cache.kinds {
		if k.inconsistent && s.reader.reads(at) {
			all = append(all, at)
		}
	}
	return all
}

// EpochSkew is the newest epoch of any kind, and whether a kind that the controller reads has not
// reached it, or has not been listed completely in it.
func (s Snapshot) EpochSkew() (newest uint64, skewed bool) {
	for _, k := range s.cache.kinds {
		newest = max(newest, k.epoch)
	}
	if newest == 0 {
		return 0, false
	}
	for at, k := range s.cache.kinds {
		if k.lags(newest) && s.reader.reads(at) {
			return newest, true
		}
	}
	return newest, false
}

// Lagging are the kinds that the controller reads and that have not been listed completely in an
// epoch, in no order.
func (s Snapshot) Lagging(epoch uint64) (behind []kinds.Name) {
	for at, k := range s.cache.kinds {
		if k.lags(epoch) && s.reader.reads(at) {
			behind = append(behind, at)
		}
	}
	return behind
}

func (k *kindCache) lags(epoch uint64) bool { return min(k.epoch, k.marked) < epoch }
