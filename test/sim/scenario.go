package sim

import "time"

// Scene is one thing that users do in a script.
type Scene struct {
	Name string
	// After is how many steps after the last scene it comes; 0: when nothing
	// moves any more.
	After int
	Do    func(*World)
}

// inTurn lets whatever can happen happen in turn, and the script go on.
func (w *World) inTurn() bool {
	if w.scene < len(w.options.Script) {
		if s := w.options.Script[w.scene]; s.After > 0 && w.waited >= s.After {
			w.play(s)
			return true
		}
	}
	for i := range w.actors {
		at := (w.turn + i) % len(w.actors)
		if a := w.actors[at]; a.ready() {
			w.turn, w.waited = at+1, w.waited+1
			a.act()
			return true
		}
	}
	if w.scene < len(w.options.Script) && !w.soon() {
		w.play(w.options.Script[w.scene])
		return true
	}
	return w.sleep()
}

// soon tells whether time alone brings something that is not far away.
func (w *World) soon() bool {
	const near = 15 * time.Second
	next := w.next()
	return !next.IsZero() && next.Sub(w.now) <= near
}

func (w *World) play(s Scene) {
	w.note("script: %s", s.Name)
	w.scene, w.waited = w.scene+1, 0
	w.tally.Changes++
	s.Do(w)
}
