package sim_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/test/sim"
)

// Whatever else goes wrong, restores, lost turns, outcomes and positions, and a cluster that is
// suspended break nothing. Each day plays other worlds.
func TestDisasters(t *testing.T) {
	worlds := min(*n, 60)
	for name, s := range shapes {
		if len(s.options.Trouble) < len(sim.All) {
			continue // it has troubles of its own
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := *seed; at < *seed+worlds; at++ {
				options := s.options
				options.Seed, options.Mute, options.Trouble = at, true, sim.Worst
				if sim.New(options, s.controllers()).Run() != nil {
					options.Mute = false // once more, with the transcript
					t.Fatalf("%v\nagain: go test ./test/sim -run 'TestDisasters/%s$' -sim.seed=%d -sim.n=1", sim.New(options, s.controllers()).Run(), strings.ReplaceAll(name, " ", "_"), at)
				}
			}
		})
	}
}
