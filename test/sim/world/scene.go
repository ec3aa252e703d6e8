package world

import (
	"time"

	"github.com/millrace/millrace/test/sim/workloads"
)

// Scene is one operation of users in a script.
type Scene struct {
	Name string
	// After is how many steps after the last scene it plays; 0: when nothing else moves any
	// more.
	After int
	Do    func(*World)
}

// inTurn lets the next actor in turn act, and plays the script.
func (w *World) inTurn() bool {
	if w.scene < len(w.options.Script) {
		if s := w.options.Script[w.scene]; s.After > 0 && w.waited >= s.After {
			w.play(s)
			return true
		}
	}
	for i := range w.actors {
		at := (w.turn + i) % len(w.actors)
		if a := w.actors[at]; a.Ready() {
			w.turn, w.waited = at+1, w.waited+1
			a.act()
			return true
		}
	}
	switch {
	case w.scene < len(w.options.Script) && !w.soon():
		w.play(w.options.Script[w.scene])
		return true
	case workloads.Still(w.Cluster):
		return false
	default:
		return w.sleep()
	}
}

// soon reports whether something becomes due within a short time.
func (w *World) soon() bool {
	const near = 15 * time.Second
	next := w.next()
	return !next.IsZero() && next.Sub(w.Now) <= near && !w.options.Asks
}

func (w *World) play(s Scene) {
	w.Note("script: %s", s.Name)
	w.scene, w.waited = w.scene+1, 0
	w.Counts.Changes++
	w.Guard.Stirred()
	s.Do(w)
}
