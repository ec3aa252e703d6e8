package sim

import (
	"maps"
	"slices"
	"time"
)

// Disasters is what is rare, and worse than a crash: the API server's storage is restored, the
// bus loses turns, outcomes or positions, the whole cluster stands still and goes on.
var Disasters = []Fault{restoreSome, restoreSome, loseSomeTurns, loseSomeOutcomes, skipSome, suspend}

// restoreSome restores the storage, where a watcher runs that finds out before anything is
// written.
func restoreSome(w *World) {
	if slices.ContainsFunc(w.watchers, func(x *watcher) bool { return !x.stalled() }) {
		w.Restore(int64(1 + w.roll(12)))
		if w.changes == 0 && w.options.Last != nil {
			w.options.Last(w) // once more, where that was taken back
		}
	}
}

func loseSomeTurns(w *World) { w.LoseTurns(1 + w.roll(3)) }

func loseSomeOutcomes(w *World) { w.LoseOutcomes(1 + w.roll(3)) }

func skipSome(w *World) { w.SkipAhead() }

// untold tells whether a restore has been noticed and some kinds have not been told anew. Such
// a moment may not take long: what is not told for half a minute after that is not waited for
// (docs/reliability.md).
func (w *World) untold() bool {
	for _, epoch := range w.bus.epochs(maps.Keys(w.bus.kinds)) {
		if epoch < w.epoch {
			return true
		}
	}
	return false
}

// suspend has nothing at all happen for a while, as on machines that are suspended together.
func suspend(w *World) {
	if w.untold() {
		return
	}
	long := time.Duration(1+w.roll(30)) * time.Minute
	w.note("fault: everything is suspended for %v", long)
	w.advance(w.now.Add(long))
	w.stirred = w.now
}
