package sim

import (
	"maps"
	"slices"
	"time"
)

// Disasters are rare faults that are worse than a crash: a restore of the API server's storage,
// the loss of turns, outcomes or positions, and a pause of the whole cluster.
var Disasters = []Fault{restoreSome, restoreSome, loseSomeTurns, loseSomeOutcomes, skipSome, suspend}

// restoreSome restores the storage, if a watcher runs that detects it before anything is
// written.
func restoreSome(w *World) {
	if slices.ContainsFunc(w.watchers, func(x *watcher) bool { return !x.stalled() }) {
		w.Restore(int64(1 + w.roll(12)))
		if w.changes == 0 && w.options.Last != nil {
			w.options.Last(w) // once more, if the restore reverted it
		}
	}
}

func loseSomeTurns(w *World) { w.LoseTurns(1 + w.roll(3)) }

func loseSomeOutcomes(w *World) { w.LoseOutcomes(1 + w.roll(3)) }

func skipSome(w *World) { w.SkipAhead() }

// untold reports whether a restore was noticed and some kinds have not been said again yet. That
// must not take long: reconcilers do not wait for kinds that are not said within half a minute
// after it (docs/reliability.md).
func (w *World) untold() bool {
	for _, epoch := range w.bus.epochs(maps.Keys(w.bus.kinds)) {
		if epoch < w.epoch {
			return true
		}
	}
	return false
}

// suspend stops everything for a while, like machines that are suspended together.
func suspend(w *World) {
	if w.untold() {
		return
	}
	long := time.Duration(1+w.roll(30)) * time.Minute
	w.note("fault: everything is suspended for %v", long)
	w.advance(w.now.Add(long))
	w.stirred = w.now
}
