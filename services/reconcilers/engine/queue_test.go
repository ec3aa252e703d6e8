package engine

import (
	"slices"
	"testing"
	"time"
)

// The engine reports how long each key was queued.
func TestHowLongAKeyWasQueued(t *testing.T) {
	var waited []time.Duration
	o := open(t, Settings{Waited: func(d time.Duration) { waited = append(waited, d) }})
	o.engine.Ask(web)
	o.now = o.now.Add(3 * time.Second)
	o.engine.Advance(o.now)
	if o.run(); !slices.Equal(waited, []time.Duration{3 * time.Second}) {
		t.Errorf("the key has waited for %v, want 3s", waited)
	}
}
