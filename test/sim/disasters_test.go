package sim_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/test/sim/world"
)

// Besides all other faults, restores, lost turns, outcomes and positions, and a suspended
// cluster break no invariant. Each day plays other worlds.
func TestDisasters(t *testing.T) {
	inTrouble(t, min(*n, 60), func([]world.Fault) []world.Fault { return world.Worst })
}

// The clocks of reconcilers are set again and again, and no invariant breaks: the times that a
// fast clock has written delay no other process. Each day plays other worlds.
func TestClocksAreSet(t *testing.T) {
	inTrouble(t, min(*n, 40), func(usual []world.Fault) []world.Fault {
		return slices.Concat(usual, slices.Repeat(world.ClockJumps, 24))
	})
}

// inTrouble plays worlds of each shape with all faults, from another list than the shape's own.
func inTrouble(t *testing.T, worlds uint64, trouble func(usual []world.Fault) []world.Fault) {
	test := t.Name()
	for name, s := range shapes {
		if len(s.options.Trouble) < len(world.All) {
			continue // it has faults of its own
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := *seed; at < *seed+worlds; at++ {
				options := s.options
				options.Seed, options.Mute, options.Trouble = at, true, trouble(s.options.Trouble)
				if world.New(options, s.controllers()).Run() != nil {
					options.Mute = false // once more, with the transcript
					t.Fatalf("%v\nagain: go test ./test/sim -run '%s/%s$' -sim.seed=%d -sim.n=1", world.New(options, s.controllers()).Run(), test, strings.ReplaceAll(name, " ", "_"), at)
				}
			}
		})
	}
}
