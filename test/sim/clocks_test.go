package sim_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/test/sim"
)

// The clocks of reconcilers are set again and again, and nothing breaks: what one that was
// ahead has dated keeps no other waiting. Each day plays other worlds.
func TestClocksAreSet(t *testing.T) {
	worlds := min(*n, 40)
	for name, s := range shapes {
		if len(s.options.Trouble) < len(sim.All) {
			continue // it has troubles of its own
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := *seed; at < *seed+worlds; at++ {
				options := s.options
				options.Seed, options.Mute = at, true
				options.Trouble = slices.Concat(options.Trouble, slices.Repeat(sim.ClockJumps, 24))
				if sim.New(options, s.controllers()).Run() != nil {
					options.Mute = false // once more, with the transcript
					t.Fatalf("%v\nagain: go test ./test/sim -run 'TestClocksAreSet/%s$' -sim.seed=%d -sim.n=1", sim.New(options, s.controllers()).Run(), strings.ReplaceAll(name, " ", "_"), at)
				}
			}
		})
	}
}
